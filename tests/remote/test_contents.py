"""A store inspected, verified, repaired and bounded like any other cache."""

import os
import time
from collections.abc import Sequence
from hashlib import sha256

import pytest
from msgspec.structs import replace

from gpucache.answers.evict import EvictSummary
from gpucache.caches.interface import Cache
from gpucache.caches.portable import OWN_MODE, PortableEntry, PortableFile
from gpucache.engine.evict import Limits, plan_eviction
from gpucache.engine.selection import Opened
from gpucache.engine.verify import repaired
from gpucache.remote.catalogue import blob_name, objects_of, read_catalogue, write_catalogue
from gpucache.remote.contents import StoredCache, stored_caches
from gpucache.remote.records import Signed, parse_line, record_of, signed
from gpucache.remote.removal import SIGN
from gpucache.remote.signing import TrustedKeys
from gpucache.settings import read_settings
from tests.remote.test_push_pull import Fleet, _fleet, _results, first

__all__ = ["_fleet"]
_SYSTEMS = ("cupy", "gpucache", "triton")


@pytest.fixture(name="filled")
def _filled(fleet: Fleet) -> Fleet:
    fleet.push(*(fleet.make("a", system) for system in _SYSTEMS), key=fleet.key)
    return fleet


def _caches(fleet: Fleet) -> Sequence[Cache]:
    return stored_caches(fleet.store, fleet.trusted)


def _evict(fleet: Fleet, limits: Limits) -> EvictSummary:
    opened = Opened(read_settings({"GPUCACHE_DIR": str(fleet.place)}), tuple(_caches(fleet)))
    eviction = plan_eviction(opened, limits, lambda _: (), time.time_ns(), heads=True)
    summary = EvictSummary()
    list(eviction.run(summary, []))
    return summary


def _objects(fleet: Fleet) -> set[str]:
    some = (one.name for one in fleet.store.listed("") if one.name not in ("index", SIGN))
    return {name for name in some if not name.startswith("indexes/")}


def _an_hour_later(fleet: Fleet) -> None:
    """Let a run find the marks old, and remove what they name."""
    for path in (fleet.place / "store" / "marks").iterdir():
        os.utime(path, ns=(path.stat().st_mtime_ns - 3601 * 10**9,) * 2)
    fleet.push(key=fleet.key)


def test_a_store_is_a_cache_for_each_system(filled: Fleet) -> None:
    """Its entries are the pushed ones, with the sizes of their files."""
    caches = _caches(filled)
    assert [cache.name for cache in caches] == list(_SYSTEMS)
    for cache in caches:
        assert {one.key for one in cache.scan()} == {one.key for one in filled.cache("a", cache.name).scan()}


def test_a_sound_store_has_no_findings(filled: Fleet) -> None:
    """Every record is trusted, and every byte matches its record."""
    for cache in _caches(filled):
        assert isinstance(cache, StoredCache)
        assert [len(checked.findings) for _, checked in cache.checked()] == [0, 0, 0]
        assert not list(cache.leftovers())


