"""vLLM's compile cache for tests, by its own rules from given bytes."""

import hashlib
import json
import zlib
from pathlib import Path

from tests.caches.opened import Cases, changed, gone, lay, write

ARTIFACT = "artifact_compile_range_1_8192_subgraph_0"


def digits(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()[:10]


def artifact(number: int = 0) -> bytes:
    """A graph as PyTorch saves it: a CRC-32, then each part after its length."""
    parts = (b"CacheCompiledArtifact", bytes(32), b"pickles %d" % number)
    rest = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def put(root: Path, number: int = 0, **env: str) -> Path:
    """Lay the graph of a model's part; its directory."""
    folder = root / "torch_compile_cache" / digits(number) / "rank_0_0" / "backbone"
    listed = {((1, 8192), 0, "inductor_standalone"): {"graph_handle": (ARTIFACT, f"/x/{ARTIFACT}")}}
    factors = {"env": env, "code_hash": "c0de", "config_hash": f"{number}", "compiler_hash": "c"}
    files = {
        ARTIFACT: artifact(number),
        "vllm_compile_cache.py": repr(listed).encode(),
        "cache_key_factors.json": json.dumps(factors).encode(),
        "computation_graph.py": b"# graph",
    }
    for name, data in files.items():
        lay(folder / name, data)
    return folder


_LIST = "vllm_compile_cache.py"
_MODEL = f"torch_compile_cache/torch_aot_compile/{'ab' * 32}/rank_0_0/model"


def _large(folder: Path) -> None:
    with (folder / "cache_key_factors.json").open("r+b") as file:
        file.truncate(5 << 20)


CASES: Cases = {
    "a part of a model": put,
    "another variable": lambda root: put(root, VLLM_USE_DEEP_GEMM="1"),
    "a whole model": write(_MODEL, b"model"),
    "an artifact changed": changed(put, write(ARTIFACT, artifact()[:-1] + b"!")),
    "an artifact empty": changed(put, write(ARTIFACT, b"")),
    "an artifact gone": changed(put, gone(ARTIFACT)),
    "no list": changed(put, gone(_LIST)),
    "an artifact without a checksum": changed(put, write(ARTIFACT, artifact()[4:])),
    "alone: a graph where a lower layer has its cache": changed(
        put, lambda folder: folder.rename(folder.parent / "inductor_cache")
    ),
    "a list of variables that does not read": changed(put, _large),
}
