"""Wrong bytes in a cache: every one is seen, and none raises."""

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead
from gpucache.store import Absent, Damage, Damaged, DirectoryStore, Found, ScannedEntry
from gpucache.store.format import encode
from tests.faults.conftest import build_entry

_FUZZ = settings(max_examples=150)
_VERSION = range(8, 12)


def _place(root: Path, entry: Entry) -> Path:
    path = root / "v1" / "entries" / entry.key.hex[:2] / f"{entry.key.hex}.gpc"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    path.touch(0o600)
    return path


def test_every_changed_byte_is_seen(tmp_path: Path) -> None:
    """No byte of an entry can change, padding and unused fields included, without the hit being lost."""
    entry = build_entry()
    path, store, sound = _place(tmp_path, entry), DirectoryStore(tmp_path, writable=False), encode(entry)
    path.write_bytes(sound)
    assert isinstance(store.get(entry.key), Found)
    for offset in range(len(sound)):
        for mask in (0x01, 0x20, 0xFF):
            data = bytearray(sound)
            data[offset] ^= mask
            path.write_bytes(data)
            result = store.get(entry.key)
            expected = Absent if offset in _VERSION else Damaged
            assert isinstance(result, expected), offset
            assert not isinstance(result, Absent) or result.reason


def test_every_truncation_is_seen(tmp_path: Path) -> None:
    """An entry cut at any length is truncated."""
    entry = build_entry()
    path, store, sound = _place(tmp_path, entry), DirectoryStore(tmp_path, writable=False), encode(entry)
    path.write_bytes(sound)
    for length in reversed(range(len(sound))):
        os.truncate(path, length)
        result = store.get(entry.key)
        assert isinstance(result, Damaged) and result.damage is Damage.TRUNCATED, length


def _look(root: Path, entry: Entry, data: bytes) -> list[object]:
    """All that a read-only look at these bytes gives."""
    store = DirectoryStore(root, writable=False)
    _place(root, entry).write_bytes(data)
    scanned: list[ScannedEntry] = list(store.scan())
    return [store.get(entry.key), store.detail(entry.key), *scanned, *map(store.check, scanned)]


@pytest.fixture(scope="module")
def fuzz_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def fuzz_entry() -> Entry:
    head = EntryHead("saxpy", "cuda:sm_90", "cubin", 1, 1, sha256(b"payload").hexdigest())
    return Entry(CacheKey("ab" * 32), head, EntryDetail(()), b"payload")


@_FUZZ
@given(data=st.binary(max_size=400) | st.binary(max_size=400).map(b"GPUCACHE\x01\0\0\0".__add__))
def test_random_bytes_raise_nothing(fuzz_root: Path, fuzz_entry: Entry, data: bytes) -> None:
    """A file of any bytes is an outcome for every way of looking at it, and never a hit."""
    assert not any(isinstance(result, Found | Entry) for result in _look(fuzz_root, fuzz_entry, data))


@_FUZZ
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 111) | st.integers(0, 600), st.integers(1, 255)), min_size=1, max_size=4
    ),
    cut=st.integers(0, 5),
)
def test_mutated_entries_raise_nothing(
    fuzz_root: Path, fuzz_entry: Entry, changes: list[tuple[int, int]], cut: int
) -> None:
    """An entry with several bytes changed, lengths above all, is an outcome, and a hit only if unchanged."""
    sound = encode(fuzz_entry)
    data = bytearray(sound)
    for offset, mask in changes:
        data[offset % len(data)] ^= mask
    mutated = bytes(data[: len(data) - cut])
    hits = [isinstance(result, Found | Entry) for result in _look(fuzz_root, fuzz_entry, mutated)]
    assert any(hits) == (mutated == sound)
