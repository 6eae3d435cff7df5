"""Damaged entries: moved away, recorded and bounded."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.store.directory import FILE_CAP, DirectoryStore
from gpucache.store.format import encode
from gpucache.store.interface import Absent, Damaged, Event, Found
from tests.store.conftest import build_entry, entry_path


def test_damaged_entry_is_quarantined_and_reported(root: Path, store: DirectoryStore) -> None:
    """A hit on wrong bytes moves them away and records it, and the next lookup finds nothing."""
    entry = build_entry()
    store.publish(entry)
    data = bytearray(encode(entry))
    data[-1] ^= 1
    entry_path(store, entry).write_bytes(data)
    result = store.get(entry.key)
    assert isinstance(result, Damaged)
    assert (result.damage, result.quarantined) == (FindingKind.CORRUPT, True)
    assert [path.read_bytes() for path in (root / "v1" / "quarantine").iterdir()] == [data]
    assert store.get(entry.key) == Absent()
    assert [event.what for event in store.history.events("program-a")] == ["quarantined"]


def test_unverified_head_names_only_known_programs(store: DirectoryStore) -> None:
    """A damaged head starts no history, and is trusted only if its program has one."""
    entry = build_entry()
    for known in (False, True):
        if known:
            store.history.record("program-a", Event(1, "built", entry.key.hex, "cuda:sm_90"))
        store.publish(entry)
        data = bytearray(encode(entry))
        data[80] ^= 1
        entry_path(store, entry).write_bytes(data)
        assert isinstance(store.get(entry.key), Damaged)
        assert [event.what for event in store.history.events("program-a")] == (
            ["built", "quarantined"] if known else []
        )


def test_quarantine_is_bounded(root: Path, store: DirectoryStore) -> None:
    """Only the newest damaged files are kept."""
    entries = [build_entry(str(number)) for number in range(FILE_CAP + 3)]
    for entry in entries:
        store.publish(entry)
        (scanned,) = store.scan()
        assert store.quarantine(scanned, "odd")
    kept = {path.name.partition("-")[2] for path in (root / "v1" / "quarantine").iterdir()}
    assert kept == {f"{entry.key.hex}.gpc" for entry in entries[3:]}


def _folder(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("of somebody")


def test_folders_in_quarantine_are_bounded(root: Path, store: DirectoryStore) -> None:
    """The content of a directory is not ours to remove, so the number of directories is bounded."""
    entry = build_entry()
    store.publish(entry)
    entry_path(store, entry).unlink()
    for _ in range(FILE_CAP):
        _folder(entry_path(store, entry))
        store.publish(entry)
        entry_path(store, entry).unlink()
    _folder(entry_path(store, entry))
    with pytest.raises(IsADirectoryError):
        store.publish(entry)
    assert len(list(root.glob("v1/quarantine/*/thesis.txt"))) == FILE_CAP


def test_an_entry_that_was_replaced_since_the_scan_is_not_quarantined(store: DirectoryStore) -> None:
    """It was damaged when it was seen; the one there now is sound."""
    entry = build_entry()
    store.publish(entry)
    (scanned,) = store.scan()
    store.publish(entry)
    assert not store.quarantine(scanned, "odd")
    assert isinstance(store.get(entry.key), Found)
