"""Histories and the journal: bounded, and readable with any content."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpucache.store import bounded_log
from gpucache.store.bounded_log import LINE_CAP, line_of
from gpucache.store.directory import DirectoryStore
from gpucache.store.history import EVENT_CAP, FILE_CAP, FIRST_CAP
from gpucache.store.interface import Event
from gpucache.store.trust import open_trusted
from tests.store.conftest import left


def _event(number: int, why: str = "") -> Event:
    return Event(number, "built", f"{number:064x}", "cuda:sm_90", why)


def _file(root: Path) -> Path:
    return root / "v1" / "log.jsonl"


def test_events_come_back_in_order(store: DirectoryStore) -> None:
    """A name's events are read oldest first, and under no other name."""
    events = [_event(number, "because") for number in range(3)]
    for event in events:
        store.history.record("saxpy", event)
    assert store.history.events("saxpy") == [event._replace(program="saxpy") for event in events]
    assert store.history.events("other") == []


def test_threads_that_read_at_once_read_each_event_once(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads a log while another one has read it and goes through its lines."""
    store.history.record("saxpy", _event(1))
    begun = list[int]()

    @contextmanager
    def meanwhile(*where: Any) -> Iterator[Any]:
        with open_trusted(*where) as opened:
            yield opened
        begun.append(len(begun))
        if len(begun) == 1:
            store.history.events("saxpy")

    monkeypatch.setattr(bounded_log, "open_trusted", meanwhile)
    assert [len(store.history.events("saxpy")) for _ in range(2)] == [1, 1]


def test_options_of_a_build_are_told_where_they_are_short(store: DirectoryStore) -> None:
    """Options come back one by one; long ones and those that are not texts are left out."""
    short, long = ("-DN=4", "", "-I \udce9"), ("-D" + "X" * 5000,)
    for options in (short, (), long, None):
        store.history.record("saxpy", Event(1, "built", "", "cuda:sm_90", options=options))
    with _file(store.root).open("a") as file:
        file.write('{"program":"saxpy","when_ns":1,"options":[1]}\n')
    assert [event.options for event in store.history.events("saxpy")] == [short, (), None, None, None]


def test_programs_are_listed_by_their_own_names(store: DirectoryStore) -> None:
    """Names come back as given, sorted, and not as their files are called."""
    for name in ("Zeta kernel", "a/b", "caf\udce9"):
        store.history.record(name, _event(1))
    assert store.history.programs() == ["Zeta kernel", "a/b", "caf\udce9"]


def test_history_is_bounded(root: Path, store: DirectoryStore) -> None:
    """However much is recorded, the file stays small and the newest events are kept."""
    for number in range(2000):
        store.history.record("saxpy", _event(number, "x" * 40))
    events = store.history.events("saxpy")
    sizes = [path.stat().st_size for path in (root / "v1" / "programs").iterdir()]
    assert len(sizes) == 1 and max(sizes) <= FILE_CAP + LINE_CAP
    assert 50 < len(events) <= EVENT_CAP
    times = [event.when_ns for event in events]
    assert (times[-1], times) == (1999, sorted(times))
    assert not left(root)
    for number in range(EVENT_CAP + 44):  # of short lines more fit into a file than are reported
        store.history.record("s", Event(number, "built", "", "t"))
    assert [event.when_ns for event in store.history.events("s")] == list(range(44, EVENT_CAP + 44))


def test_events_of_another_process_are_seen(root: Path, store: DirectoryStore) -> None:
    """Also after it has written the file anew, which it bounds."""
    other = DirectoryStore(root, writable=True)
    for number in range(700):
        other.history.record("saxpy", _event(number, "x" * 40))
        if number % 30 == 0:
            assert store.history.events("saxpy") == other.history.events("saxpy")
            assert store.history.events("saxpy")[-1].when_ns == number


def test_the_first_programs_share_one_file(root: Path, store: DirectoryStore) -> None:
    """A small cache has one history; once it is full, each program has its own, which goes on with it."""
    names = [f"program {number}" for number in range(20)]
    for name in names:
        store.history.record(name, _event(1, name))
    first = _file(root)
    while first.stat().st_size < FIRST_CAP:
        store.history.record("large", _event(1, "x" * 500))
    for name in names[:2]:
        store.history.record(name, _event(2, name))
    found = [[event.why for event in store.history.events(name)] for name in names]
    assert found == [[name] * (2 if name in names[:2] else 1) for name in names]
    assert len([*(root / "v1" / "programs").iterdir()]) == 2
    assert store.history.programs() == sorted([*names, "large"])


def test_many_events_at_once_leave_those_of_others(store: DirectoryStore) -> None:
    """An eviction of thousands of entries of one program does not drive out other programs' events."""
    store.history.record("small", _event(1))
    store.history.record_all([("large", (_event(number) for number in range(5000)))])
    assert len(store.history.events("small")) == 1
    assert store.history.events("large")[-1].when_ns == 4999


def test_a_program_whose_first_history_is_removed_is_known(store: DirectoryStore) -> None:
    """It was not never built."""
    store.history.record("small", _event(1))
    store.history.note_all("--all")
    removed = store.history.removed("small")
    assert (removed and removed.why, store.history.removed("other")) == ("--all", None)


def test_garbage_in_a_history_is_skipped(root: Path, store: DirectoryStore) -> None:
    """Only torn, foreign and malformed lines are lost."""
    store.history.record("saxpy", _event(1))
    torn = _file(root).read_bytes()[:30]
    garbage = [torn, b"\xff\xfe", b"[]", b"{}", b"[" * 3000, b'{"program":"saxpy","when_ns":"x"}']
    garbage.append(b'{"program":"saxpy","when_ns":3,"key":"../x"}')
    with _file(root).open("ab") as file:
        file.write(b"\n".join(garbage) + b"\n")
    store.history.record("saxpy", _event(2))
    assert [event.when_ns for event in store.history.events("saxpy")] == [1, 2]


def test_long_texts_are_cut(store: DirectoryStore) -> None:
    """An event with an endless reason is kept with its beginning."""
    store.history.record("saxpy", _event(1, "x" * 100_000))
    (event,) = store.history.events("saxpy")
    assert event.why.startswith("xxx") and len(event.why) < 1000


def test_journal_is_read_newest_first(store: DirectoryStore) -> None:
    """The tail has the requested number of the last records."""
    for number in range(5):
        store.journal({"number": number})
    assert [record["number"] for record in store.journal_tail(3)] == [4, 3, 2]
    assert len(store.journal_tail(100)) == 5
    assert store.journal_tail(0) == []


def test_journal_is_bounded(root: Path, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that outgrows its bound keeps the newer half of its lines, and no other file is left."""
    monkeypatch.setattr(bounded_log, "LOG_CAP", 4000)
    counts = []
    for number in range(310):
        store.journal({"number": number, "text": "x" * 50})
        counts.append(len(store.journal_tail(400)))
        assert counts[-1] >= min(number + 1, 20)
    assert min(counts[60:]) <= 2 + max(counts) // 2
    assert _file(root).stat().st_size <= 4000 and not left(root)
    assert [record["number"] for record in store.journal_tail(20)] == list(range(309, 289, -1))


def test_long_record_loses_items_not_its_form() -> None:
    """A record longer than a line keeps the items that fit, and says that others are missing."""
    line = line_of({"verdict": "key-changed", "fields": ["x" * 100] * 100, "program": "saxpy"})
    assert len(line) <= LINE_CAP and line.count(b"\n") == 1
    assert json.loads(line) == {"truncated": True, "verdict": "key-changed", "program": "saxpy"}


def test_values_json_does_not_know_become_text(store: DirectoryStore, tmp_path: Path) -> None:
    """A path in a record is written as text instead of failing the program."""
    store.journal({"place": tmp_path})
    assert store.journal_tail(1) == [{"place": str(tmp_path)}]


def test_read_only_store_writes_nothing(root: Path) -> None:
    """A read-only store does not create its root for history or journal."""
    store = DirectoryStore(root, writable=False)
    store.history.record("saxpy", _event(1))
    store.journal({"number": 1})
    assert not root.exists()


def test_writing_where_nothing_can_be_written_is_silent(tmp_path: Path) -> None:
    """A root that cannot be used loses its records, and nothing is raised."""
    (tmp_path / "file").write_text("")
    store = DirectoryStore(tmp_path / "file", writable=True)
    store.history.record("saxpy", _event(1))
    store.journal({"number": 1})
    assert (
        store.history.events("saxpy") == [] and store.journal_tail(5) == [] and store.history.programs() == []
    )
