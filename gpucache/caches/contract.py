"""Promises of a cache of another system, for the tests of a package that adds one by an entry point.

    from gpucache.caches.contract import PROMISES

    @pytest.mark.parametrize("promise", PROMISES)
    def test_toy_keeps_its_promises(promise, tmp_path):
        promise(SYSTEM, add, tmp_path)

``add(place, number)`` writes the sound entry of a number below a place, which it makes if necessary. Each
promise raises AssertionError if it is broken. Our own systems keep these and more: see ``tests/contracts``.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.answers.verify import Finding
from gpucache.caches.interface import Cache
from gpucache.caches.known_caches import Unusable
from gpucache.caches.places import Places
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError

Add = Callable[[Path, int], object]
_ENTRIES = 3
_OLD_S = 1_600_000_000
"""The age of files in the checks: younger files may still be written by a program."""


def _opened(system: Places, add: Add, folder: Path, entries: int = _ENTRIES) -> Cache:
    place = folder / "cache"
    for number in range(entries):
        add(place, number)
    for path in place.rglob("*"):
        os.utime(path, (_OLD_S, _OLD_S))
    location = Location(system.name, str(place), "--cache", enabled=True)
    try:
        return system.open(location)
    except CacheUnusableError as error:
        return Unusable(location, str(error))


def _all_asked(cache: Cache) -> list[Finding]:
    """Make every call that changes nothing, and return the findings; only gpucache's errors may be raised."""
    cache.location()
    entries = list(cache.scan())
    found = [finding for entry in entries for finding in cache.check(entry).findings]
    for entry in entries:
        for ask in (cache.report, cache.extract):
            with suppress(FormatError):
                ask(entry)
    with suppress(GpucacheError):
        list(cache.explain({}))
    return found + [finding for checked in cache.leftovers() for finding in checked.findings]


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def absent_is_empty(system: Places, add: Add, folder: Path) -> None:
    """A place that does not exist has no entries and no findings, and reading creates nothing."""
    cache = _opened(system, add, folder, entries=0)
    assert not _all_asked(cache) and not list(cache.scan())
    assert not list(folder.iterdir())


def sound_is_sound(system: Places, add: Add, folder: Path) -> None:
    """Every entry is listed under its system's name, has a key of its own, and is without findings."""
    cache = _opened(system, add, folder)
    entries = list(cache.scan())
    assert len({entry.key for entry in entries}) == _ENTRIES
    assert {entry.cache for entry in entries} == {system.name}
    assert not _all_asked(cache)
    assert system.recognises(folder / "cache")


def damage_is_found(system: Places, add: Add, folder: Path) -> None:
    """No call fails for a file that is cut or empty, and an empty one is reported."""
    cache = _opened(system, add, folder)
    for entry in list(cache.scan()):
        for path, content in _files(Path(entry.path)).items() or [(Path(entry.path), b"")]:
            for size in {0, len(content) // 2}:
                os.truncate(path, size)
                os.utime(path, (_OLD_S, _OLD_S))
                found = _all_asked(cache)
                assert size or found, f"{path} is empty, and verify does not say so"


def strangers_stay(system: Places, add: Add, folder: Path) -> None:
    """A directory of other files is not recognised, and nothing of it is removed or repaired."""
    place = folder / "cache"
    (place / "photos").mkdir(parents=True)
    (place / "photos" / "1.jpg").write_bytes(b"mine")
    (place / "diary.txt").write_bytes(b"mine, too")
    before = _files(folder)
    cache = _opened(system, add, folder, entries=0)
    _all_asked(cache)
    for entry in list(cache.scan()):
        cache.repair(cache.check(entry), entry)
        cache.remove(entry, "--all")
    for checked in list(cache.leftovers()):
        cache.repair(checked, None)
    cache.finish_removals()
    assert not system.recognises(place)
    assert _files(folder) == before


def vanishing_is_no_failure(system: Places, add: Add, folder: Path) -> None:
    """An entry that goes after the scan is neither damaged nor an error, and may be removed twice."""
    cache = _opened(system, add, folder)
    entries = list(cache.scan())
    shutil.rmtree(folder / "cache")
    for entry in entries:
        cache.check(entry)
        cache.remove(entry, "--all")
        cache.remove(entry, "--all")


def removal_removes(system: Places, add: Add, folder: Path) -> None:
    """Removed entries are no longer listed; all others are still sound."""
    cache = _opened(system, add, folder)
    first, *others = cache.scan()
    kept = cache.remove(first, "--all")
    cache.finish_removals()
    if kept is None:
        assert {entry.key for entry in cache.scan()} == {entry.key for entry in others}
        assert not _all_asked(cache)


def links_stay(system: Places, add: Add, folder: Path) -> None:
    """If the cache's files are links, nothing that they lead to is removed."""
    cache = _opened(system, add, folder)
    outside = folder / "outside"
    outside.mkdir()
    (outside / "mine").write_bytes(b"mine")
    for path in [path for path in (folder / "cache").rglob("*") if path.is_file()]:
        path.unlink()
        path.symlink_to(outside / "mine")
    _all_asked(cache)
    for entry in list(cache.scan()):
        cache.remove(entry, "--all")
    cache.finish_removals()
    assert (outside / "mine").read_bytes() == b"mine"


PROMISES: tuple[Callable[[Places, Add, Path], None], ...] = (
    absent_is_empty,
    sound_is_sound,
    damage_is_found,
    strangers_stay,
    vanishing_is_no_failure,
    removal_removes,
    links_stay,
)
