"""Removals from a store that other machines push to at the same time."""

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpucache.answers.transfer import Unsound
from gpucache.engine.verify import repaired, run_verify
from gpucache.errors import RemoteError
from gpucache.remote import push as pushing
from gpucache.remote import removal
from gpucache.remote.catalogue import Catalogue, lacking, read_catalogue, read_index, write_catalogue
from gpucache.remote.contents import Contents, stored_caches
from gpucache.remote.objects import NO_FILES
from gpucache.remote.removal import FOLDER, SIGN, mark, marked, read_marks, sign, sweep, withdraw
from gpucache.remote.signing import load_signing_key, make_pair, read_trusted
from tests.remote.test_objects import ONE, TWO
from tests.remote.test_push_pull import SYSTEMS, Fleet, _fleet, _results

__all__ = ["_fleet"]
_HOUR_NS = 3600 * 10**9
every_system = pytest.mark.parametrize("system", SYSTEMS)


def _age(fleet: Fleet, hours: float, pattern: str = "*") -> None:
    """Let marks be so much older, by the store's own dates."""
    for path in (fleet.place / "store" / FOLDER).glob(pattern):
        os.utime(path, ns=(path.stat().st_mtime_ns - int(hours * _HOUR_NS),) * 2)


def _evict_all(fleet: Fleet) -> str:
    contents = Contents(fleet.store, fleet.trusted)
    contents.removed |= contents.catalogue.records.keys()
    return contents.finish()


def _names(fleet: Fleet) -> set[str]:
    return {one.name for one in fleet.store.listed("")}


def _marked(fleet: Fleet, *names: str) -> None:
    sign(fleet.store)
    list(fleet.store.create((name, b"") for name in names))
    mark(fleet.store, names)


def test_nothing_is_removed_in_a_place_that_no_push_has_signed(fleet: Fleet) -> None:
    """Objects of the right names may be another program's; the message says what is missing."""
    list(fleet.store.create([(ONE, b"")]))
    with pytest.raises(RemoteError, match=SIGN):
        mark(fleet.store, [ONE])
    assert _names(fleet) == {ONE}


