"""What the payload of a cache file is, and what becomes of a program that is given a broken one. Pure.

Source: Futhark, rts/c/backends/{cuda,hip,opencl}.h: CUDA stores PTX text without the NUL behind it,
HIP what its compiler returned, OpenCL the binary of the one device. CUDA and HIP compile again where
the driver refuses the payload; OpenCL does where the binary is refused as such, but stops where the
build of it fails.
"""

from gpucache.payload import PayloadInfo, PayloadKind, describe

_BACKENDS = {
    PayloadKind.PTX: "cuda",
    PayloadKind.CUBIN: "cuda",
    PayloadKind.FATBIN: "cuda",
    PayloadKind.LTOIR: "cuda",
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.UNKNOWN: "",
}
_AGAIN = "the driver refuses it, so the program compiles again and writes over the file"
_STOPS = "stops with 'Compilation of OpenCL program failed' and does not compile again; remove the file"
_CONSEQUENCES = {
    "cuda": _AGAIN,
    "hip": _AGAIN,
    "opencl": f"a program whose platform refuses it {_STOPS}",
    "": f"a CUDA or HIP program compiles again, an OpenCL program whose platform refuses it {_STOPS}",
}


def target_of(payload: PayloadInfo) -> str:
    """What a payload is for, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``; empty if unknown."""
    backend = _backend(payload)
    return f"{backend}:{payload.architecture}" if payload.architecture else backend


def consequence(payload: PayloadInfo) -> str:
    """What becomes of a program that is given the payload while it is broken."""
    return _CONSEQUENCES[_backend(payload)]


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC returns behind it."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def _backend(payload: PayloadInfo) -> str:
    """Which of Futhark's backends stores such a payload; empty where the bytes do not say.

    PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
    """
    return _BACKENDS.get(payload.kind, "opencl")
