"""Which device a name on the command line means."""

import re

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.engine.machine import default_devices, device_of, select_target, told_choice
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


@pytest.mark.parametrize(
    ("target", "version", "found"),
    [
        ("opencl:pocl/cpu", "1", _POCL),
        ("opencl:pocl-3.0/cpu", "1", _POCL),
        ("opencl:intel/xeon-2", "1", _SECOND),
        ("opencl:pocl/cpu", "0", _POCL),
        ("opencl:pocl-3.0/cpu", "0", None),
    ],
)
def test_an_entry_is_of_the_device_with_its_name_or_compiler(
    target: str, version: str, found: Device | None
) -> None:
    """A platform's name changes with the other platforms, and the fields of its compiler do not."""
    fields = (("architecture", "pocl/cpu"), ("version", version))
    entry = CacheEntry("gpucache", "ab", "", 1, 1, 1, "k.cl", target, toolchain=fields)
    assert device_of(entry, _HERE) == found


_RC = _device("opencl:pocl-3.0-rc2/cpu")
_NEWEST = _device("opencl:pocl-10.1-debian/cpu")
_TWIN = _device("opencl:pocl-10.1-debian/cpu-2")
_OLD = _device("opencl:pocl-3.0/cpu", available=False, detail="it does not know this CPU")
_NEW = _device("opencl:pocl-3.1/cpu")
_CANDIDATE = _device("opencl:pocl-10.1-rc1/cpu")
_KNOWN = "; its targets are "
_MEANT = [
    *((str(one.target), _HERE, one) for one in (_POCL, _INTEL, _SECOND, _SM_90, _COMPUTE_90)),
    ("opencl:pocl", _HERE, _POCL),  # a beginning means the only device it fits
    ("opencl:intel", [_POCL, _INTEL], _INTEL),
    ("opencl:pocl", [_OLD, _NEW], _NEW),  # one without a compiler is passed over
    ("opencl:pocl", [_RC, _NEWEST, _CANDIDATE], _NEWEST),  # a release is newer than its candidates
    ("opencl:pocl", [_CANDIDATE, _NEWEST, _RC], _NEWEST),
]
_REFUSED: list[tuple[str, list[Device], type[Exception], str]] = [
    (
        "opencl:intel",
        _HERE,
        TargetError,
        "could be opencl:intel/xeon or opencl:intel/xeon-2; name one of them",
    ),
    ("opencl:pocl", [_RC, _NEWEST, _TWIN], TargetError, "could be opencl:pocl-10.1-debian/cpu or "),
    *(
        (text, _HERE, TargetError, f"no compiler of this machine builds for '{text}'{_KNOWN}")
        for text in ("opencl:poc", "opencl:pocl/gpu", "cuda:sm_9", "cuda:sm", "cuda:sm_75")
    ),
    # A suffix of an unknown number, or an unknown suffix, is not made up.
    *(
        (text, _HERE, TargetError, f"'{text}'")
        for text in ("cuda:sm_75a", "cuda:sm_90x", "cuda:sm_90aa", "opencl:sm_90a")
    ),
    (
        "cuda:sm_1",
        [_device(f"cuda:sm_{number}") for number in range(10, 20)],
        TargetError,
        "cuda:sm_17 and 2 more",
    ),
    (
        "opencl:nvidia/h100",
        _HERE,
        NoDeviceError,
        "cannot be compiled for on this machine: it has no compiler",
    ),
    (
        "opencl:pocl-3.0",
        [_OLD, _NEW],
        NoDeviceError,
        "opencl:pocl-3.0/cpu cannot be compiled for on this machine: it does not",
    ),
    (
        "cuda:sm_90",
        [_POCL, _BROKEN],
        NoDeviceError,
        "no compiler of this machine builds for 'cuda:sm_90': the driver crashed",
    ),
    ("metal:m3", _HERE, TargetError, "no backend is named 'metal'"),
    *(
        (text, _HERE, TargetError, "write BACKEND:NAME, such as cuda:sm_90")
        for text in ("", "cuda", "cuda:", ":sm_90", "sm_90")
    ),
]


@pytest.mark.parametrize(("text", "devices", "meant"), _MEANT)
def test_a_name_means_a_device(text: str, devices: list[Device], meant: Device) -> None:
    """In full, or by a prefix of one device that can be compiled for, or of the newest."""
    assert select_target(text, devices) == meant


@pytest.mark.parametrize(("text", "devices", "error", "words"), _REFUSED)
def test_any_other_name_is_refused(
    text: str, devices: list[Device], error: type[Exception], words: str
) -> None:
    """An ambiguous, unknown, malformed or uncompilable name is an error that lists the valid ones."""
    with pytest.raises(error, match=re.escape(words)):
        select_target(text, devices)


def test_the_choice_of_a_version_is_said() -> None:
    """If a name means the newest of several versions, both are named; otherwise nothing is printed."""
    assert told_choice("opencl:pocl", [_RC, _NEWEST]) == (
        "opencl:pocl means opencl:pocl-10.1-debian/cpu on this machine, the newest that can compile, and not "
        "opencl:pocl-3.0-rc2/cpu."
    )
    assert told_choice(str(_RC.target), [_RC, _NEWEST]) == told_choice("opencl:pocl", [_NEWEST]) == ""


@pytest.mark.parametrize("name", ["sm_90a", "sm_100f", "compute_90a"])
def test_an_architecture_with_a_suffix_is_made_from_its_number(name: str) -> None:
    """A feature-specific architecture has its number's toolchain under its own name, and is not present."""
    plain = next(one for one in _HERE if one.target == Target("cuda", name[:-1]))
    made = select_target(f"cuda:{name}", _HERE)
    assert plain.toolchain is not None
    toolchain = plain.toolchain._replace(fields=(("architecture", name), ("version", "1")))
    assert made == plain._replace(target=Target("cuda", name), toolchain=toolchain, present=False)


def test_defaults_are_the_usable_devices_in_this_machine() -> None:
    """Without a named target, they are the backend's present devices that can be compiled for."""
    assert default_devices(_HERE, "opencl") == [_POCL, _INTEL, _SECOND]
    assert default_devices([*_HERE, _BROKEN], "cuda") == [_SM_100]