def test_marks_are_bounded_in_bytes(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of a store could else fill the memory of each reader with links to one file."""
    _marked(fleet, ONE)
    _marked(fleet, TWO)
    assert marked(read_marks(fleet.store)) == {ONE, TWO}
    monkeypatch.setattr(removal, "_MOST_TOGETHER", len(ONE) + len(TWO) - 1)
    with pytest.raises(RemoteError, match=f"remove some of {FOLDER}"):
        read_catalogue(fleet.store, fleet.trusted)


def test_a_marked_object_goes_with_a_run_an_hour_later(fleet: Fleet) -> None:
    """Not before, and not if a record names it by then; the mark goes with it."""
    _marked(fleet, ONE, TWO)
    sweep(fleet.store, frozenset)
    assert {ONE, TWO} < _names(fleet)
    _age(fleet, 1.01)
    sweep(fleet.store, lambda: {TWO})
    assert _names(fleet) == {SIGN, TWO}


def test_the_clock_of_a_machine_says_nothing_about_a_mark(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the dates of the store count: two days ahead removes nothing."""
    _marked(fleet, ONE)
    later = time.time_ns() + 48 * _HOUR_NS
    monkeypatch.setattr(time, "time_ns", lambda: later)
    monkeypatch.setattr(time, "time", lambda: later / 1e9)
    sweep(fleet.store, frozenset)
    assert ONE in _names(fleet)


def test_a_run_that_was_killed_leaves_marks_to_the_next(fleet: Fleet) -> None:
    """Of its own mark nothing can be taken out, and it goes after an hour."""
    _marked(fleet, ONE)
    _age(fleet, 1.01)

    def killed() -> frozenset[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(fleet.store, killed)
    assert withdraw(fleet.store, {ONE}) == {ONE}
    _age(fleet, 1.01)
    sweep(fleet.store, frozenset)
    assert _names(fleet) == {SIGN}


def test_names_are_taken_out_of_young_marks_alone(fleet: Fleet) -> None:
    """The rest stays marked; of an old mark it is told, as a run may be removing its objects."""
    _marked(fleet, ONE, TWO)
    assert withdraw(fleet.store, {ONE}) == frozenset()
    assert marked(read_marks(fleet.store)) == {TWO}
    _age(fleet, 0.9)
    assert withdraw(fleet.store, {TWO}) == {TWO}
    assert marked(read_marks(fleet.store)) == {TWO}


class _Between:
    """A store on which another machine does something before the first catalogue is written."""

    def __init__(self, fleet: Fleet, action: Callable[[], object]) -> None:
        self._store = fleet.store
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, objects: Any, files: Any = NO_FILES) -> Any:
        done = list(self._store.create(objects, files))
        if any(name.startswith(("entries/", "blobs/")) for name, _ in done):
            action, self._action = self._action, lambda: None
            action()
        return iter(done)


class _Late(_Between):
    """A store on which another machine does something after a run has read an old mark."""

    def create(self, objects: Any, files: Any = NO_FILES) -> Any:
        sent = list(objects)
        if sent[0][0].endswith("-taken"):
            action, self._action = self._action, lambda: None
            action()
        return self._store.create(sent, files)


def _push(fleet: Fleet, system: str, action: Callable[[], object]) -> list[str]:
    cache = fleet.cache("a", system)
    store: Any = _Between(fleet, action)
    outcomes = pushing.push(
        [(cache, list(cache.scan()))],
        store,
        key=fleet.key,
        trusted=fleet.trusted,
        sources=True,
        dry_run=False,
        progress=lambda *_: None,
    )
    return _results(list(outcomes))


def _repair_as_leftovers(fleet: Fleet) -> None:
    """As a repair that finds the objects of a push before its catalogue, with its dates in the past."""
    mark(fleet.store, [name for name in _names(fleet) if name.startswith(("entries/", "blobs/"))])


@every_system
def test_a_repair_beside_a_push_loses_nothing_that_it_reports(fleet: Fleet, system: str) -> None:
    """Objects that were marked before the catalogue names them are taken out of the mark."""
    fleet.make("a", system)
    sign(fleet.store)
    assert _push(fleet, system, lambda: _repair_as_leftovers(fleet)) == ["sent"] * 3
    assert not marked(read_marks(fleet.store))
    _age(fleet, 1.01)
    fleet.push(key=fleet.key)
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3


@every_system
def test_what_a_run_may_be_removing_is_not_reported_as_sent(fleet: Fleet, system: str) -> None:
    """The next push sends it."""
    fleet.make("a", system)
    sign(fleet.store)

    def removing() -> None:
        _repair_as_leftovers(fleet)
        _age(fleet, 0.9)

    assert _push(fleet, system, removing) == ["failed"] * 3


def test_a_run_that_is_late_removes_nothing_that_a_push_reports(fleet: Fleet) -> None:
    """Another run acted on the same mark meanwhile, and then a push sent one of its objects again."""
    _marked(fleet, ONE)
    _age(fleet, 1.01)
    lost: list[frozenset[str]] = []

    def named_before_the_push() -> frozenset[str]:
        list(fleet.store.create([(ONE, b"new")]))
        lost.append(withdraw(fleet.store, {ONE}))
        return frozenset()

    late: Any = _Late(fleet, lambda: sweep(fleet.store, frozenset))
    sweep(late, named_before_the_push)
    assert ONE not in _names(fleet) and lost == [{ONE}]
    assert _names(fleet) == {SIGN}


@every_system
def test_an_eviction_beside_a_push_loses_nothing_that_it_reports(fleet: Fleet, system: str) -> None:
    """The push began before the eviction, finds every object there, and names them afterwards."""
    fleet.push(fleet.make("a", system), key=fleet.key)
    for path in (fleet.place / "store" / "catalogues").iterdir():
        path.unlink()
    if system == "gpucache":
        shutil.rmtree(fleet.place / "store" / "entries")
    assert _push(fleet, system, lambda: _evict_all(fleet)) == ["sent"] * 3
    assert read_catalogue(fleet.store, fleet.trusted).named.isdisjoint(marked(read_marks(fleet.store)))
    _age(fleet, 1.01)
    fleet.push(key=fleet.key)
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3


def test_a_push_at_its_end_has_seen_the_objects(fleet: Fleet) -> None:
    """Objects that vanished meanwhile, as by a bucket's lifecycle, are not reported as sent."""
    fleet.make("a", "gpucache")
    gone = fleet.place / "store" / "entries"
    assert _push(fleet, "gpucache", lambda: shutil.rmtree(gone)) == ["failed"] * 3
    assert _push(fleet, "gpucache", lambda: None) == ["sent"] * 3


@every_system
def test_an_object_that_a_store_lost_is_sent_again(fleet: Fleet, system: str) -> None:
    """The catalogue names its entry, and pull reports the damage until then."""
    cache = fleet.make("a", system)
    fleet.push(cache, key=fleet.key)
    kind = "entries" if system == "gpucache" else "blobs"
    next(path for path in sorted((fleet.place / "store" / kind).rglob("*")) if path.is_file()).unlink()
    assert "damaged" in _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted))
    assert "sent" in _results(fleet.push(cache, key=fleet.key))
    assert "damaged" not in _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted))


