"""Which device a name on the command line means."""

import pytest

from gpucache.engine.machine import default_devices, select_target, told_choice
from gpucache.errors import NoDeviceError, TargetError
from gpucache.model import Device, Target, Toolchain


def _device(text: str, *, available: bool = True, present: bool = True, detail: str = "fine") -> Device:
    target = Target.parse(text)
    toolchain = Toolchain("any", (("architecture", target.name), ("version", "1")), ("architecture",))
    return Device(target, target.backend, text, "1", available, detail, toolchain, present)


_POCL = _device("opencl:pocl/cpu")
_INTEL = _device("opencl:intel/xeon")
_SECOND = _device("opencl:intel/xeon-2")
_OFF = _device("opencl:nvidia/h100", available=False, detail="it has no compiler")
_SM_90 = _device("cuda:sm_90", present=False)
_SM_100 = _device("cuda:sm_100")
_COMPUTE_90 = _device("cuda:compute_90", present=False)
_BROKEN = Device(None, "cuda", "cuda", "", available=False, detail="the driver crashed", present=False)
_HERE = [_POCL, _INTEL, _SECOND, _OFF, _SM_90, _SM_100, _COMPUTE_90]


@pytest.mark.parametrize("device", [_POCL, _INTEL, _SECOND, _SM_90, _COMPUTE_90], ids=lambda one: one.name)
def test_a_full_name_means_its_device(device: Device) -> None:
    """A target in full is that device, also where it is the beginning of another."""
    assert select_target(str(device.target), _HERE) == device


def test_a_beginning_means_the_only_device_it_fits() -> None:
    """A platform alone is enough where it has one device."""
    assert select_target("opencl:pocl", _HERE) == _POCL
    assert select_target("opencl:intel", [_POCL, _INTEL]) == _INTEL


def test_an_ambiguous_beginning_is_refused() -> None:
    """A platform with two devices is refused, and both are named."""
    message = "could be opencl:intel/xeon or opencl:intel/xeon-2; name one of them in full"
    with pytest.raises(TargetError, match=message):
        select_target("opencl:intel", _HERE)


@pytest.mark.parametrize("text", ["opencl:poc", "opencl:pocl/gpu", "cuda:sm_9", "cuda:sm", "cuda:sm_75"])
def test_an_unknown_target_is_refused_with_the_known(text: str) -> None:
    """What no compiler here builds for is refused, and the targets here are listed."""
    with pytest.raises(TargetError, match=f"no compiler here builds for '{text}'; the targets here are "):
        select_target(text, _HERE)


def test_a_long_list_of_targets_is_cut() -> None:
    """Of many targets the first eight are named and the rest counted."""
    many = [_device(f"cuda:sm_{number}") for number in range(10, 20)]
    with pytest.raises(TargetError, match=r"cuda:sm_17 and 2 more$"):
        select_target("cuda:sm_1", many)


def test_a_device_without_compiler_says_why() -> None:
    """A target that is here but cannot be built for gives the reason of its row."""
    with pytest.raises(NoDeviceError, match="cannot be compiled for here: it has no compiler"):
        select_target("opencl:nvidia/h100", _HERE)


def test_a_beginning_means_a_device_that_can_be_compiled_for() -> None:
    """Of two devices that a text begins, the one without a compiler is passed over, or tells why alone."""
    old = _device("opencl:pocl-3.0/cpu", available=False, detail="it does not know this CPU")
    new = _device("opencl:pocl-3.1/cpu")
    assert select_target("opencl:pocl", [old, new]) == new
    with pytest.raises(NoDeviceError, match=r"^opencl:pocl-3.0/cpu cannot be compiled for here: it does not"):
        select_target("opencl:pocl-3.0", [old, new])


def test_of_several_versions_of_a_platform_the_newest_is_meant_and_said() -> None:
    """A release is newer than its candidates; a version is compared by its numbers."""
    names = ("opencl:pocl-3.0-rc2/cpu", "opencl:pocl-10.1-debian/cpu", "opencl:pocl-10.1-rc1/cpu")
    old, newest, candidate = map(_device, names)
    for devices in ([old, newest, candidate], [candidate, newest, old]):
        assert select_target("opencl:pocl", devices) == newest
    assert told_choice("opencl:pocl", [old, newest]) == (
        "opencl:pocl means opencl:pocl-10.1-debian/cpu here, the newest that can compile, and not "
        "opencl:pocl-3.0-rc2/cpu."
    )
    assert told_choice(names[0], [old, newest]) == told_choice("opencl:pocl", [newest]) == ""
    second = _device("opencl:pocl-10.1-debian/cpu-2")
    with pytest.raises(TargetError, match=r"could be opencl:pocl-10\.1-debian/cpu or .*cpu-2; name one"):
        select_target("opencl:pocl", [old, newest, second])


def test_a_broken_backend_says_why() -> None:
    """Where a backend has no usable compiler its error is the answer."""
    with pytest.raises(NoDeviceError, match="nothing here can build for 'cuda:sm_90': the driver crashed"):
        select_target("cuda:sm_90", [_POCL, _BROKEN])


def test_an_unknown_backend_is_no_missing_device() -> None:
    """A backend nobody knows is a mistake in the name, not a missing compiler."""
    with pytest.raises(TargetError, match="no backend is named 'metal'"):
        select_target("metal:m3", _HERE)


@pytest.mark.parametrize("text", ["", "cuda", "cuda:", ":sm_90", "sm_90"])
def test_a_malformed_target_is_refused(text: str) -> None:
    """What is not BACKEND:NAME is refused with an example."""
    with pytest.raises(TargetError, match="write BACKEND:NAME, such as cuda:sm_90"):
        select_target(text, _HERE)


@pytest.mark.parametrize("name", ["sm_90a", "sm_100f", "compute_90a"])
def test_an_architecture_with_a_suffix_is_made_from_its_number(name: str) -> None:
    """A feature-specific architecture has its number's toolchain under its own name, and is not present."""
    plain = next(one for one in _HERE if one.target == Target("cuda", name[:-1]))
    made = select_target(f"cuda:{name}", _HERE)
    assert plain.toolchain is not None
    toolchain = plain.toolchain._replace(fields=(("architecture", name), ("version", "1")))
    assert made == plain._replace(target=Target("cuda", name), toolchain=toolchain, present=False)


@pytest.mark.parametrize("text", ["cuda:sm_75a", "cuda:sm_90x", "cuda:sm_90aa", "opencl:sm_90a"])
def test_no_other_suffix_is_made_up(text: str) -> None:
    """A suffix of an unknown number, or an unknown suffix, is an unknown target."""
    with pytest.raises(TargetError):
        select_target(text, _HERE)


def test_defaults_are_the_usable_devices_in_this_machine() -> None:
    """Without a named target, a backend's devices are those that are here and can be compiled for."""
    assert default_devices(_HERE, "opencl") == [_POCL, _INTEL, _SECOND]
    assert default_devices([*_HERE, _BROKEN], "cuda") == [_SM_100]
