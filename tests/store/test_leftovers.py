"""What belongs to no entry, and how it goes."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpucache.model import Entry
from gpucache.store import DirectoryStore

HOUR_NS = 3600 * 10**9
MakeEntry = Callable[..., Entry]
Put = Callable[[Path, bytes], Path]


def test_old_temporary_files_are_leftovers(
    put: Put, root: Path, store: DirectoryStore, make_entry: MakeEntry
) -> None:
    """What lies in tmp for an hour is left over; what is younger may be in use."""
    store.publish(make_entry())
    path = put(root / "v1" / "tmp" / "1-x.gpc", b"half")
    os.utime(path, ns=(1, 1))
    assert list(store.leftovers(time.time_ns())) == []
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    assert (leftover.path, leftover.size_bytes) == (path, 4) and leftover.age_ns >= HOUR_NS
    assert store.remove_leftover(leftover)
    assert not path.exists() and not store.remove_leftover(leftover)


def test_strays_among_entries_are_leftovers(
    put: Put, root: Path, store: DirectoryStore, make_entry: MakeEntry
) -> None:
    """Files below entries/ that do not call themselves entries are told once, as leftovers."""
    store.publish(make_entry())
    strays = {
        put(root / "v1" / "entries" / "notes.txt", b"1"),
        put(root / "v1" / "entries" / "ab" / "x", b"2"),
    }
    assert {leftover.path for leftover in store.leftovers(time.time_ns())} == strays
    assert [found.key for found in store.scan()] == [make_entry().key]
    assert all(store.remove_leftover(leftover) for leftover in list(store.leftovers(time.time_ns())))
    assert not any(path.exists() for path in strays)


def test_only_leftovers_are_removed_as_such(
    put: Put, tmp_path: Path, store: DirectoryStore, make_entry: MakeEntry
) -> None:
    """A leftover that changed, or a path elsewhere, is not removed."""
    store.publish(make_entry())
    stray = put(store.root / "v1" / "entries" / "notes.txt", b"1")
    outside = put(tmp_path / "outside", b"1")
    (leftover,) = store.leftovers(time.time_ns())
    tag = store.root / "CACHEDIR.TAG"
    assert not store.remove_leftover(replace(leftover, path=outside))
    assert not store.remove_leftover(replace(leftover, path=tag, size_bytes=tag.stat().st_size))
    stray.write_bytes(b"grown")
    assert not store.remove_leftover(leftover)
    assert stray.exists() and outside.exists() and tag.exists()


def test_held_locks_are_no_leftovers(
    put: Put, root: Path, store: DirectoryStore, make_entry: MakeEntry
) -> None:
    """A lock's file is left over only when nobody holds it."""
    later_ns = time.time_ns() + 2 * HOUR_NS
    with store.single_flight(make_entry().key, 10):
        assert list(store.leftovers(later_ns)) == []
    path = put(root / "v1" / "locks" / f"{make_entry().key}.lock", b"")
    (leftover,) = store.leftovers(later_ns)
    with store.single_flight(make_entry().key, 10):
        assert not store.remove_leftover(leftover)
    put(path, b"")
    assert store.remove_leftover(leftover) and not path.exists()
