"""Entries that no program reads any more: the evidence for that, and where it is too thin."""

from collections.abc import Sequence

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.inspect import Stale
from gpucache.engine.staleness import Origins, origin
from gpucache.model import Toolchain

DAY_NS = 86_400 * 10**9
NOW_NS = 100 * DAY_NS
OLD, NEW = (("device name", "D"), ("driver version", "1")), (("device name", "D"), ("driver version", "2"))


def _entry(made_days: int, used_days: int, **facts: object) -> CacheEntry:
    """An entry that was made and last used so many days ago."""
    used = NOW_NS - used_days * DAY_NS
    made = min(NOW_NS - made_days * DAY_NS, used - 1)
    return CacheEntry("triton", "k", "/p", 10, made, used)._replace(**facts)  # type: ignore[arg-type]


def _stale(*entries: CacheEntry, toolchains: tuple[Toolchain, ...] = ()) -> Stale:
    origins = Origins()
    assert list(origins.of(entries)) == list(entries)
    return origins.summary(origins.stale(toolchains, NOW_NS))


@pytest.mark.parametrize(("used_days", "stale"), [(40, 1), (31, 1), (30, 0), (0, 0)])
def test_what_a_missing_reader_left_is_stale_once_a_month_went_by(used_days: int, stale: int) -> None:
    """A use within 30 days shows a reader that no scan found, such as a container."""
    found = _stale(_entry(50, used_days, gone="Python 3.9"))
    assert (found.entries, found.size_bytes) == (stale, 10 * stale)
    assert (
        found.why
        == (f"Python 3.9 alone reads it and is not on this machine, unused for {used_days} d",) * stale
    )


def test_one_use_keeps_all_that_its_reader_reads() -> None:
    """The reader still exists, so its unused entries are not stale either."""
    assert not _stale(_entry(40, 40, gone="Python 3.9"), _entry(40, 1, gone="Python 3.9")).entries


@pytest.mark.parametrize(
    ("made_days", "used_days", "stale"),
    [(80, 50, True), (80, 39, False), (80, 6, False), (80, 40, False)],
    ids=["before the newer came", "after it came", "within a month", "as it came"],
)
def test_an_older_version_is_stale_where_nothing_of_it_was_used_since_another_came(
    made_days: int, used_days: int, stale: bool
) -> None:
    """Two versions in use side by side are two environments, and both read their own entries."""
    newer = _entry(40, 1, producer="Triton 3.5.0")
    found = _stale(_entry(made_days, used_days, producer="Triton 3.2.0"), newer)
    assert found.entries == stale
    assert all("of Triton 3.2.0" in why and "Triton 3.5.0 came since" in why for why in found.why)


def test_a_version_that_nothing_followed_is_not_stale() -> None:
    """However long it was not used: its owner may be installed in an unknown place."""
    assert not _stale(_entry(90, 90, producer="Warp 1.5.0")).entries


def test_another_owner_is_no_newer_version() -> None:
    """Only versions of one program follow each other."""
    assert not _stale(_entry(90, 90, producer="Numba 0.6"), _entry(20, 1, producer="Triton 3.5.0")).entries


def _built(
    made_days: float, used_days: float, by: tuple[tuple[str, str], ...], **facts: object
) -> CacheEntry:
    """An entry of our own cache, made by a toolchain from a file."""
    made, used = (round(NOW_NS - days * DAY_NS) for days in (made_days, used_days))
    one = CacheEntry(
        "gpucache", f"{made_days}", "/p", 10, made, used, "app.cu", "cuda:sm_90", place="/app.cu"
    )
    return one._replace(toolchain=by, toolchain_identity=("device name",), **facts)  # type: ignore[arg-type]


