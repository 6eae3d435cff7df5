"""Outcomes folded into summaries, and the exit codes that follow."""

from collections.abc import Sequence

import pytest

from gpucache.answers.bench import Spread
from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.evict import EvictOutcome, EvictSummary, Kept, Removal
from gpucache.answers.run import Ended, Intercepted, RunResult, summarise_run
from gpucache.answers.transfer import (
    Moved,
    Pulled,
    PullResult,
    PullSummary,
    Pushed,
    PushResult,
    PushSummary,
    Unsound,
)
from gpucache.answers.verify import Checked, Finding, summarise_verify
from gpucache.answers.warm import WarmOutcome, WarmResult, summarise_warm
from gpucache.errors import ExitCode

_W = WarmResult


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], ExitCode.DONE),
        ([_W.HIT], ExitCode.DONE),
        ([_W.BUILT], ExitCode.DONE),
        ([_W.FAILED], ExitCode.FINDINGS),
        ([_W.MISSING], ExitCode.FINDINGS),
        ([_W.POISONED], ExitCode.FINDINGS),
        ([_W.SKIPPED, _W.SKIPPED], ExitCode.NOTHING_ATTEMPTED),
        ([_W.INTERRUPTED], ExitCode.INTERRUPTED),
        ([_W.HIT, _W.SKIPPED], ExitCode.DONE),
        ([_W.SKIPPED, _W.FAILED], ExitCode.FINDINGS),
        ([_W.BUILT, _W.MISSING], ExitCode.FINDINGS),
        ([_W.FAILED, _W.INTERRUPTED], ExitCode.INTERRUPTED),
    ],
)
def test_warm_ends_as_its_worst_item(results: Sequence[WarmResult], code: ExitCode) -> None:
    """An interruption outweighs a failure, and a failure outweighs a skipped item."""
    assert summarise_warm([WarmOutcome("p", "t", result) for result in results]).exit_code is code


def test_warm_counts_every_result() -> None:
    """The summary counts each result, even at zero, and adds up the costs of building."""
    outcomes = [
        WarmOutcome("a", "t", WarmResult.BUILT, compile_ns=5, size_bytes=100),
        WarmOutcome("b", "t", WarmResult.BUILT),
        WarmOutcome("c", "t", WarmResult.HIT, compile_ns=7, size_bytes=10),
    ]
    summary = summarise_warm(outcomes)
    assert summary.counts == dict.fromkeys(WarmResult, 0) | {WarmResult.BUILT: 2, WarmResult.HIT: 1}
    assert (summary.compile_ns, summary.size_bytes) == (5, 110)


_WRONG = {"truncated", "corrupt", "misplaced", "mislabelled", "untrusted"}


def _finding(kind: FindingKind, *, repaired: bool = False) -> Finding:
    return Finding("gpucache", "k", kind, "", repaired=repaired)


@pytest.mark.parametrize("kind", FindingKind)
def test_each_finding_has_its_exit_code(kind: FindingKind) -> None:
    """Wrong findings always give exit 3; findings that are worth knowing do so only with strict."""
    summary = summarise_verify([Checked("k", (_finding(kind),))])
    assert kind.wrong is (kind.value in _WRONG)
    assert summary.exit_code(strict=False) is (ExitCode.FINDINGS if kind.wrong else ExitCode.DONE)
    assert summary.exit_code(strict=True) is ExitCode.FINDINGS


_DAMAGED, _SWEPT = _finding(FindingKind.CORRUPT), _finding(FindingKind.LEFTOVER, repaired=True)
_MENDED = _finding(FindingKind.CORRUPT, repaired=True)


@pytest.mark.parametrize(
    ("checked", "code"),
    [
        ([Checked("k", (_MENDED, _SWEPT))], ExitCode.DONE),
        ([Checked("k", (_DAMAGED, _SWEPT))], ExitCode.FINDINGS),
        ([Checked("a"), Checked("b", unchecked="no memory")], ExitCode.NOTHING_ATTEMPTED),
        ([Checked("c", (_DAMAGED,), unchecked="no memory")], ExitCode.FINDINGS),
    ],
)
def test_verify_ends_as_what_remains(checked: Sequence[Checked], code: ExitCode) -> None:
    """A repaired finding counts as none and hides no other; a failed check counts as itself."""
    summary = summarise_verify(checked)
    assert {summary.exit_code(strict=strict) for strict in (False, True)} == {code}


