"""The entries that evict removes: filters, limits and their order, as a pure function."""

import random
import tracemalloc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Foreseen
from gpucache.engine.evict import (
    LOW_WATER,
    EvictPlan,
    Limits,
    foresee,
    plan,
    plan_together,
    worth,
)
from gpucache.engine.selection import matches_program, matches_target
from gpucache.model import Toolchain

DAY_NS = 86_400 * 1_000_000_000
NOW_NS = 100 * DAY_NS
_OLD = (("platform name", "P"), ("device name", "D"), ("driver version", "1"))
_NEW = (("platform name", "P"), ("device name", "D"), ("driver version", "2"))
_IDENTITY = ("platform name", "device name")


def _entry(key: str, **overrides: object) -> CacheEntry:
    entry = CacheEntry(
        cache="gpucache",
        key=key,
        path=key,
        size_bytes=100,
        created_ns=NOW_NS - 50 * DAY_NS,
        last_used_ns=NOW_NS - DAY_NS,
        program=f"program {key}",
        target="cuda:sm_90",
        toolchain=_OLD,
        toolchain_identity=_IDENTITY,
    )
    return entry._replace(**overrides)  # type: ignore[arg-type]


def _removed(found: EvictPlan) -> list[str]:
    return [removal.entry.key for removal in found.removals()]


def _foreseen(found: EvictPlan) -> Foreseen:
    foreseen = Foreseen()
    deque(foreseen.of(foresee(found, foreseen.keep)), maxlen=0)
    return foreseen


def _kept(found: EvictPlan) -> tuple[int, int]:
    """How many entries would stay, and their bytes."""
    one = _foreseen(found)
    return one.kept - one.would_remove, one.kept_bytes - one.would_free_bytes


def test_nothing_asked_for_removes_nothing() -> None:
    """Without filter and limit everything stays, and the request is known to be empty."""
    found = plan([_entry("a"), _entry("b")], Limits(), NOW_NS)
    assert (_removed(found), _kept(found)) == ([], (2, 200))
    assert Limits().empty


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_size_bytes=0),
        Limits(older_than_ns=0),
        Limits(superseded=True),
        Limits(stale=True),
        Limits(program="p"),
        Limits(target="t"),
        Limits(everything=True),
    ],
)
def test_anything_asked_for_is_not_empty(limits: Limits) -> None:
    """Each limit by itself is something to do; all but the size limit and all are filters."""
    assert not limits.empty
    assert limits.filters is (limits.max_size_bytes is None and not limits.everything)


def test_all_removes_everything() -> None:
    """All takes every entry, damaged ones too."""
    found = plan(
        [_entry("a"), _entry("b", damage=Problem(FindingKind.CORRUPT, "bits"))],
        Limits(everything=True),
        NOW_NS,
    )
    assert _removed(found) == ["a", "b"]
    assert {removal.rule for removal in found.removals()} == {"--all"}
    assert _kept(found) == (0, 0)


def test_age_counts_from_the_last_use() -> None:
    """An entry goes when it was last used before the age, however old it is."""
    entries = [
        _entry("used", created_ns=0, last_used_ns=NOW_NS - DAY_NS),
        _entry("edge", last_used_ns=NOW_NS - 30 * DAY_NS),
        _entry("idle", last_used_ns=NOW_NS - 31 * DAY_NS),
    ]
    found = plan(entries, Limits(older_than_ns=30 * DAY_NS), NOW_NS)
    assert _removed(found) == ["idle"]
    assert next(found.removals()).rule == "unused for 30 d"


def test_filters_are_joined_by_and() -> None:
    """An entry goes only when every filter chooses it, and the rule names them all."""
    idle = NOW_NS - 40 * DAY_NS
    entries = [
        _entry("all", program="p", target="cuda:sm_90", last_used_ns=idle),
        _entry("used", program="p", target="cuda:sm_90"),
        _entry("other", program="q", target="cuda:sm_90", last_used_ns=idle),
        _entry("elsewhere", program="p", target="cuda:sm_80", last_used_ns=idle),
    ]
    limits = Limits(older_than_ns=30 * DAY_NS, program="p", target="cuda:sm_90")
    found = plan(entries, limits, NOW_NS)
    assert _removed(found) == ["all"]
    assert next(found.removals()).rule == "unused for 30 d, program p, target cuda:sm_90"


