"""Entries that no program reads any more: the evidence for that, and where it is too thin."""

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Stale
from gpucache.engine.staleness import Origins
from gpucache.model import Toolchain

DAY_NS = 86_400 * 10**9
NOW_NS = 100 * DAY_NS
OLD, NEW = (("device name", "D"), ("driver version", "1")), (("device name", "D"), ("driver version", "2"))


def _entry(made_days: int, used_days: int, **facts: object) -> CacheEntry:
    """An entry that was made and last used so many days ago."""
    made, used = NOW_NS - made_days * DAY_NS, NOW_NS - used_days * DAY_NS
    return CacheEntry("triton", "k", "/p", 10, made, used)._replace(**facts)  # type: ignore[arg-type]


def _stale(*entries: CacheEntry, toolchains: tuple[Toolchain, ...] = ()) -> Stale:
    origins = Origins()
    assert list(origins.of(entries)) == list(entries)
    return origins.summary(origins.stale(toolchains, NOW_NS))


@pytest.mark.parametrize(("used_days", "stale"), [(20, 1), (8, 1), (6, 0), (0, 0)])
def test_what_a_missing_reader_left_is_stale_once_a_week_went_by(used_days: int, stale: int) -> None:
    """A use within a week shows a reader that no scan found, such as a container."""
    found = _stale(_entry(30, used_days, gone="Python 3.9"))
    assert (found.entries, found.size_bytes) == (stale, 10 * stale)
    assert (
        found.why
        == (f"Python 3.9 alone reads it and is not on this machine, unused for {used_days} d",) * stale
    )


def test_one_use_keeps_all_that_its_reader_reads() -> None:
    """The reader still exists, so its unused entries are not stale either."""
    assert not _stale(_entry(30, 30, gone="Python 3.9"), _entry(30, 1, gone="Python 3.9")).entries


@pytest.mark.parametrize(
    ("made_days", "used_days", "stale"),
    [(50, 30, True), (50, 19, False), (50, 6, False), (50, 20, False)],
    ids=["before the newer came", "after it came", "within a week", "as it came"],
)
def test_an_older_version_is_stale_where_nothing_of_it_was_used_since_another_came(
    made_days: int, used_days: int, stale: bool
) -> None:
    """Two versions in use side by side are two environments, and both read their own entries."""
    newer = _entry(20, 1, producer="Triton 3.5.0")
    found = _stale(_entry(made_days, used_days, producer="Triton 3.2.0"), newer)
    assert found.entries == stale
    assert all("of Triton 3.2.0" in why and "Triton 3.5.0 came since" in why for why in found.why)


def test_a_version_that_nothing_followed_is_not_stale() -> None:
    """However long it was not used: its owner may be installed in an unknown place."""
    assert not _stale(_entry(90, 90, producer="Warp 1.5.0")).entries


def test_another_owner_is_no_newer_version() -> None:
    """Only versions of one program follow each other."""
    assert not _stale(_entry(90, 90, producer="Numba 0.6"), _entry(20, 1, producer="Triton 3.5.0")).entries


def test_a_changed_driver_makes_stale_at_once() -> None:
    """This machine's own devices are queried, so use elsewhere does not matter."""
    entry = _entry(1, 0, toolchain=OLD, toolchain_identity=("device name",))
    here = Toolchain("other", NEW, ("device name",))
    assert _stale(entry, toolchains=(here,)).why == ("its device has another driver or toolchain now",)
    assert not _stale(entry).entries


def test_drivers_are_asked_about_devices_that_two_toolchains_built_for() -> None:
    """Of one toolchain alone nothing shows that another followed."""
    old, new = (_entry(1, 0, toolchain=one, toolchain_identity=("device name",)) for one in (OLD, NEW))
    origins = Origins()
    list(origins.of([old, old]))
    assert origins.rebuilt() == []
    list(origins.of([new]))
    assert origins.rebuilt() == [old, new]


def test_what_is_never_removed_is_not_promised() -> None:
    """Only entries that evict removes are counted, so that it frees the size it promised."""
    facts = {"gone": "Python 3.9"}
    stays = _entry(30, 30, stays="it is somebody else's", **facts)
    shared = _entry(30, 30, indivisible="others share its file", **facts)
    assert _stale(stays, shared) == Stale()
    assert _stale(stays, _entry(30, 30, **facts)).entries == 1