@every_system
def test_an_entry_that_was_evicted_can_be_sent_again_at_once(fleet: Fleet, system: str) -> None:
    """And stays, whatever runs later."""
    cache = fleet.make("a", system)
    fleet.push(cache, key=fleet.key)
    assert "marked" in _evict_all(fleet)
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == []
    assert _results(fleet.push(cache, key=fleet.key)) == ["sent"] * 3
    _age(fleet, 1.01)
    fleet.push(key=fleet.key)
    assert _results(fleet.pull(fleet.cache("b", system), trusted=fleet.trusted)) == ["pulled"] * 3


def test_an_eviction_without_a_key_leaves_readers_of_a_web_server_the_rest(fleet: Fleet) -> None:
    """The index names the catalogue without the entries, and that of before is still there for an hour."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    old = read_index(fleet.store)
    contents = Contents(fleet.store, read_trusted(""))
    contents.removed.add(next(iter(contents.catalogue.records)))
    contents.finish()
    new = read_index(fleet.store)
    assert old and new and old.catalogues != new.catalogues
    assert {*old.catalogues, *new.catalogues} < _names(fleet)
    assert len(read_catalogue(fleet.store, fleet.trusted).records) == 2


def test_an_index_has_the_entries_and_the_keys_of_all_who_push(fleet: Fleet) -> None:
    """A second signer takes nothing from the readers who trust the first."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    make_pair(fleet.place / "other")
    other = load_signing_key(fleet.place / "other")
    fleet.push(fleet.make("b", "triton"), key=other)
    index = read_index(fleet.store)
    assert index and index.signers == {fleet.key.public.id, other.public.id}
    assert len(index.catalogues) == 2


@pytest.mark.parametrize("name", ["entries/0f/Thumbs.db", "blobs/sha256/" + "ab" * 32, "catalogues/x", "Q"])
def test_a_stray_name_is_told_and_everything_else_goes_on(fleet: Fleet, name: str) -> None:
    """No verb removes it, however old it is."""
    cache = fleet.make("a", "gpucache")
    fleet.push(cache, key=fleet.key)
    stray = fleet.place / "store" / name
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"x")
    os.utime(stray, ns=(0, 0))
    outcomes = fleet.push(cache, key=fleet.key)
    assert [one.name for one in outcomes if isinstance(one, Unsound)] == [name] * (name != "Q")
    assert not any(one.wrong for one in outcomes if isinstance(one, Unsound))
    assert _results(outcomes).count("present") == 3
    pulled = fleet.pull(fleet.cache("b", "gpucache"), trusted=fleet.trusted)
    assert _results(pulled).count("pulled") == 3
    [stored] = stored_caches(fleet.store, fleet.trusted)
    repaired(stored, list(run_verify(stored, None)))
    assert stray.read_bytes() == b"x"


def test_a_catalogue_has_a_name_that_no_other_gets(fleet: Fleet) -> None:
    """Also with the same records, so that the removal of one takes nothing from the next."""
    fleet.push(fleet.make("a", "cupy"), key=fleet.key)
    found: Catalogue = read_catalogue(fleet.store, fleet.trusted)
    again = write_catalogue(fleet.store, found.records.values())
    assert again.isdisjoint(found.names)
    assert not lacking(fleet.store, found.records.values(), again)
