"""Whether a payload agrees with its entry, from the description of the payload alone."""

import re
from collections.abc import Mapping

from gpucache.model import ArtifactKind
from gpucache.payload.reading import PayloadInfo, PayloadKind

_KINDS: Mapping[str, PayloadKind] = {
    ArtifactKind.CUBIN: PayloadKind.CUBIN,
    ArtifactKind.PTX: PayloadKind.PTX,
    ArtifactKind.LTOIR: PayloadKind.LTOIR,
    ArtifactKind.OPTIXIR: PayloadKind.LTOIR,  # it begins as LTO-IR does
    ArtifactKind.CODE_OBJECT: PayloadKind.AMDGPU,
    ArtifactKind.BITCODE: PayloadKind.LLVM_BITCODE,
}
_HIP_KINDS = (ArtifactKind.CODE_OBJECT, ArtifactKind.BITCODE)
_CUDA_ONLY = (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.LTOIR)
_VENDORS = {
    PayloadKind.CUBIN: "nvidia",
    PayloadKind.FATBIN: "nvidia",
    PayloadKind.LTOIR: "nvidia",
    PayloadKind.PTX: "nvidia",
    PayloadKind.POCLBIN: "pocl",
    PayloadKind.RUSTICL: "rusticl",
    PayloadKind.INTEL_CPU: "intel",
    PayloadKind.INTEL_GPU: "intel",
    PayloadKind.AMDGPU: "amd",
    PayloadKind.OFFLOAD_BUNDLE: "amd",
}
_ARCHITECTURE = re.compile(r"(?:sm|compute)_(\d+)([a-z]?)")


def holds_no_kernel(info: PayloadInfo) -> bool:
    """Whether a cubin or PTX is known to contain nothing that can be launched."""
    return info.kind in (PayloadKind.CUBIN, PayloadKind.PTX) and info.kernels == ()


def fits(info: PayloadInfo, artifact_kind: str, target: str) -> str | None:
    """The mismatch between a payload and an entry's artifact kind and target, as a sentence; else None.

    A structural ``problem`` of the payload is a separate finding and ignored in this check. A payload that
    does not name its architecture, an OpenCL binary of unknown format and an entry of a third-party backend
    count as fitting.
    """
    backend, _, name = target.partition(":")
    if artifact_kind == ArtifactKind.OPENCL_BINARY:
        return _wrong_backend(artifact_kind, backend, "opencl") or _opencl_misfit(info, name)
    if backend not in ("cuda", "hip", "opencl", ""):
        return None
    expected = _KINDS.get(artifact_kind)
    if expected is None:
        return f"{artifact_kind!r} is not a kind of artifact"
    if info.kind is not expected:
        return f"the entry says {artifact_kind} and the payload is {_words(info.kind)}"
    own = "hip" if artifact_kind in _HIP_KINDS else "cuda"
    return _wrong_backend(artifact_kind, backend, own) or _architecture_misfit(info, name)


def _wrong_backend(artifact_kind: str, backend: str, expected: str) -> str | None:
    if backend == expected:
        return None
    return f"the entry says {artifact_kind}, which is not made for {backend or 'nothing'} but for {expected}"


def _opencl_misfit(info: PayloadInfo, name: str) -> str | None:
    """The mismatch if a payload in one implementation's own format is for a target of another."""
    vendor = _VENDORS.get(info.kind)
    if vendor is None or name.startswith(vendor):
        return None
    if info.kind in _CUDA_ONLY or name.startswith(tuple(_VENDORS.values())):
        return f"the entry is for {name} and the payload is {_words(info.kind)}"
    return None


def _architecture_misfit(info: PayloadInfo, name: str) -> str | None:
    """The mismatch if a payload was built for a different architecture than its entry's.

    The numbers must be equal. A suffix is compared if the payload states one, and always for PTX. Whether
    a number is that of a real or a virtual architecture follows from the kind of artifact.
    """
    if info.kind is PayloadKind.AMDGPU and info.architecture not in (None, name.partition(":")[0]):
        return f"the entry is for {name} and the payload was built for {info.architecture}"
    claimed = _ARCHITECTURE.fullmatch(name)
    found = _ARCHITECTURE.fullmatch(info.architecture or "")
    if claimed is None or found is None:
        return None
    states_suffix = bool(found[2]) or info.kind is PayloadKind.PTX
    if claimed[1] == found[1] and (claimed[2] == found[2] or not states_suffix):
        return None
    return f"the entry is for {name} and the payload was built for {info.architecture}"


def _words(kind: PayloadKind) -> str:
    return "of unknown format" if kind is PayloadKind.UNKNOWN else kind.value