def test_a_size_limit_takes_the_least_recently_used_to_low_water() -> None:
    """Over the limit the longest unused go, whatever order they come in, until 80 % of it is met."""
    entries = [_entry(str(age), last_used_ns=NOW_NS - age * DAY_NS) for age in (3, 9, 1, 7, 5)]
    found = plan(entries, Limits(max_size_bytes=400), NOW_NS)
    assert _removed(found) == ["9", "7"]
    assert _kept(found) == (3, 300)
    assert _kept(found)[1] <= 400 * LOW_WATER
    assert {removal.rule for removal in found.removals()} == {"over 400 B"}


def test_a_size_limit_that_holds_removes_nothing() -> None:
    """At the limit nothing goes: the low-water mark counts only once the limit is passed."""
    entries = [_entry(key) for key in "abcd"]
    assert not _removed(plan(entries, Limits(max_size_bytes=400), NOW_NS))
    assert _removed(plan(entries, Limits(max_size_bytes=399), NOW_NS))


def test_an_entry_above_the_low_water_mark_goes_without_the_others() -> None:
    """However recently used: it could not stay even alone, and would evict everything that fits."""
    entries = [_entry(str(age), size_bytes=12, last_used_ns=NOW_NS - age * DAY_NS) for age in range(1, 6)]
    entries.append(_entry("large", size_bytes=60, last_used_ns=NOW_NS))
    found = plan(entries, Limits(max_size_bytes=60), NOW_NS)
    assert _removed(found) == ["large", "5"]


def test_a_size_limit_takes_only_what_the_filters_left() -> None:
    """With a filter the limit is met from the filtered entries alone, even when that is not enough."""
    entries = [
        _entry("a", program="p"),
        _entry("b", last_used_ns=0),
        _entry("c", program="p", last_used_ns=1),
    ]
    found = plan(entries, Limits(max_size_bytes=250, program="p"), NOW_NS)
    assert _removed(found) == ["c"]
    assert next(found.removals()).rule == "program p"
    assert _removed(plan(entries, Limits(max_size_bytes=0, program="p"), NOW_NS)) == ["c", "a"]


def test_a_size_limit_of_nothing_empties_the_cache() -> None:
    """A limit of zero takes everything, and equal last uses go in the order of their keys."""
    found = plan([_entry("b"), _entry("a")], Limits(max_size_bytes=0), NOW_NS)
    assert _removed(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "identity", "here", "stale"),
    [
        (_OLD, _IDENTITY, [_NEW], True),
        (_OLD, _IDENTITY, [_OLD], False),
        (_OLD, _IDENTITY, [_NEW, _OLD], False),
        (_OLD, _IDENTITY, [], False),
        (_OLD, _IDENTITY, [(("platform name", "P"), ("device name", "E"), ("driver version", "2"))], False),
        ((), (), [_NEW], False),
    ],
)
def test_stale_is_only_what_this_machine_has_outgrown(
    fields: tuple[tuple[str, str], ...],
    identity: tuple[str, ...],
    here: Sequence[tuple[tuple[str, str], ...]],
    stale: bool,
) -> None:
    """An entry is stale if its device is here with another driver only; an absent device is not stale."""
    used_ns = NOW_NS - 31 * DAY_NS
    entry = _entry("a", toolchain=fields, toolchain_identity=identity, last_used_ns=used_ns)
    used = _entry("b", last_used_ns=NOW_NS, toolchain=(), toolchain_identity=())
    toolchains = [Toolchain("other", one, _IDENTITY) for one in here]
    assert _removed(plan([entry, used], Limits(stale=True), NOW_NS, lambda _: toolchains)) == ["a"] * stale


