"""What ``warm`` plans of a recording, told from values alone."""

from dataclasses import replace

from gpucache.assembly import backends
from gpucache.engine.warm.plan import plan_recorded
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
    (item,) = plan_recorded([Replayed(_BUILD, (), b"")], devices, (), backends(), {})
    assert item.request is None
    return item.skipped


def test_a_compiler_that_is_missing_is_named() -> None:
    """Where nothing of the backend is here, another target would not help, and the remedy is its own."""
    assert _skipped(_NO_DRIVER, _NO_NVRTC) == "no driver is here; NVRTC does not load; install it"


def test_a_device_that_is_missing_is_told_with_another_target() -> None:
    """Where the compiler is here, one of its targets can be named."""
    toolchain = Toolchain("nvrtc", (("architecture", "sm_50"),), ("architecture",))
    other = Device(
        Target("cuda", "sm_50"), "cuda", "sm_50", "", available=True, detail="", toolchain=toolchain
    )
    assert "--target" in _skipped(_NO_DRIVER, other)
