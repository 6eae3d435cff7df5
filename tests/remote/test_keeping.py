"""Pins and uses of a store: what an eviction leaves alone."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from gpucache.errors import RemoteError
from gpucache.remote import keeping
from gpucache.remote.keeping import mark_of, note_use, pin, read_keeping
from gpucache.remote.objects import open_objects
from tests.benchmarks.large_cache import make_cache
from tests.remote.fleet import Fleet

_DAY_S = 24 * 3600
_NAMES = {"one": "folder-0/kernel-0.cu", "two": "folder-1/kernel-1.cu"}


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    make_cache(tmp_path / "maker", 2, 1)
    settings = {**fleet.signing(), "GPUCACHE_REMOTE": ""}
    for words in (("one", "--pin", "kept"), ()):
        named = [_NAMES.get(word, word) for word in words]
        assert fleet.gpucache("maker", "push", fleet.store, *named, **settings).returncode == 0
    return fleet


def _programs(fleet: Fleet) -> list[str]:
    done = fleet.gpucache("any", "--json", "inspect", fleet.store, "--list", **fleet.trusting())
    return sorted(one["program"] for one in json.loads(done.stdout)["outcomes"])


def test_evict_leaves_what_is_pinned(fleet: Fleet) -> None:
    """Until the pin is moved to other entries; a pinned one is no failure of the command."""
    done = fleet.gpucache("any", "--json", "evict", fleet.store, "--all", "--yes")
    assert (done.returncode, _programs(fleet)) == (0, [_NAMES["one"]])
    shown = json.loads(fleet.gpucache("any", "--json", "inspect", fleet.store, "--pins").stdout)
    assert [(one["pin"], one["cache"], one["entries"]) for one in shown["outcomes"]] == [
        ("kept", "gpucache", 1)
    ]
    moved = fleet.gpucache("maker", "push", fleet.store, _NAMES["two"], "--pin", "kept", **fleet.signing())
    assert moved.returncode == 0
    assert fleet.gpucache("any", "evict", fleet.store, "--all", "--yes").returncode == 0
    assert _programs(fleet) == [_NAMES["two"]]


def test_a_pin_that_cannot_be_written_leaves_the_answer_of_the_push(fleet: Fleet) -> None:
    """The entries are in the store."""
    shutil.rmtree(fleet.store / "pins")
    (fleet.store / "pins").write_text("")
    words = ("--json", "push", fleet.store, "--pin", "kept")
    done = fleet.gpucache("maker", *words, **fleet.signing())
    assert (done.returncode, json.loads(done.stdout)["summary"]["present"]) == (5, 2)
    assert "pins is not a directory" in done.stderr


def test_evict_by_age_goes_by_what_pulls_note(fleet: Fleet) -> None:
    """A machine that pulls keeps what it has; the rest is as old as its build."""
    pulled = fleet.gpucache("reader", "pull", fleet.store, **fleet.trusting())
    assert pulled.returncode == 0
    assert fleet.gpucache("reader", "pull", fleet.store, **fleet.trusting()).returncode == 0
    uses = list((fleet.store / "uses").iterdir())
    assert len({one.name.partition("-")[2] for one in uses}) == 1  # those of a day write it together
    marks = uses[0].read_text().split()
    used_s = time.time() - 60 * _DAY_S
    for one in uses:  # two, if midnight came between the pulls
        os.utime(one, (used_s, used_s))
    store = open_objects(str(fleet.store))
    assert {when // 10**9 for when in read_keeping(store, frozenset(marks)).used_ns.values()} == {int(used_s)}
    for days, left in ((90, 2), (30, 1)):  # one is pinned
        assert fleet.gpucache("any", "evict", fleet.store, "--older-than", f"{days}d").returncode == 0
        assert len(_programs(fleet)) == left


def test_a_pull_that_may_not_write_notes_nothing() -> None:
    """It is no failure."""

    class _Refusing:
        writes = served = True

        def create(self, _: object) -> object:
            raise RemoteError("it refuses; ask")

    note_use(_Refusing(), ["a" * 32])  # type: ignore[arg-type]


def test_uses_of_long_ago_go_with_an_eviction(fleet: Fleet) -> None:
    """By the store's own dates."""
    store = open_objects(str(fleet.store))
    for number in range(2):
        note_use(store, [f"{number:032x}"])
    old, new = sorted((fleet.store / "uses").iterdir())
    os.utime(old, (1e9, 1e9))
    assert len(read_keeping(store, frozenset()).outdated) == 1
    fleet.gpucache("any", "evict", fleet.store, "--program", _NAMES["two"])
    assert list((fleet.store / "uses").iterdir()) == [new]


def test_a_clock_that_is_ahead_makes_no_use_old(tmp_path: Path) -> None:
    """Neither that of a machine that pulls, nor its file system's."""
    store = open_objects(str(tmp_path / "store"))
    for number in range(2):
        note_use(store, [f"{number:032x}"])
    ahead, _ = sorted((tmp_path / "store" / "uses").iterdir())
    later_s = time.time() + 1000 * _DAY_S
    os.utime(ahead, (later_s, later_s))
    found = read_keeping(store, frozenset(f"{number:032x}" for number in range(2)))
    assert found.outdated == () and len(found.used_ns) == 2
    assert max(found.used_ns.values()) <= time.time_ns()


@pytest.mark.parametrize("data", [b"", b"\xff\n\n \x00", b"x" * 100])
def test_any_bytes_may_be_in_a_pin(tmp_path: Path, data: bytes) -> None:
    """They pin nothing that exists."""
    store = open_objects(str(tmp_path / "store"))
    pin(store, "a", ["b" * 32])
    (tmp_path / "store" / "pins" / "a").write_bytes(data)
    assert not read_keeping(store, frozenset(["b" * 32])).pinned("b" * 32)


def test_rows_stay_with_their_entries() -> None:
    """They have no date of their own."""
    assert mark_of("gpucache-rows", f"{'ab' * 32}-row") == mark_of("gpucache", "ab" * 32)


def test_a_pin_larger_than_any_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text could have many more words than a pin has entries."""
    store, mark = open_objects(str(tmp_path / "store")), mark_of("cupy", "key")
    pin(store, "small", [mark])
    pin(store, "large", [mark, "x"])
    monkeypatch.setattr(keeping, "_LARGEST", len(mark))
    assert read_keeping(store, {mark}).pins.keys() == {"small"}
