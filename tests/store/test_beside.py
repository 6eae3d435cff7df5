"""Files next to the entries: counted, bounded, and swept."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.store import history, layout, scan
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.store.conftest import build_entry, put

KEY = 64 * "b"
LEFT = {"tmp": f"1-{16 * 'a'}-{KEY}.gpc", "locks": f"{KEY}.lock", "": f"{KEY}.lock"}


def _event(number: int) -> Event:
    return Event(number, "built", KEY, "cuda:sm_90")


@pytest.fixture(autouse=True)
def own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each program its own history, as in a cache whose first one is full."""
    monkeypatch.setattr(history, "FIRST_CAP", 0)


def _record(store: DirectoryStore, count: int) -> list[Path]:
    """The histories of some programs, the oldest first."""
    found = []
    for number in range(count):
        store.history.record(f"program-{number}", _event(number))
        (path,) = store.root.glob(f"v1/programs/program-{number}-*.jsonl")
        os.utime(path, (number, number))
        found.append(path)
    return found


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(scan, "MINIMUM_AGE_NS", -1)


@pytest.mark.parametrize("place", LEFT)
def test_a_publish_removes_what_killed_writers_left(
    place: str, store: DirectoryStore, aged: Callable[[], None]
) -> None:
    """Files younger than an hour may be in use and stay; later a process that publishes removes them."""
    store.publish(build_entry())
    left = put(store.root / "v1" / place / LEFT[place], b"half")
    stranger = put(left.with_name("draft.txt"), b"a thesis")
    DirectoryStore(store.root, writable=True).publish(build_entry())
    assert left.exists()
    aged()
    DirectoryStore(store.root, writable=True).publish(build_entry())
    assert not left.exists() and stranger.exists()


def test_a_lock_that_is_held_stays(store: DirectoryStore, aged: Callable[[], None]) -> None:
    """However old its file."""
    aged()
    with store.single_flight(build_entry().key, 0) as held:
        store.publish(build_entry())
        assert held and len(list(store.root.glob("v1/*.lock"))) == 1


def test_all_that_is_no_entry_is_counted(store: DirectoryStore) -> None:
    """In allocated blocks, in all our directories; entries and foreign files do not count."""
    store.publish(build_entry())
    assert store.beside_bytes() == 0
    for name in (
        f"tmp/{LEFT['tmp']}",
        f"locks/{LEFT['locks']}",
        f"quarantine/{20 * '0'}-{KEY}.gpc",
        "journal/misses.jsonl",
        "log.jsonl",
        "records.row",
        f"rows/{KEY}.memo",
        f"closures/{KEY}.memo",
        f"missed/{KEY}.json",
        "programs/a-cl-0123abcd.jsonl",
    ):
        before = store.beside_bytes()
        put(store.root / "v1" / name, bytes(8192))
        assert store.beside_bytes() - before >= 8192, name
        before = store.beside_bytes()
        put((store.root / "v1" / name).with_name("thesis.txt"), bytes(8192))
        assert store.beside_bytes() == before


@pytest.mark.parametrize(("limit", "stays"), [(1 << 20, True), (10 << 10, True), (100, False), (0, False)])
def test_a_sweep_for_a_limit_keeps_the_journal_that_is_smaller(
    store: DirectoryStore, limit: int, stays: bool
) -> None:
    """It has the totals of all processes, however little room there is for other records."""
    store.journal({"kind": "totals", "hits": 7})
    store.sweep(limit)
    assert bool(store.journal_records()) is stays


def test_a_sweep_for_a_limit_removes_the_oldest_first(store: DirectoryStore) -> None:
    """Files other than entries may take a quarter of the limit; the entries are not touched."""
    store.publish(build_entry())
    histories = _record(store, 8)
    each = store.beside_bytes() // 8
    swept = store.sweep(4 * 5 * each)
    assert [path.exists() for path in histories] == [False] * 3 + [True] * 5
    assert (*swept, store.beside_bytes()) == (3, 3 * each, 5 * each)
    assert store.contains(build_entry().key)
    assert store.sweep() == scan.Swept(0, 0)


