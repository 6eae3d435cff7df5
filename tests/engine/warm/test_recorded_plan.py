"""The plan that ``warm`` makes of a recording, from values alone."""

from dataclasses import replace

import pytest

from gpucache.backends.interface import Backends
from gpucache.engine.warm.plan import devices_there, plan_recorded
from gpucache.model import ArtifactKind, Device, Language, Target, Toolchain
from gpucache.recording.reading import Replayed
from tests.recording.builds import ONE

_BUILD = replace(
    ONE,
    language=Language.CUDA_CPP,
    target="cuda:sm_90",
    implementation="nvrtc",
    toolchain=(("architecture", "sm_90"),),
    identity=("architecture",),
    artifact_kind=ArtifactKind.CUBIN,
    file_name="a.cu",
)
_NO_DRIVER = Device(None, "cuda", "GPU", "", available=False, detail="no driver is here")
_NO_NVRTC = Device(None, "cuda", "NVRTC", "", available=False, detail="NVRTC does not load; install it")


def _skipped(*devices: Device) -> str:
    (item,) = plan_recorded([Replayed(_BUILD, (), b"")], devices, (), Backends(), {})
    assert item.request is None
    return item.skipped


def test_a_compiler_that_is_missing_is_named() -> None:
    """If the machine has nothing of the backend, no other target helps, and the remedy is to install it."""
    assert _skipped(_NO_DRIVER, _NO_NVRTC) == "no driver is here; NVRTC does not load; install it"


def test_a_device_that_is_missing_is_told_with_another_target() -> None:
    """If the compiler is present, the message names one of its targets."""
    toolchain = Toolchain("nvrtc", (("architecture", "sm_50"),), ("architecture",))
    other = Device(
        Target("cuda", "sm_50"), "cuda", "sm_50", "", available=True, detail="", toolchain=toolchain
    )
    assert "--target" in _skipped(_NO_DRIVER, other)


def _cuda(name: str, *, present: bool) -> Device:
    toolchain = Toolchain("nvrtc", (("architecture", name),), ("architecture",))
    return Device(Target("cuda", name), "cuda", name, "", True, "", toolchain, present)


def _opencl(name: str, implementation: str) -> Device:
    toolchain = Toolchain(implementation, (("device name", name),), ("device name",))
    return Device(Target("opencl", f"x/{name}"), "opencl", name, "", True, "", toolchain)


_ALL = ("sm_80", "sm_90", "compute_80", "compute_90")


@pytest.mark.parametrize(
    ("recorded", "present", "asked"),
    [
        ("sm_80", ("sm_80",), ["sm_80"]),
        ("sm_80", ("sm_90",), ["sm_90"]),
        ("sm_80", ("sm_80", "sm_90"), ["sm_80"]),
        ("sm_80", (), ["sm_80"]),  # no GPU: a builder
        ("sm_70", ("sm_80", "sm_90"), ["sm_80", "sm_90"]),
        ("sm_70", (), []),
        ("sm_90a", ("sm_90",), ["sm_90a"]),
        ("sm_90a", ("sm_80",), ["sm_80"]),
        ("compute_80", ("sm_90",), ["compute_80"]),  # PTX runs on newer GPUs
    ],
)
def test_a_program_elsewhere_asks_for_the_gpu_of_its_machine(
    recorded: str, present: tuple[str, ...], asked: list[str]
) -> None:
    """It is the recorded GPU if that is present or no GPU is, and PTX stays PTX."""
    build = replace(_BUILD, target=f"cuda:{recorded}", toolchain=(("architecture", recorded),))
    devices = [_cuda(name, present=name in present) for name in _ALL]
    assert [device.target and device.target.name for device in devices_there(build, devices)] == asked


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("gpu:nvidia", "cpu:pocl"), ["x/gpu"]),
        (("new:nvidia", "cpu:pocl"), ["x/new"]),
        (("cpu:pocl",), []),
    ],
)
def test_a_program_elsewhere_asks_for_a_device_with_the_same_kind_of_compiler(
    names: tuple[str, ...], asked: list[str]
) -> None:
    """A program recorded on a GPU does not run on another vendor's CPU unless requested."""
    build = replace(ONE, target="opencl:x/gpu", implementation="nvidia", identity=("device name",))
    build = replace(build, toolchain=(("device name", "gpu"),))
    devices = [_opencl(*name.split(":")) for name in names]
    assert [device.target and device.target.name for device in devices_there(build, devices)] == asked
