"""Entries to store, and a store to put them in."""

import zlib
from hashlib import sha256
from pathlib import Path

from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead, KeyField
from gpucache.store import layout
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import rows_of

CREATED_NS = 1_700_000_000 * 10**9


def build_entry(seed: str = "a", payload: bytes | None = None) -> Entry:
    """A small entry; equal seeds give equal keys."""
    content = f"payload of {seed}".encode() if payload is None else payload
    head = EntryHead(
        program=f"program-{seed}",
        target="cuda:sm_90",
        artifact_kind="cubin",
        created_ns=CREATED_NS,
        compile_ns=5_000_000,
        payload_sha256=sha256(content).hexdigest(),
        options=("-O3",),
        local_sizes=((16, 16), (64,)),
        lowered_names={"k<int>": "_Z1kIiEvv"},
        toolchain=(("nvrtc", "13.0"),),
        toolchain_identity=("architecture",),
    )
    detail = EntryDetail((KeyField("language", "cuda-c++"), KeyField("option", "-O3")), "a log", "1.0")
    return Entry(CacheKey(sha256(seed.encode()).hexdigest()), head, detail, content)


def entry_path(store: DirectoryStore, entry: Entry) -> Path:
    return store.root / "v1" / "entries" / entry.key.hex[:2] / f"{entry.key.hex}.gpc"


def put(path: Path, data: bytes) -> Path:
    """Write a file as ours, and create its directory if missing."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def left(root: Path) -> list[Path]:
    """Unfinished files of writers in a root, and locks."""
    base = root.joinpath(*layout.BASE)
    return [path for path in (base.iterdir() if base.is_dir() else ()) if layout.is_left(path.name)]


def memos(root: Path) -> list[bytes]:
    """The data of all memos of a root that have no file of their own."""
    file = root.joinpath(*layout.BASE, f"{layout.RECORDS_NAME}.row")
    rows = (rows_of(file.read_bytes()) if file.exists() else None) or ()
    return [zlib.decompress(row.record[8 + 64 :]) for row in rows if row.is_memo]