def test_nothing_is_swept_where_nothing_shows_that_a_root_is_ours(root: Path) -> None:
    """Another program's directory may have our names by chance; a read-only store removes nothing."""
    left = put(root / "v1" / "missed" / f"{KEY}.json", b"a thesis")
    root.chmod(0o700)
    assert DirectoryStore(root, writable=True).sweep(0).files == 0 and left.exists()
    DirectoryStore(root, writable=True).history.record("a.cl", _event(1))
    assert DirectoryStore(root, writable=False).sweep(0).files == 0 and left.exists()


def test_a_clock_in_the_future_keeps_nothing_for_ever(store: DirectoryStore) -> None:
    """A file dated in the future is removed too if the limit requires it; one that may be in use is not."""
    store.publish(build_entry())
    lock = store.root / "v1" / "locks" / LEFT["locks"]
    lock.parent.mkdir(0o700, exist_ok=True)
    lock.touch(0o600)
    (history,) = _record(store, 1)
    later_ns = time.time_ns() + 10**18
    os.utime(history, ns=(later_ns, later_ns))
    store.sweep(0)
    assert store.beside_bytes() == 0 and not history.exists() and lock.exists()


def test_what_was_removed_for_a_limit_is_known(store: DirectoryStore) -> None:
    """For each program whose history was removed, by its name; for no other."""
    store.publish(build_entry())
    _record(store, 3)
    before_ns = time.time_ns()
    store.sweep(4 * store.beside_bytes() // 3)
    removed = [store.history.removed(f"program-{number}") for number in range(4)]
    assert [one is not None for one in removed] == [True, True, False, False]
    assert all(one.when_ns >= before_ns and (one.why, one.named) == ("", True) for one in removed if one)


def test_histories_beyond_the_number_are_known_to_be_gone(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of too many, those with the newest events stay, and the others are recorded as removed."""
    monkeypatch.setattr("gpucache.store.history.PROGRAM_CAP", 10)
    monkeypatch.setattr("gpucache.store.history._SELDOM", "")
    _record(store, 10)
    store.history.record("program-0", _event(0))
    store.history.record("program-10", _event(10))
    gone = [number for number in range(11) if not store.history.events(f"program-{number}")]
    assert gone == [1, 2]
    assert [number for number in range(12) if store.history.removed(f"program-{number}")] == gone


def test_a_new_history_rarely_lists_all_others(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in 256 does, by the digest of its program, so that many programs do not cost their square."""
    listings = []
    monkeypatch.setattr(store.history, "_bound", lambda: listings.append(1))
    names = [f"program-{number}" for number in range(300)]
    store.history.record_all((name, [_event(0)]) for name in names)
    assert len(listings) == 1
    for name in names:
        store.history.record(f"other-{name}", _event(0))
    seldom = [one for one in names if "-00" in layout.history_name(f"other-{one}")]
    assert 0 < len(seldom) == len(listings) - 1 < 10


def test_of_more_than_is_kept_the_rest_may_have_been_there(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once names are forgotten, any program may have had a record; the kept names stay exact."""
    monkeypatch.setattr("gpucache.store.history.REMOVED_CAP", 400)
    store.publish(build_entry())
    for number in range(12):
        store.history.record(f"program {number}", _event(number))
        store.sweep(0)
    newest, oldest, never = (store.history.removed(f"program {number}") for number in (11, 0, 99))
    assert newest is not None and newest.named
    assert oldest is not None and not oldest.named and oldest == never
    assert sum(path.stat().st_size for path in (store.root / "v1").glob("removed*.jsonl")) < 800


def test_all_that_lies_beside_the_entries_goes_with_them(store: DirectoryStore) -> None:
    """The rest says which programs there were, with the rule; foreign files stay."""
    store.publish(build_entry())
    _record(store, 2)
    for name in (f"quarantine/{20 * '0'}-{KEY}.gpc", "journal/misses.jsonl", f"closures/{KEY}.memo"):
        put(store.root / "v1" / name, b"x")
    stranger = put(store.root / "v1" / "journal" / "thesis.txt", b"a thesis")
    store.sweep(0, "--all")
    assert store.beside_bytes() == 0
    left = {path.name for path in store.root.rglob("*") if path.is_file()}
    assert left == {"CACHEDIR.TAG", "removed.jsonl", stranger.name, f"{build_entry().key}.gpc"}
    one = store.history.removed("program-1")
    assert one is not None and one.why == "--all"
