"""Torch-TensorRT's engines for tests, by its own rules from given bytes."""

import pickle
from base64 import b32encode
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.caches.onnxruntime_trt.build import plan
from tests.caches.opened import Cases, Environs, lay, write


def blob(engine: bytes) -> bytes:
    """An engine with what else a pickle has."""
    return pickle.dumps({"serialized_engine": engine, "input_names": ["x"], "output_names": ["output0"]})


def put(root: Path, number: int = 0, data: bytes | None = None, hashes: int = 3) -> Path:
    """Lay an engine; its file."""
    digits = (b32encode(sha256(b"%d %d" % (number, one)).digest()).decode().lower() for one in range(hashes))
    return lay(
        root / "".join(one[:51] for one in digits) / "blob.bin", blob(plan(number)) if data is None else data
    )


CASES: Cases = {
    "an engine": put,
    "by its graph alone": partial(put, hashes=1),
    "large": partial(put, data=blob(plan() + bytes(1 << 20))),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=blob(plan())[:-3]),
    "no pickle": partial(put, data=bytes(4096)),
    "no engine": partial(put, data=pickle.dumps({"input_names": ["x"]})),
    "another engine": partial(put, data=blob(b"\x08\x08\x12\x07pytorch")),
    "times of kernels": write("timing_cache.bin", b"any tag"),
    "zeros for times": write("timing_cache.bin", bytes(4096)),
}
PLACES: Environs = {
    "among temporary files": ({"TMPDIR": "{tmp}/tmp"}, "tmp/torch_tensorrt_engine_cache/"),
}
