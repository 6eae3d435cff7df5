"""Files that belong to no entry, and their removal."""

import os
import time
from pathlib import Path

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.store.conftest import build_entry, put

HOUR_NS = 3600 * 10**9


def test_old_temporary_files_are_leftovers(root: Path, store: DirectoryStore) -> None:
    """A file in tmp is a leftover after an hour; a younger one may be in use."""
    store.publish(build_entry())
    path = put(root / "v1" / "tmp" / f"1-{16 * 'a'}-{64 * 'b'}.gpc", b"half")
    os.utime(path, ns=(1, 1))
    assert list(store.leftovers(time.time_ns())) == []
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    assert (leftover.path, leftover.size_bytes) == (path, 4) and leftover.age_ns >= HOUR_NS
    assert store.remove_leftover(leftover)
    assert not path.exists() and not store.remove_leftover(leftover)


@pytest.mark.parametrize(
    "name",
    [f"1-{16 * 'a'}-{64 * 'b'}.json", f"tmp/1-{16 * 'a'}-targets.json", "locks/missed.lock", "rows.lock"],
)
def test_what_a_stopped_writer_leaves_is_removed(name: str, root: Path, store: DirectoryStore) -> None:
    """A half-written request, the targets of a probe, and the lock of builds are ours and go."""
    store.publish(build_entry())
    path = put(root / "v1" / name, b"")
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    assert leftover.path == path and store.remove_leftover(leftover)
    assert not path.exists()


_STRANGERS = (
    "thesis.tex",
    "v1/chapter.tex",
    "v1/entries/list.json",
    "v1/entries/bb/photo.gpc",
    "v1/entries/users/42.json",
    "v1/tmp/draft.txt",
    "v1/tmp/12-abc.gpc",
    "v1/locks/bike.lock",
    "v1/quarantine/old.gpc",
    "v1/missed/train.json",
    "v1/journal/diary.jsonl",
    "v1/closures/x.memo",
    "v1/programs/thesis/history.txt",
    "v1/programs/thesis-deadbeef/chapter.tex",
    "v1/programs/thesis-deadbeef.jsonl.bak",
)


@pytest.mark.parametrize("shared", [False, True])
def test_no_repair_eviction_or_sweep_takes_the_files_of_others(root: Path, shared: bool) -> None:
    """They are in every directory of ours, in our own root full of removable files."""
    strangers = {put(root / name, name.encode()): name.encode() for name in _STRANGERS}
    root.chmod(0o700)
    store = DirectoryStore(root, writable=True, shared=shared)
    store.publish(build_entry())
    damaged = put(root / "v1" / "entries" / "bb" / f"{64 * 'b'}.gpc", b"")
    partial = put(root / "v1" / "tmp" / f"1-{16 * 'a'}-{64 * 'b'}.gpc", b"half")
    store.history.record("a.cl", Event(1, "built", 64 * "b", "cuda:sm_90", ""))
    for scanned in list(store.scan()):
        assert store.quarantine(scanned, "corrupt") if scanned.damage else not store.remove(scanned, "--all")
    for leftover in list(store.leftovers(time.time_ns() + 2 * HOUR_NS)):
        assert store.remove_leftover(leftover) == (leftover.path == partial)
    assert store.sweep(0).files > 0
    store.publish(build_entry())
    assert not damaged.exists() and not partial.exists()
    assert {path: path.read_bytes() for path in strangers} == strangers


def test_where_nothing_shows_that_a_root_is_ours_nothing_is_removed(root: Path) -> None:
    """Another program's directory may contain our names by chance."""
    key = 64 * "b"
    damaged = put(root / "v1" / "entries" / "bb" / f"{key}.gpc", b"a recording")
    partial = put(root / "v1" / "tmp" / f"1-{16 * 'a'}-{key}.gpc", b"half")
    root.chmod(0o700)
    store = DirectoryStore(root, writable=True)
    (scanned,) = store.scan()
    assert not store.quarantine(scanned, "corrupt") and store.remove(scanned, "--all") is not None
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    assert not store.remove_leftover(leftover) and damaged.exists() and partial.exists()


@pytest.mark.parametrize("mark", ["entry", "history", "tag"])
def test_an_entry_a_history_or_the_tag_shows_that_a_root_is_ours(mark: str, root: Path) -> None:
    """A shared root has no tag."""
    store = DirectoryStore(root, writable=True, shared=mark != "tag")
    entry = build_entry()
    store.prepare()
    if mark == "entry":
        store.publish(entry)
    elif mark == "history":
        store.history.record("a.cl", Event(1, "built", entry.key.hex, "cuda:sm_90", ""))
    damaged = put(root / "v1" / "entries" / "bb" / f"{64 * 'b'}.gpc", b"")
    (scanned,) = (one for one in store.scan() if one.path == damaged)
    assert store.quarantine(scanned, "truncated") and not damaged.exists()


def test_only_leftovers_are_removed_as_such(tmp_path: Path, store: DirectoryStore) -> None:
    """A changed leftover, or a path elsewhere, is not removed."""
    store.publish(build_entry())
    name = f"1-{16 * 'a'}-{64 * 'b'}.gpc"
    left = put(store.root / "v1" / "tmp" / name, b"1")
    outside = put(tmp_path / name, b"1")
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    tag = store.root / "CACHEDIR.TAG"
    assert not store.remove_leftover(leftover._replace(path=outside))
    assert not store.remove_leftover(leftover._replace(path=tag, size_bytes=tag.stat().st_size))
    left.write_bytes(b"grown")
    assert not store.remove_leftover(leftover)
    assert left.exists() and outside.exists() and tag.exists()


def test_held_locks_are_no_leftovers(root: Path, store: DirectoryStore) -> None:
    """A lock's file is a leftover only if no process holds it."""
    later_ns = time.time_ns() + 2 * HOUR_NS
    with store.single_flight(build_entry().key, 10):
        assert list(store.leftovers(later_ns)) == []
    path = put(root / "v1" / f"{build_entry().key}.lock", b"")
    (leftover,) = store.leftovers(later_ns)
    with store.single_flight(build_entry().key, 10):
        assert not store.remove_leftover(leftover)
    put(path, b"")
    assert store.remove_leftover(leftover) and not path.exists()