@pytest.mark.parametrize(
    ("name", "matches"),
    [("k/scale.cl", True), ("scale.cl", True), ("cale.cl", False), ("k", False), ("", False)],
)
def test_a_program_matches_by_name_or_its_last_part(name: str, matches: bool) -> None:
    """A program is named in full, or by the last part of its name."""
    assert matches_program(_entry("a", program="k/scale.cl"), name) is matches


@pytest.mark.parametrize(
    ("target", "name", "matches"),
    [
        ("cuda:sm_90", "cuda:sm_90", True),
        ("cuda:sm_90", "cuda", True),
        ("cuda:sm_90", "cuda:sm_9", False),
        ("cuda:sm_90a", "cuda:sm_90", False),
        ("opencl:pocl/cpu", "opencl:pocl", True),
        ("opencl:pocl/cpu", "opencl:poc", False),
        ("opencl:pocl-3.1-debian/cpu", "opencl:pocl", True),
        ("opencl:pocl-3.1-debian/cpu", "opencl:pocl-3.1", False),
        ("opencl:intel-gpu/arc", "opencl:intel", False),
        ("opencl:nvidia/a100-2", "opencl:nvidia/a100", False),
    ],
)
def test_a_target_matches_in_whole_parts(target: str, name: str, matches: bool) -> None:
    """A target is named in full or by its beginning, up to the end of a part or before a version."""
    assert matches_target(_entry("a", target=target), name) is matches


_ENTRIES = st.lists(
    st.builds(
        lambda size, used, created, program: (size, used, created, program),
        st.integers(0, 500),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from("pqr"),
    ),
    max_size=12,
)
_LIMITS = st.builds(
    Limits,
    max_size_bytes=st.none() | st.integers(0, 3000),
    older_than_ns=st.none() | st.integers(0, 5),
    superseded=st.booleans(),
    program=st.none() | st.sampled_from("pq"),
)


@given(_ENTRIES, _LIMITS, st.randoms(use_true_random=False))
def test_a_plan_depends_on_nothing_else(
    rows: list[tuple[int, int, int, str]], limits: Limits, rng: random.Random
) -> None:
    """The same entries give the same plan in any order, nothing is lost, and a size limit alone is kept."""
    entries = [
        _entry(
            f"{number:02}",
            size_bytes=size,
            last_used_ns=used,
            created_ns=created * 100 + number,
            program=program,
        )
        for number, (size, used, created, program) in enumerate(rows)
    ]
    found = plan(entries, limits, 5)
    assert _removed(plan(entries, limits, 5)) == _removed(found)
    shuffled = rng.sample(entries, len(entries))
    assert set(_removed(plan(shuffled, limits, 5))) == set(_removed(found))
    kept, kept_bytes = _kept(found)
    assert len(_removed(found)) + kept == len(entries)
    freed = sum(removal.entry.size_bytes for removal in found.removals())
    assert freed + kept_bytes == sum(entry.size_bytes for entry in entries)
    if limits.max_size_bytes is not None and not limits.filters:
        assert kept_bytes <= limits.max_size_bytes


def _caches() -> list[list[CacheEntry]]:
    """Two caches of three entries of 100 bytes each, one used more lately than the other."""
    days = {"a": 9, "b": 7, "c": 5, "d": 8, "e": 6, "f": 4}
    entries = [_entry(key, last_used_ns=NOW_NS - used * DAY_NS) for key, used in days.items()]
    return [entries[:3], entries[3:]]


def test_a_limit_over_several_caches_bounds_their_sum() -> None:
    """The least recently used go, from whichever cache, until 80 % of the limit is met by all together."""
    plans = plan_together(_caches(), Limits(max_size_bytes=500), NOW_NS)
    assert [_removed(one) for one in plans] == [["a"], ["d"]]
    assert [_kept(one) for one in plans] == [(2, 200), (2, 200)]
    assert not any(_removed(one) for one in plan_together(_caches(), Limits(max_size_bytes=600), NOW_NS))


