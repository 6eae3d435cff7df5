"""What the payload of a cache file is, and what becomes of a program that is given a broken one. Pure.

Source: Futhark, rts/c/backends/{cuda,hip,opencl}.h: CUDA stores PTX text without the NUL behind it,
HIP what its compiler returned, OpenCL the binary of the one device. CUDA and HIP compile again where
the driver refuses the payload; OpenCL does where the binary is refused as such, but stops where the
build of it fails.
"""

from dataclasses import dataclass

from gpucache.caches.futhark.bundles import is_bundle, read_bundle
from gpucache.payload import PayloadKind, describe
from gpucache.units import format_size

BUNDLE = "hip-bundle"
UNKNOWN = PayloadKind.UNKNOWN.value
_BACKENDS = {
    PayloadKind.PTX.value: "cuda",
    PayloadKind.CUBIN.value: "cuda",
    PayloadKind.FATBIN.value: "cuda",
    PayloadKind.LTOIR.value: "cuda",
    PayloadKind.AMDGPU.value: "hip",
    BUNDLE: "hip",
    UNKNOWN: "",
}
_AGAIN = "the driver refuses it, so the program compiles again and writes over the file"
_STOPS = "stops with 'Compilation of OpenCL program failed' and does not compile again; remove the file"
_CONSEQUENCES = {
    "cuda": _AGAIN,
    "hip": _AGAIN,
    "opencl": f"a program whose platform refuses it {_STOPS}",
    "": f"a CUDA or HIP program compiles again, an OpenCL program whose platform refuses it {_STOPS}",
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a payload is, in words that can be shown."""

    kind: str
    """A ``PayloadKind``, or ``hip-bundle``."""
    architecture: str
    detail: tuple[tuple[str, str], ...]
    problem: str
    """What is broken in it; empty where nothing is."""

    @property
    def backend(self) -> str:
        """Which of Futhark's backends stores such a payload; empty where the bytes do not say.

        PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
        """
        return _BACKENDS.get(self.kind, "opencl")

    @property
    def target(self) -> str:
        """What it is for, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``."""
        return f"{self.backend}:{self.architecture}" if self.architecture else self.backend

    @property
    def consequence(self) -> str:
        """What becomes of a program that is given it while it is broken."""
        return _CONSEQUENCES[self.backend]


def look_into(payload: bytes) -> Contents:
    """What a payload is. Raises nothing, whatever the bytes."""
    if is_bundle(payload):
        return _bundle(payload)
    info = describe(payload)
    architecture = info.architecture or ""
    pairs = (("kind", info.kind.value), *_pair("architecture", architecture), *info.detail)
    return Contents(info.kind.value, architecture, pairs, info.problem or "")


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC returns behind it."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def _bundle(payload: bytes) -> Contents:
    bundle = read_bundle(payload)
    names = ", ".join(bundle.architectures)
    one = bundle.architectures[0] if len(bundle.architectures) == 1 else ""
    pairs = (("kind", BUNDLE), *_pair("architectures", names), ("size", format_size(len(payload))))
    return Contents(BUNDLE, one, pairs, bundle.problem or "")


def _pair(label: str, value: str) -> tuple[tuple[str, str], ...]:
    return ((label, value),) if value else ()
