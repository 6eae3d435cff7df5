"""Helion's records for tests, by its own rules from given bytes."""

import json
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.caches.opened import Cases, lay, write


def content(number: int = 0) -> bytes:
    fields = {
        "specialization_key": "(((torch.float32, 'cuda', (1024,)),),)",
        "extra_results": "()",
        "kernel_source_hash": sha256(b"%d" % number).hexdigest(),
        "hardware": "NVIDIA H100",
        "runtime_name": "13.0",
        "backend": "triton",
        "config_spec_hash": "ab" * 32,
    }
    config = json.dumps({"block_sizes": [64, number], "num_warps": 4})
    key = {"type": "LooseAutotuneCacheKey", "fields": fields}
    return json.dumps({"config": config, "key": key, "flat_config": "[64, 4]"}, indent=2).encode()


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay a record as Helion does; its file."""
    name = f"{sha256(b'key %d' % number).hexdigest()}.best_config"
    return lay(root / name, content(number) if data is None else data)


CASES: Cases = {
    "a record": put,
    "empty": partial(put, data=b""),
    "cut": partial(put, data=content()[:-3]),
    "no JSON": partial(put, data=b"garbage}"),
    "another JSON": partial(put, data=b'{"config": 1, "key": []}'),
    "deep": partial(put, data=b"[" * 100_000),
    "of a killed writer": write("tmp.12345678-1234-1234-1234-123456789abc", content()[:40]),
}
