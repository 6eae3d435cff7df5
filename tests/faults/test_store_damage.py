"""Wrong bytes in a cache: every one is noticed, and none raises."""

import os
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.model import Entry
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import encode
from gpucache.store.interface import Absent, Damaged, Found
from tests.faults.conftest import build_entry

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
        assert isinstance(result, Damaged) and result.damage is FindingKind.TRUNCATED, length