def test_a_number_of_files_bounds_all_caches_together() -> None:
    """The least recently used go, however large they are; an entry counts with all of its files."""
    caches = [[entry._replace(files=10) for entry in one] for one in _caches()]
    plans = plan_together(caches, Limits(max_files=50), NOW_NS)
    assert [_removed(one) for one in plans] == [["a"], ["d"]]
    assert {removal.rule for one in plans for removal in one.removals()} == {"over 50 files"}
    assert not any(_removed(one) for one in plan_together(caches, Limits(max_files=60), NOW_NS))


def test_filters_hold_over_several_caches() -> None:
    """Without a limit every chosen entry goes; with one only as many as needed."""
    old = Limits(older_than_ns=6 * DAY_NS)
    assert [_removed(one) for one in plan_together(_caches(), old, NOW_NS)] == [["a", "b"], ["d"]]
    bounded = replace(old, max_size_bytes=599)
    assert [_removed(one) for one in plan_together(_caches(), bounded, NOW_NS)] == [["a"], ["d"]]


def test_what_nothing_removes_counts_and_comes_last() -> None:
    """An opaque cache's bytes count towards the limit; its reasons are given only if others are too small."""
    removable, opaque = _caches()
    opaque = [entry._replace(stays="remove it as a whole") for entry in opaque]
    met = plan_together([removable, opaque], Limits(max_size_bytes=500), NOW_NS)
    assert [_removed(one) for one in met] == [["a", "b"], []]
    missed = plan_together([removable, opaque], Limits(max_size_bytes=300), NOW_NS)
    assert [_removed(one) for one in missed] == [["a", "b", "c"], ["d", "e", "f"]]
    assert [one.removed for one in foresee(missed[1])] == [False] * 3


@pytest.mark.parametrize(
    "changes",
    [{"last_used_ns": NOW_NS - 2 * DAY_NS}, {"size_bytes": 1000}, {"compile_ns": 10**6}],
    ids=["unused for longer", "larger", "quicker to build"],
)
def test_what_is_worth_less_goes_first(changes: dict[str, int]) -> None:
    """Last use, size and compile time each count, all else being equal."""
    facts = {"last_used_ns": NOW_NS - DAY_NS, "size_bytes": 100, "compile_ns": 10**9}
    assert worth(_entry("a", **{**facts, **changes}), NOW_NS) < worth(_entry("a", **facts), NOW_NS)


class _Many:
    """Ten thousand entries, none of which is kept: each walk makes them anew."""

    def __iter__(self) -> Iterator[CacheEntry]:
        return (
            _entry(f"{number * 7919 % 10_000:08x}", last_used_ns=number * 37 % 10_000)
            for number in range(10_000)
        )


@pytest.mark.parametrize(
    ("limits", "most_bytes"),
    [
        (Limits(everything=True), 100_000),
        (Limits(older_than_ns=NOW_NS - 5_000), 100_000),
        (Limits(max_size_bytes=500_000), 5_000_000),
    ],
    ids=["all", "older-than", "max-size"],
)
def test_a_plan_of_many_entries_keeps_few_of_them(limits: Limits, most_bytes: int) -> None:
    """Entries are judged as they are read: 8 MB of them pass through some kilobytes, or their numbers."""
    tracemalloc.start()
    try:
        foreseen = _foreseen(plan(_Many(), limits, NOW_NS))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert foreseen.kept == 10_000 and foreseen.would_remove >= 4_000
    assert peak < most_bytes


def test_of_more_than_is_kept_at_once_the_same_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece goes in its order, and all pieces together are the least recently used."""
    entries = [_entry(str(age), last_used_ns=NOW_NS - age * DAY_NS) for age in (3, 9, 1, 7, 5)]
    monkeypatch.setattr("gpucache.engine.evict.ORDERED_TOGETHER", 2)
    assert _removed(plan(entries, Limits(max_size_bytes=200), NOW_NS)) == ["9", "3", "7", "5"]