def test_damage_is_found_repaired_and_pushed_again(filled: Fleet) -> None:
    """A repair removes the whole entry from the store, so that the next push sends it again."""
    damaged = next(path for path in (filled.place / "store" / "blobs").rglob("*") if path.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    wrong = [
        (cache, checked, entry)
        for cache in _caches(filled)
        if isinstance(cache, StoredCache)
        for entry, checked in cache.checked()
        if checked.findings
    ]
    assert wrong
    for stored in {cache.name: cache for cache, *_ in wrong}.values():
        mine = [(checked, entry) for one, checked, entry in wrong if one is stored]
        assert all(one.repaired for checked in repaired(stored, mine) for one in checked.findings)
    for cache in _caches(filled):
        assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    caches = [filled.cache("a", system) for system in _SYSTEMS]
    assert _results(filled.push(*caches, key=filled.key)).count("sent") == len(wrong)


def test_what_no_trusted_key_signed_is_told_and_stays(filled: Fleet) -> None:
    """Many machines share the store; a signer that one does not trust may be another's."""
    [cache, *_] = stored_caches(filled.store, TrustedKeys({}))
    entry = first(cache)
    checked = cache.check(entry)
    assert [one.kind.value for one in checked.findings] == ["untrusted"]
    assert not cache.repair(checked, entry).findings[0].repaired
    assert _results(filled.pull(filled.cache("b", "cupy"), trusted=filled.trusted)) == ["pulled"] * 3


def _row(filled: Fleet, key: str) -> Signed:
    """A row of an entry, in the store."""
    file = PortableFile("row", key.encode(), OWN_MODE)
    list(filled.store.create([(blob_name(sha256(file.data).hexdigest()), file.data)]))
    made = signed(record_of(PortableEntry("gpucache-rows", f"{key}-row", (file,))), filled.key)
    write_catalogue(filled.store, [made], filled.key)
    return made


def _own(filled: Fleet) -> StoredCache:
    [stored] = [cache for cache in _caches(filled) if cache.name == "gpucache"]
    assert isinstance(stored, StoredCache)
    return stored


def _rows(filled: Fleet) -> set[str]:
    """The keys of the rows in the store."""
    records = read_catalogue(filled.store, filled.trusted).records.values()
    return {one.record.key for one in records if one.record.system == "gpucache-rows"}


def test_an_entry_goes_with_its_rows(filled: Fleet) -> None:
    """Those of other entries stay."""
    own = list(filled.cache("a", "gpucache").scan())
    for one in own:
        _row(filled, one.key)
    _evict(filled, Limits(program=own[0].program))
    left = {one.key for one in _own(filled).scan()}
    assert own[0].key not in left and left
    assert _rows(filled) == {f"{key}-row" for key in left}


def test_rows_are_part_of_our_own_cache(filled: Fleet) -> None:
    """They are checked with it, and neither listed nor counted."""
    own = filled.cache("a", "gpucache")
    key = first(own).key
    row = _row(filled, key)
    filled.store.replace(objects_of(row)[0][0], lambda _: b"")
    assert [cache.name for cache in _caches(filled)] == list(_SYSTEMS)
    stored = _own(filled)
    assert {one.key for one in stored.scan()} == {one.key for one in own.scan()}
    wrong = [(checked, entry) for entry, checked in stored.checked() if checked.findings]
    assert [(checked.entry, checked.counts) for checked, _ in wrong] == [(f"{key}-row", False)]
    repaired(stored, wrong)
    assert not _rows(filled) and {one.key for one in own.scan()} == {one.key for one in _own(filled).scan()}


def test_an_eviction_removes_entries_with_their_files(filled: Fleet) -> None:
    """The remaining entries are whole, and sound when pulled."""
    summary = _evict(filled, Limits(program=first(filled.cache("a", "cupy")).program))
    assert summary.removed
    left = sum(len(list(cache.scan())) for cache in _caches(filled))
    assert left == 9 - summary.removed
    for cache in _caches(filled):
        assert not [one for entry in cache.scan() for one in cache.check(entry).findings]


def test_evicting_everything_leaves_no_object(filled: Fleet) -> None:
    """They are gone for every reader at once, and the files an hour later: a push may be sending the same."""
    before = _objects(filled)
    assert _evict(filled, Limits(everything=True)).removed == 9
    assert before < _objects(filled)
    assert not [one for cache in _caches(filled) for one in cache.scan()]
    filled.push(key=filled.key)
    assert before < _objects(filled)
    _an_hour_later(filled)
    assert _objects(filled) == set()


def test_a_file_that_no_record_names_is_a_leftover_after_a_day(filled: Fleet) -> None:
    """A younger one may belong to a push in progress."""
    list(filled.store.create([("blobs/ab/" + "ab" * 32, b"x")]))
    assert not [one for cache in _caches(filled) for one in cache.leftovers()]
    path = filled.place / "store" / "blobs" / "ab" / ("ab" * 32)
    os.utime(path, (1, 1))
    [(cache, found)] = [(cache, one) for cache in _caches(filled) for one in cache.leftovers()]
    assert found.findings[0].kind.value == "leftover"
    [fixed] = repaired(cache, [(found, None)])
    assert fixed.findings[0].repaired and path.exists()
    _an_hour_later(filled)
    assert not path.exists()


def test_a_push_catalogues_entries_again(filled: Fleet) -> None:
    """Whatever became of the catalogue that named them, such as of a program that was killed."""
    for path in (filled.place / "store" / "catalogues").iterdir():
        path.unlink()
    assert _results(filled.push(filled.cache("a", "gpucache"), key=filled.key)) == ["sent"] * 3
    assert _results(filled.pull(filled.cache("b", "gpucache"), trusted=filled.trusted)) == ["pulled"] * 3


def _repaired(fleet: Fleet) -> None:
    for cache in _caches(fleet):
        assert isinstance(cache, StoredCache)
        repaired(cache, [(checked, entry) for entry, checked in cache.checked()])


def test_a_repair_leaves_the_files_of_other_entries(fleet: Fleet) -> None:
    """Equal files are kept once: a damaged entry is removed with only the files that no other entry has."""
    cache = fleet.make("a", "triton")
    fleet.push(cache, key=fleet.key)
    blobs = [path for path in (fleet.place / "store" / "blobs").rglob("*") if path.is_file()]
    alone = next(path for path in blobs if b"child_paths" in path.read_bytes())
    alone.write_bytes(b"x")
    _repaired(fleet)
    assert _results(fleet.pull(fleet.cache("b", "triton"), trusted=fleet.trusted)) == ["pulled"] * 2
    assert _results(fleet.push(cache, key=fleet.key)).count("sent") == 1
    assert _results(fleet.pull(fleet.cache("b", "triton"), trusted=fleet.trusted)).count("pulled") == 1


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_forged_record_makes_a_repair_remove_nothing(filled: Fleet, mode: int) -> None:
    """Without a key nobody can have others' files removed by forged sizes."""
    (filled.place / "store").chmod(mode)
    folder = filled.place / "store" / "catalogues"
    lines = [parse_line(line) for path in folder.iterdir() for line in path.read_bytes().splitlines()[:-1]]
    forged = b""
    for one in lines:
        files = tuple(replace(file, size_bytes=file.size_bytes // 2) for file in one.record.files)
        forged += Signed(replace(one.record, files=files), one.signer, "A").line
    (folder / sha256(forged).hexdigest()).write_bytes(forged)
    _repaired(filled)
    caches = [filled.cache("b", system) for system in _SYSTEMS]
    assert _results(filled.pull(*caches, trusted=filled.trusted)) == ["pulled"] * 9
