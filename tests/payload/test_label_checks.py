import pytest

from gpucache.payload import PayloadInfo, PayloadKind, fits

K = PayloadKind


def payload(kind: PayloadKind, architecture: str | None = None) -> PayloadInfo:
    return PayloadInfo(kind, architecture, (), None)


@pytest.mark.parametrize(
    ("kind", "architecture", "artifact_kind", "target"),
    [
        (K.CUBIN, "sm_90", "cubin", "cuda:sm_90"),
        (K.CUBIN, "sm_90a", "cubin", "cuda:sm_90a"),
        (K.CUBIN, "sm_90", "cubin", "cuda:sm_90a"),
        (K.CUBIN, None, "cubin", "cuda:sm_90"),
        (K.CUBIN, "sm_100f", "cubin", "cuda:sm_100f"),
        (K.CUBIN, "sm_90", "cubin", "cuda:whatever"),
        (K.PTX, "compute_90", "ptx", "cuda:compute_90"),
        (K.PTX, "compute_90", "ptx", "cuda:sm_90"),
        (K.LTOIR, "compute_90", "ltoir", "cuda:sm_90"),
        (K.LTOIR, "compute_100", "ltoir", "cuda:compute_100f"),
        (K.POCLBIN, None, "opencl-binary", "opencl:pocl/cpu"),
        (K.POCLBIN, None, "opencl-binary", "opencl:portable-computing-language/cpu"),
        (K.INTEL_CPU, None, "opencl-binary", "opencl:intel-r-opencl/xeon"),
        (K.PTX, "compute_80", "opencl-binary", "opencl:nvidia-cuda/a100"),
        (K.ELF, None, "opencl-binary", "opencl:pocl/cpu"),
        (K.SPIRV, None, "opencl-binary", "opencl:intel/gpu"),
        (K.UNKNOWN, None, "opencl-binary", "opencl:pocl/cpu"),
        (K.OFFLOAD_BUNDLE, "gfx90a", "opencl-binary", "opencl:amd/gfx90a"),
    ],
)
def test_payload_fits_what_its_entry_says(
    kind: PayloadKind, architecture: str | None, artifact_kind: str, target: str
) -> None:
    """A payload that agrees with its entry, or does not contradict it, is not reported."""
    assert fits(payload(kind, architecture), artifact_kind, target) is None


@pytest.mark.parametrize(
    ("kind", "architecture", "artifact_kind", "target", "words"),
    [
        (K.CUBIN, "sm_80", "cubin", "cuda:sm_90", "for sm_90 and the payload was built for sm_80"),
        (K.CUBIN, "sm_90a", "cubin", "cuda:sm_90", "built for sm_90a"),
        (K.CUBIN, "sm_100a", "cubin", "cuda:sm_100f", "built for sm_100a"),
        (K.PTX, "compute_90", "cubin", "cuda:sm_90", "says cubin and the payload is ptx"),
        (K.ELF, None, "cubin", "cuda:sm_90", "the payload is elf"),
        (K.FATBIN, None, "cubin", "cuda:sm_90", "the payload is fatbin"),
        (K.UNKNOWN, None, "ptx", "cuda:compute_90", "of unknown format"),
        (K.PTX, "compute_80", "ptx", "cuda:compute_90", "built for compute_80"),
        (K.PTX, "compute_90", "ptx", "cuda:compute_90a", "built for compute_90"),
        (K.LTOIR, "compute_80", "ltoir", "cuda:sm_90", "built for compute_80"),
        (K.LLVM_BITCODE, None, "ltoir", "cuda:sm_90", "llvm-bitcode"),
        (K.CUBIN, "sm_90", "cubin", "opencl:pocl/cpu", "not made for opencl"),
        (K.POCLBIN, None, "opencl-binary", "cuda:sm_90", "not made for cuda"),
        (K.POCLBIN, None, "opencl-binary", "opencl:intel/xeon", "for intel/xeon and the payload is poclbin"),
        (K.CUBIN, "sm_90", "opencl-binary", "opencl:pocl/cpu", "the payload is cubin"),
        (K.OFFLOAD_BUNDLE, "gfx90a", "opencl-binary", "opencl:pocl/cpu", "the payload is offload-bundle"),
        (K.LTOIR, "compute_90", "opencl-binary", "opencl:mystery", "the payload is ltoir"),
        (K.CUBIN, "sm_90", "wasm", "cuda:sm_90", "'wasm' is not a kind of artifact"),
        (K.CUBIN, "sm_90", "cubin", "", "not made for nothing"),
    ],
)
def test_payload_that_is_something_else_is_said_so(
    kind: PayloadKind, architecture: str | None, artifact_kind: str, target: str, words: str
) -> None:
    """A contradiction is named in one sentence."""
    sentence = fits(payload(kind, architecture), artifact_kind, target)
    assert sentence is not None
    assert words in sentence