def test_verify_counts_entries_and_findings() -> None:
    """Leftovers are not entries, and a finding that is only worth knowing leaves an entry sound."""
    summary = summarise_verify(
        [
            Checked("a"),
            Checked("b", (_finding(FindingKind.STALE),), notes=("not comparable",)),
            Checked("c", (_finding(FindingKind.CORRUPT), _finding(FindingKind.MISLABELLED))),
            Checked("d", (_SWEPT,), counts=False),
            Checked("e", unchecked="no memory"),
        ]
    )
    assert (summary.checked, summary.sound) == (3, 2)
    assert (summary.findings, summary.wrong, summary.repaired) == (4, 2, 1)
    assert (len(summary.notes), len(summary.unchecked)) == (1, 1)


def test_evict_counts_what_could_not_be_removed_as_kept() -> None:
    """An entry that changed since the scan stays, and counts as kept with its size."""
    entries = [CacheEntry("gpucache", key, key, size, 0, 0) for key, size in (("a", 10), ("b", 20))]
    removals = tuple(Removal(entry, "--all") for entry in entries)
    outcomes = [EvictOutcome(removals[0]), EvictOutcome(removals[1], Kept())]
    summary = EvictSummary(kept=3, kept_bytes=300)
    assert list(summary.of(outcomes)) == outcomes
    assert summary == EvictSummary(removed=1, freed_bytes=10, kept=4, kept_bytes=320, chosen=2, stay=1)


def test_exit_codes_are_the_documented_numbers() -> None:
    """The numbers that scripts rely on do not move."""
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "UNEXPECTED": 1,
        "USAGE": 2,
        "FINDINGS": 3,
        "NOTHING_ATTEMPTED": 4,
        "CACHE_UNUSABLE": 5,
        "NOT_EXECUTABLE": 126,
        "NOT_FOUND": 127,
        "INTERRUPTED": 130,
    }


_NEAR = [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize(
    ("durations", "spread"),
    [
        ([30, 10, 20, 41], Spread(25, 10, 41, 4)),
        ([7], Spread(7, 7, 7, 1)),
        ([*_NEAR, 106, 900], Spread(104, 100, 900, 8, outliers=1)),
        ([*_NEAR, 106, 108], Spread(104, 100, 108, 8)),
        ([*_NEAR, 900], Spread(103, 100, 900, 7)),
        ([5, 5, 5, 5, 5, 5, 5, 9], Spread(5, 5, 9, 8)),
    ],
)
def test_a_spread_is_median_extremes_and_outliers(durations: list[int], spread: Spread) -> None:
    """An outlier is beyond three scaled deviations of eight or more, and is still the highest of all."""
    assert Spread.of(durations) == spread


def test_builds_of_parallel_threads_count_once() -> None:
    """The reported time is that in which anything was built, however many threads waited."""
    times = ((5, 10), (0, 8), (6, 3), (30, 1))
    builds = [
        Intercepted("blur", "t", RunResult.KEPT, begun_ns=begun, build_ns=length) for begun, length in times
    ]
    assert summarise_run("app", Ended(0), builds).build_ns == 16


_MOVED = Moved("triton", "k", size_bytes=10)
_FOUND = (PullResult.UNSIGNED, PullResult.DAMAGED, PullResult.FAILED)


def test_push_and_pull_end_as_their_worst_entry() -> None:
    """Only damaged, unsigned or unwritable entries give 3; entries for other machines do not."""
    for sent in PushResult:
        pushed = PushSummary()
        assert [*pushed.of([Pushed(_MOVED, sent)])] and pushed.counts[sent] == 1
        assert pushed.exit_code == (3 if sent is PushResult.FAILED else 0)
    for got in PullResult:
        pulled = PullSummary()
        assert [*pulled.of([Pulled(_MOVED, got)])] and pulled.counts[got] == 1
        assert pulled.exit_code == (3 if got in _FOUND else 0)
    for other in (PushSummary(), PullSummary()):
        assert not [*other.of([Unsound("index", "it is garbage")])] and other.exit_code == 3
