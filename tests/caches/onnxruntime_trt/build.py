"""ONNX Runtime's engines for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, Environs, lay, together, write

_NAME = "TensorrtExecutionProvider_TRTKernel_graph_main_graph_{}_0_0_fp16_sm89"
PROFILE = b"x\0\1\1\1\1\1\1\1\2\4\1\x24\1"
"""The end of a map of flexbuffers: its packed type, and a width of one byte."""
TIMING = "TensorrtExecutionProvider_cache_sm89.timing"


def plan(number: int = 0) -> bytes:
    """The header of a plan of TensorRT 10.3.0, as trtexec reads it."""
    return b"ftrt".ljust(24, b"\0") + bytes((10, 3, 0, number))


def name(number: int = 0) -> str:
    """The name of a model's files, without their endings."""
    return _NAME.format(12802227604276161730 + number)


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay an engine; its file."""
    return lay(root / f"{name(number)}.engine", plan(number) if data is None else data)


CASES: Cases = {
    "an engine": put,
    "with its shapes": together(put, write(f"{name()}.profile", PROFILE)),
    "with a prefix": write("yolo_12802227604276161730_0_fp16_dlacore0_sm80+.engine", plan()),
    "of an older version": write(
        "TensorrtExecutionProvider_TRTKernel_graph_g_1814689498642085427_1_0.engine", plan()
    ),
    "before 8.6": partial(put, data=b"ptrt" + bytes(40)),
    "without weights": write(f"{name()}.stripped.engine", plan()),
    "encrypted": write(f"{name()}.engine.encrypted", b"anything"),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=plan()[:-3]),
    "zeros": partial(put, data=bytes(4096)),
    "an ONNX model": partial(put, data=b"\x08\x08\x12\x07pytorch"),
    "empty shapes": together(put, write(f"{name()}.profile", b"")),
    "cut shapes": together(put, write(f"{name()}.profile", PROFILE[:-2])),
    "times of kernels": write(TIMING, b"any tag"),
    "no times of kernels": write(TIMING, b""),
    "zeros for times": write(TIMING, bytes(4096)),
}
PLACES: Environs = {
    "by its variable": ({"ORT_TENSORRT_CACHE_PATH": "{tmp}/engines"}, "engines/"),
    "by the older variable": ({"ORT_TENSORRT_ENGINE_CACHE_PATH": "/engines"},),
    "turned off": ({"ORT_TENSORRT_CACHE_PATH": "/engines", "ORT_TENSORRT_ENGINE_CACHE_ENABLE": "0"},),
    "nowhere": ({},),
}
