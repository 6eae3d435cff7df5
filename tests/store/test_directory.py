"""Our cache in a directory: modes, publishing, recency and removal."""

import os
import stat
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.evict import Kept
from gpucache.errors import CacheUnusableError
from gpucache.model import CacheKey, Entry
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import false_claims
from gpucache.store.interface import Absent, Event, Found
from gpucache.store.root_folder import RECENCY_NS
from tests.store.conftest import build_entry, entry_path, left

HOUR_NS = 3600 * 10**9


@pytest.fixture(params=[0o000, 0o777], ids=["umask-000", "umask-777"])
def any_umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def _modes(root: Path) -> set[tuple[bool, int]]:
    """Whether it is a directory, and its mode, for the root and everything below it."""
    places = [root, *root.rglob("*")]
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in places}


def _fill(store: DirectoryStore, entry: Entry) -> None:
    store.publish(entry)
    store.history.record(entry.head.program, Event(1, "built", entry.key.hex, entry.head.target))
    store.journal({"verdict": "never-built"})


@pytest.mark.usefixtures("any_umask")
def test_private_modes_under_any_umask(tmp_path: Path) -> None:
    """Everything that is made, missing parents of the root included, is private to its owner."""
    _fill(DirectoryStore(tmp_path / "new" / "cache", writable=True), build_entry())
    assert _modes(tmp_path / "new") == {(True, 0o700), (False, 0o600)}


@pytest.mark.usefixtures("any_umask")
def test_shared_modes_under_any_umask(root: Path) -> None:
    """A shared root can be read, and not written, by everybody."""
    _fill(DirectoryStore(root, writable=True, shared=True), build_entry())
    assert _modes(root) == {(True, 0o755), (False, 0o644)}


def test_tag_marks_only_a_private_root_of_our_own(tmp_path: Path) -> None:
    """A new private root has the cache tag; a shared one or a directory with other files does not."""
    (tmp_path / "used").mkdir(0o700)
    (tmp_path / "used" / "thesis.tex").write_text("")
    DirectoryStore(tmp_path / "private", writable=True).publish(build_entry())
    DirectoryStore(tmp_path / "shared", writable=True, shared=True).publish(build_entry())
    DirectoryStore(tmp_path / "used", writable=True).publish(build_entry())
    tag = (tmp_path / "private" / "CACHEDIR.TAG").read_bytes()
    assert tag.startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    assert not (tmp_path / "shared" / "CACHEDIR.TAG").exists()
    assert not (tmp_path / "used" / "CACHEDIR.TAG").exists()


def test_reading_makes_no_root(root: Path, store: DirectoryStore) -> None:
    """Reading a missing cache finds nothing and leaves nothing."""
    key = build_entry().key
    assert store.get(key) == Absent()
    assert not store.contains(key) and store.detail(key) is None and store.find("ab") == []
    assert list(store.scan()) == [] and list(store.leftovers(time.time_ns())) == []
    assert not root.exists()


def test_read_only_store_refuses_to_publish(root: Path) -> None:
    """A read-only store reports that instead of trying."""
    with pytest.raises(CacheUnusableError, match="read-only"):
        DirectoryStore(root, writable=False).publish(build_entry())
    assert not root.exists()


def test_publish_leaves_only_the_entry(root: Path, store: DirectoryStore) -> None:
    """A published entry is in its place with the returned size, and nothing in tmp."""
    size_bytes = store.publish(build_entry())
    assert entry_path(store, build_entry()).stat().st_size == size_bytes
    assert left(root) == []


