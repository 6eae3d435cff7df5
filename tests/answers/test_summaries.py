"""Outcomes folded into summaries, and the exit codes that follow."""

from collections.abc import Sequence

import pytest

from gpucache.answers.bench import Arm, Sample, Spread
from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.evict import EvictOutcome, EvictSummary, Kept, Removal
from gpucache.answers.run import Ended, Intercepted, RunResult, summarise_run
from gpucache.answers.transfer import (
    Mismatch,
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


def _warm(*results: WarmResult) -> list[WarmOutcome]:
    return [WarmOutcome("p", "t", result) for result in results]


_ALONE = {
    WarmResult.HIT: ExitCode.DONE,
    WarmResult.BUILT: ExitCode.DONE,
    WarmResult.FAILED: ExitCode.FINDINGS,
    WarmResult.MISSING: ExitCode.FINDINGS,
    WarmResult.POISONED: ExitCode.FINDINGS,
    WarmResult.SKIPPED: ExitCode.NOTHING_ATTEMPTED,
    WarmResult.INTERRUPTED: ExitCode.INTERRUPTED,
}


@pytest.mark.parametrize("result", WarmResult)
def test_each_result_of_warm_has_its_exit_code(result: WarmResult) -> None:
    """A run of one item ends as that item did."""
    assert summarise_warm(_warm(result)).exit_code is _ALONE[result]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], ExitCode.DONE),
        ([WarmResult.HIT, WarmResult.SKIPPED], ExitCode.DONE),
        ([WarmResult.SKIPPED, WarmResult.SKIPPED], ExitCode.NOTHING_ATTEMPTED),
        ([WarmResult.SKIPPED, WarmResult.FAILED], ExitCode.FINDINGS),
        ([WarmResult.BUILT, WarmResult.MISSING], ExitCode.FINDINGS),
        ([WarmResult.FAILED, WarmResult.INTERRUPTED], ExitCode.INTERRUPTED),
    ],
)
def test_warm_ends_as_its_worst_item(results: Sequence[WarmResult], code: ExitCode) -> None:
    """An interruption outweighs a failure, and a failure outweighs what was skipped."""
    assert summarise_warm(_warm(*results)).exit_code is code


def test_warm_counts_every_result() -> None:
    """The summary counts each result, also those that did not occur, and adds what building cost."""
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
    """What is wrong always ends with findings; what is worth knowing does with strict alone."""
    summary = summarise_verify([Checked("k", (_finding(kind),))])
    assert kind.wrong is (kind.value in _WRONG)
    assert summary.exit_code(strict=False) is (ExitCode.FINDINGS if kind.wrong else ExitCode.DONE)
    assert summary.exit_code(strict=True) is ExitCode.FINDINGS


@pytest.mark.parametrize("strict", [False, True])
def test_repaired_findings_end_well(strict: bool) -> None:
    """Findings that were all repaired leave nothing to report."""
    kinds = (FindingKind.CORRUPT, FindingKind.LEFTOVER)
    summary = summarise_verify([Checked("k", tuple(_finding(kind, repaired=True) for kind in kinds))])
    assert summary.repaired == 2
    assert summary.exit_code(strict=strict) is ExitCode.DONE


def test_a_repaired_leftover_does_not_hide_damage() -> None:
    """Repairing what was only worth knowing does not make up for a damaged entry that stays."""
    findings = (_finding(FindingKind.CORRUPT), _finding(FindingKind.LEFTOVER, repaired=True))
    assert summarise_verify([Checked("k", findings)]).exit_code(strict=False) is ExitCode.FINDINGS


def test_what_could_not_be_checked_has_its_exit_code() -> None:
    """It is neither sound nor a finding: exit 4, unless something else is wrong."""
    summary = summarise_verify([Checked("a"), Checked("b", unchecked="no memory")])
    assert (summary.checked, summary.sound, len(summary.unchecked)) == (1, 1, 1)
    assert summary.exit_code(strict=True) is ExitCode.NOTHING_ATTEMPTED
    wrong = Checked("c", (_finding(FindingKind.CORRUPT),), unchecked="no memory")
    assert summarise_verify([wrong]).exit_code(strict=False) is ExitCode.FINDINGS


def test_verify_counts_entries_and_findings() -> None:
    """Leftovers are no entries, and what is only worth knowing leaves an entry sound."""
    summary = summarise_verify(
        [
            Checked("a"),
            Checked("b", (_finding(FindingKind.STALE),), notes=("not comparable",)),
            Checked("c", (_finding(FindingKind.CORRUPT), _finding(FindingKind.MISLABELLED))),
            Checked("d", (_finding(FindingKind.LEFTOVER),), counts=False),
        ]
    )
    assert (summary.checked, summary.sound) == (3, 2)
    assert (summary.findings, summary.wrong, summary.repaired, len(summary.notes)) == (4, 2, 0, 1)


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


def test_a_spread_is_median_and_extremes() -> None:
    """The spread of durations in any order is their median, lowest, highest and number."""
    assert Spread.of([30, 10, 20, 41]) == Spread(25, 10, 41, 4)
    assert Spread.of([7]) == Spread(7, 7, 7, 1)


def test_outliers_are_counted_and_kept() -> None:
    """A duration beyond three scaled deviations counts as one, and is still the highest of all."""
    near = [100, 101, 102, 103, 104, 105, 106]
    spread = Spread.of([*near, 900])
    assert (spread.outliers, spread.high_ns, spread.runs) == (1, 900, 8)
    assert Spread.of([*near, 108]).outliers == 0


def test_of_few_durations_none_is_an_outlier() -> None:
    """Fewer than eight do not tell which of them lies apart."""
    assert Spread.of([100, 101, 102, 103, 104, 105, 900]).outliers == 0


def test_durations_that_do_not_differ_have_no_outliers() -> None:
    """Where most durations are the same there is no deviation to measure by."""
    assert Spread.of([5, 5, 5, 5, 5, 5, 5, 9]).outliers == 0


def test_a_samples_total_is_the_sum_of_its_phases() -> None:
    """A start costs what its phases cost together."""
    assert Sample(Arm.COLD, (("compile", 5), ("load", 2))).total_ns == 7
    assert Sample(Arm.WARM).total_ns == 0


def test_builds_of_parallel_threads_count_once() -> None:
    """What is told is for how long anything was built, however many threads waited at a time."""
    times = ((5, 10), (0, 8), (6, 3), (30, 1))
    builds = [
        Intercepted("blur", "t", RunResult.KEPT, begun_ns=begun, build_ns=length) for begun, length in times
    ]
    assert summarise_run("app", Ended(0), builds).build_ns == 16


_MOVED = Moved("triton", "k", size_bytes=10)
_FOUND = (PullResult.UNSIGNED, PullResult.DAMAGED, PullResult.FAILED)


def test_push_and_pull_end_as_their_worst_entry() -> None:
    """Only what is damaged, unsigned or could not be written gives 3; entries for other machines do not."""
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


def test_pull_groups_entries_by_each_fact_that_differs() -> None:
    """An entry with two differences counts for both facts, and the largest group comes first."""
    summary = PullSummary()
    driver, version = Mismatch("driver", "1", "2"), Mismatch("version", "3", "4")
    differences = ((driver, version), (version,), (version,))
    list(summary.of(Pulled(_MOVED, PullResult.DIFFERS, differences=one) for one in differences))
    assert summary.groups == (("triton", *version, 3, 30), ("triton", *driver, 1, 10))