_MINUTE = 1 / 1440
_STATES: dict[str, tuple[list[CacheEntry], list[int], list[int]]] = {
    "two environments": ([_built(40, 1, OLD), _built(35, 0, NEW)], [], []),
    "one whose newer twin was just made": (
        [_built(40, 32, OLD), _built(9, 1, NEW), _built(0, 0, NEW)], [0], [1],
    ),
    "an upgrade today": ([_built(50, 2, OLD), _built(1, 0, NEW)], [], []),
    "an upgrade 29 days ago": ([_built(50, 45, OLD), _built(29, 0, NEW)], [0], []),
    "an upgrade 40 days ago": ([_built(50, 45, OLD), _built(40, 1, NEW)], [0], [0]),
    "an upgrade that was rolled back": ([_built(50, 0, OLD), _built(40, 38, NEW)], [], []),
    "one that was rolled back at once": ([_built(50, 39.9, OLD), _built(40, 39, NEW)], [], []),
    "two upgrades": (
        [_built(90, 80, OLD), _built(70, 60, (*OLD[:1], ("driver version", "1.5"))), _built(40, 0, NEW)],
        [0, 1], [0, 1],
    ),
    "an upgrade before all were away": ([_built(50, 36, OLD), _built(35.5, 35, NEW)], [], []),
    "an upgrade long before all were away": ([_built(90, 80, OLD), _built(70, 35, NEW)], [0], [0]),
    "another program of the older compiler": (
        [_built(50, 45, OLD), _built(40, 1, NEW), _built(50, 3, OLD, program="other.cu")], [], [0],
    ),
    "another target of the older compiler": (
        [_built(50, 45, OLD), _built(50, 3, (("device name", "E"), *OLD[1:]), target="cuda:sm_80")], [], [],
    ),
    "an edited program": ([_built(2, 1, NEW), _built(0.5, 0.2, NEW)], [], [0]),
    "one that was edited twice": ([_built(3, 2, NEW), _built(1, 0.9, NEW), _built(0.5, 0, NEW)], [], [0, 1]),
    "an edit that was undone": ([_built(3, 0, NEW), _built(1, 0.9, NEW)], [], []),
    "an edited program, whose older state runs on": ([_built(2, 0.1, NEW), _built(0.5, 0.2, NEW)], [], []),
    "parts of one start": ([_built(2, 2, NEW), _built(2 - _MINUTE, 1.9, NEW), _built(3, 3, NEW)], [], [2]),
    "a use that was not recorded": (
        [_built(2, 0.5 + _MINUTE / 2, NEW), _built(0.5, 0.4, NEW), _built(3, 3, NEW)], [], [2],
    ),
    "texts of one name, which no file tells apart": (
        [_built(9, 8, NEW, place=""), _built(7, 6, NEW, place=""), _built(5, 0, NEW)], [], [],
    ),
    "texts of one name, unused for long": (
        [_built(90, 80, NEW, place=""), _built(50, 48, NEW, place=""), _built(40, 0, NEW, place="")],
        [], [0, 1],
    ),
    "a newer one of a clock that was ahead": ([_built(2, 1, NEW), _built(-300, -300, NEW)], [], []),
    "a clock that is ahead now": ([_built(400, 366, OLD), _built(399, 365, NEW)], [], []),
    "a root that others read": (
        [_built(50, 45, OLD, uses_show=False), _built(40, 39, NEW, uses_show=False)], [], [],
    ),
    "a toolchain whose programs only read": ([_built(90, 90, OLD), _built(80, 0, NEW)], [], []),
    "a root that is only read": ([_built(90, 90, OLD), _built(80, 80, NEW), _built(70, 70, NEW)], [], []),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "stale", "old"), _STATES.values(), ids=_STATES)
def test_nothing_goes_that_a_program_may_hit_at_its_next_start(
    entries: list[CacheEntry], stale: list[int], old: list[int]
) -> None:
    """Which of the entries are stale where the newer toolchain is here, and which are superseded."""
    origins = Origins()
    judge = origins.superseded(entries, NOW_NS)
    gone = origins.stale([Toolchain("other", NEW, ("device name",))], NOW_NS)
    assert [number for number, one in enumerate(entries) if origin(one) in gone] == stale
    assert [number for number, one in enumerate(entries) if judge(one)] == old


_USED = CacheEntry("gpucache", "used", "/p", 10, 0, NOW_NS, "used.cu", toolchain=NEW)._replace(
    toolchain_identity=("device name",)
)


def _superseded(entries: Sequence[CacheEntry]) -> set[str]:
    judge = Origins().superseded([*entries, _USED], NOW_NS)
    return {entry.key for entry in entries if judge(entry)}


def _version(key: str, made_days: float, **facts: object) -> CacheEntry:
    return _built(made_days, made_days, NEW, key=key, **facts)


def test_superseded_is_what_has_a_newer_twin() -> None:
    """Only the newest of one program, target and variant stays, in whatever order they come."""
    twins = [_version(key, age) for key, age in (("b", 2), ("c", 1), ("a", 3))]
    others = [
        _version("program", 9, program="other.cu"),
        _version("target", 9, target="cuda:sm_80"),
        _version("variant", 9, variant="-DB"),
    ]
    assert _superseded([*twins, *others]) == _superseded([*others, *reversed(twins)]) == {"a", "b"}


def test_sources_in_two_places_are_two_programs() -> None:
    """Two projects' ``main.cl`` are not versions of each other; an entry of unknown place may be of both."""
    ages = {"a": ("one", 49), "b": ("other", 48), "c": ("one", 47), "d": ("third", 34)}
    placed = [_version(key, age, place=place) for key, (place, age) in ages.items()]
    assert _superseded(placed) == {"a"}
    old, new = _version("old", 46, place=""), _version("new", 35, place="")
    assert _superseded([old, *placed]) == {"a", "b", "c", "old"}
    assert _superseded([new, *placed, old]) == {"a", "b", "c", "old", "new"}


def test_damaged_and_nameless_entries_supersede_nothing() -> None:
    """An entry that cannot be read, or whose program is unknown, supersedes no other."""
    damaged = _version("b", 1, damage=Problem(FindingKind.CORRUPT, "bits"))
    nameless = [_version("c", 4, program=""), _version("d", 3, program="")]
    assert not _superseded([_version("a", 2), damaged, *nameless])


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
    stays = _entry(40, 40, stays="it is somebody else's", **facts)
    shared = _entry(40, 40, indivisible="others share its file", **facts)
    assert _stale(stays, shared) == Stale()
    assert _stale(stays, _entry(40, 40, **facts)).entries == 1