def test_a_published_entry_survives_a_power_cut(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are synced before it gets its name, and then the directory of that name."""
    path, synced = entry_path(store, build_entry()), list[tuple[bool, bool]]()
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), path.exists()))
    )
    store.publish(build_entry())
    assert synced == [(False, False), (True, True)]


def test_entries_that_are_published_together_are_synced_together(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files, but one that was removed meanwhile, then their directories; the next one at once again."""
    synced = list[bool]()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    with store.settling():
        for seed in "abc":
            store.publish(build_entry(seed))
    entry_path(store, build_entry("a")).unlink()
    assert synced == []
    store.sync_all()
    assert synced == [False, False, True, True, True]
    store.sync_all()
    store.publish(build_entry("d"))
    assert synced[5:] == [False, True]


def test_an_entry_that_is_put_while_another_thread_syncs_is_synced(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that ends the command or the sixteenth build."""
    put, synced = store._put, list[CacheKey]()

    def put_and_sync(*given: Any, durable: bool) -> None:
        put(*given, durable=durable)
        store.sync_all()

    monkeypatch.setattr(store, "_put", put_and_sync)
    monkeypatch.setattr(store, "sync", synced.extend)
    with store.settling():
        store.publish(build_entry())
    assert synced == [build_entry().key]


def test_detail_contains_and_find(store: DirectoryStore) -> None:
    """An entry's detail and its key's beginning lead to it."""
    entry = build_entry()
    store.publish(entry)
    assert store.detail(entry.key) == entry.detail
    assert store.contains(entry.key)
    assert store.find(entry.key.hex[:2]) == store.find(entry.key.hex) == [entry.key]
    assert store.find(entry.key.hex[:1]) == store.find("..") == store.find("") == []
    assert store.find(entry.key.hex[:5] + ("0" if entry.key.hex[5] != "0" else "1")) == []


@pytest.mark.parametrize(
    ("age_ns", "writes"),
    [(None, True), (-RECENCY_NS // 2, False), (2 * RECENCY_NS, True), (-240 * HOUR_NS, True)],
)
def test_a_hit_writes_down_the_use(store: DirectoryStore, age_ns: int | None, writes: bool) -> None:
    """At the first one, and if the last is a minute ago or in the future; until then it is the creation."""
    entry = build_entry()
    store.publish(entry)
    path = entry_path(store, entry)
    assert path.stat().st_mtime_ns == entry.head.created_ns
    used_ns = entry.head.created_ns if age_ns is None else time.time_ns() - age_ns
    os.utime(path, ns=(used_ns, used_ns))
    used_ns = path.stat().st_mtime_ns
    store.get(entry.key)
    now_ns = path.stat().st_mtime_ns
    assert (now_ns != used_ns) is writes and (abs(now_ns - time.time_ns()) < HOUR_NS or not writes)


def test_only_hits_of_a_writable_store_are_uses(root: Path, store: DirectoryStore) -> None:
    """Scanning, checking, reading details, a read-only store, and other reading leave the last use alone."""
    entry = build_entry()
    store.publish(entry)
    (scanned,) = store.scan()
    assert store.check(scanned) == entry
    store.detail(entry.key)
    assert isinstance(DirectoryStore(root, writable=False).get(entry.key), Found)
    assert isinstance(store.get(entry.key, use=False), Found)
    assert entry_path(store, entry).stat().st_mtime_ns == entry.head.created_ns


def test_removals_together_are_recorded_program_by_program(store: DirectoryStore) -> None:
    """Each program's history has all its removals in order, and not those of an entry that stays."""
    for seed, program in (("a", "one"), ("b", "other"), ("c", "one"), ("d", "one")):
        entry = build_entry(seed)
        store.publish(entry._replace(head=entry.head._replace(program=program)))
    going = sorted(store.scan(), key=lambda one: one.key)
    stays = next(one for one in going if one.head and one.head.program == "one")
    store.get(stays.key)
    assert [kept == Kept() for kept in store.remove_together(going, "--all")] == [
        one is stays for one in going
    ]
    for program in ("one", "other"):
        own = [one.key.hex for one in going if one is not stays and one.head and one.head.program == program]
        assert [(event.key, event.why) for event in store.history.events(program)] == [
            (key, "--all") for key in own
        ]


def test_removals_that_are_broken_off_are_recorded(store: DirectoryStore) -> None:
    """Removals before an interrupt are recorded, and the other entries are still there."""
    for seed in "abc":
        store.publish(build_entry(seed))
    removals = store.remove_together(list(store.scan()), "--all")
    assert next(removals) is None
    assert isinstance(removals, Generator)
    removals.close()
    (left_one, left_other) = store.scan()
    (gone,) = {f"program-{seed}" for seed in "abc"} - {
        one.head.program for one in (left_one, left_other) if one.head
    }
    assert [event.what for event in store.history.events(gone)] == ["evicted"]


def test_a_whole_scan_reads_what_a_check_does(store: DirectoryStore) -> None:
    """Sound entries come with their false claims; damaged and misplaced ones as in a scan, without any."""
    for seed in "abcd":
        store.publish(build_entry(seed))
    damaged, cut, moved = (entry_path(store, build_entry(seed)) for seed in "bcd")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    cut.write_bytes(cut.read_bytes()[:-1])
    moved.rename(moved.with_name(f"{moved.name[:2]}{'0' * 62}.gpc"))
    found = list(store.scan_whole())
    assert [scanned for scanned, _ in found] == list(store.scan())
    for scanned, claims in found:
        answer = store.check(scanned)
        assert claims == (tuple(false_claims(answer)) if isinstance(answer, Entry) else None)
    assert sum(claims is not None for _, claims in found) == 1


def test_nothing_outside_the_root_is_removed(tmp_path: Path, store: DirectoryStore) -> None:
    """A path that leads out of the cache is refused."""
    store.publish(build_entry())
    (scanned,) = store.scan()
    outside = tmp_path / "outside.gpc"
    entry_path(store, build_entry()).rename(outside)
    for path in (outside, store.root / "v1" / "entries" / ".." / ".." / ".." / "outside.gpc"):
        assert store.remove(scanned._replace(folder=path.parent, name=path.name), "old") is not None
    assert outside.exists()
