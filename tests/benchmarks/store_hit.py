"""A hit in the store without its memory store: every byte checked, next to peers that check none of them."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from gpucache.keys import cache_key, digest
from gpucache.model import Entry, EntryDetail, EntryHead, KeyField
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
from tests.benchmarks.measure import Comparison, Effort, calls, compare

SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}


def run(effort: Effort) -> Iterator[Comparison]:
    for label, size in SIZES.items():
        count = effort.calls(max(20, min(2000, 20_000_000 // size)))
        with tempfile.TemporaryDirectory() as folder:
            yield _compare(label, os.urandom(size), Path(folder), count, effort.rounds)


def _compare(label: str, payload: bytes, folder: Path, count: int, rounds: int) -> Comparison:
    file = folder / "raw"
    file.write_bytes(payload)
    sides = {"DirectoryStore.get": calls(_ours(folder / "ours", payload), count)}
    theirs, absent = _cuda_core(folder / "theirs", payload)
    if theirs is not None:
        sides["FileStreamProgramCache.get"] = calls(theirs, count)
    sides["open, fstat, read, close"] = calls(lambda: _raw(file), count)
    sides["the same, and the hash"] = calls(lambda: xxhash.xxh3_128_digest(_raw(file)), count)
    sides["the hash alone"] = calls(lambda: xxhash.xxh3_128_digest(payload), count)
    return compare(f"A hit of {label}", sides, rounds, absent)


def _ours(root: Path, payload: bytes) -> Callable[[], object]:
    fields = (KeyField("payload", digest(payload)),)
    head = EntryHead(
        program="scale.cu",
        target="cuda:sm_90",
        artifact_kind="cubin",
        created_ns=1,
        compile_ns=1,
        payload_sha256=digest(payload),
        language="cuda-c++",
        toolchain=(("NVRTC version", "13.0"), ("architecture", "sm_90")),
        toolchain_identity=("architecture",),
    )
    entry = Entry(cache_key(fields), head, EntryDetail(fields), payload)
    store = DirectoryStore(root, writable=True)
    store.publish(entry)
    found = store.get(entry.key)
    assert isinstance(found, Found)
    assert found.payload == payload
    return lambda: store.get(entry.key)


def _cuda_core(folder: Path, payload: bytes) -> tuple[Callable[[], object] | None, dict[str, str]]:
    try:
        from cuda.core.utils import FileStreamProgramCache
    except ImportError as error:
        return None, {"FileStreamProgramCache.get": str(error)}
    cache = FileStreamProgramCache(folder)
    key = os.urandom(32)
    cache[key] = payload
    assert cache.get(key) == payload
    return lambda: cache.get(key), {}


def _raw(file: Path) -> bytes:
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
