"""Frozen results of the verbs and their summaries, which are pure folds over them.

Owns what a verb can answer. Must not know how an answer is shown, nor how it was found.
"""

from gpucache.keys import Difference
from gpucache.outcomes.answers import Answer, Build, Reply, ReplyState, TargetDifference
from gpucache.outcomes.bench import (
    FEWEST_PAIRS,
    PAPER_ASYNC,
    PAPER_SYNC,
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
    CheckedCase,
    CheckedMeans,
    Ratio,
    Sample,
    SettleRun,
    SettleSummary,
    Spread,
    summarise_checked,
)
from gpucache.outcomes.entries import Advice, AdviceKind, CacheEntry, CacheState, EntryReport, Location
from gpucache.outcomes.evictions import (
    ALL,
    GONE,
    EvictOutcome,
    EvictPlan,
    EvictSummary,
    Foreseen,
    Kept,
    Removal,
    summarise_evict,
)
from gpucache.outcomes.exports import Exported
from gpucache.outcomes.findings import (
    Checked,
    Finding,
    FindingKind,
    Note,
    Problem,
    VerifySummary,
    summarise_verify,
)
from gpucache.outcomes.growth import Growth, Held, Snapshot
from gpucache.outcomes.lookups import Built, Hit, Miss, Noted, Plain, Verdict
from gpucache.outcomes.reaches import Reach, Served
from gpucache.outcomes.warming import WarmOutcome, WarmResult, WarmSummary, summarise_warm

__all__ = [
    "ALL",
    "FEWEST_PAIRS",
    "GONE",
    "PAPER_ASYNC",
    "PAPER_SYNC",
    "Advice",
    "AdviceKind",
    "Answer",
    "Arm",
    "ArmResult",
    "BenchCase",
    "BenchVerdict",
    "BreakEven",
    "Build",
    "Built",
    "CacheEntry",
    "CacheState",
    "Checked",
    "CheckedCase",
    "CheckedMeans",
    "Difference",
    "EntryReport",
    "EvictOutcome",
    "EvictPlan",
    "EvictSummary",
    "Exported",
    "Finding",
    "FindingKind",
    "Foreseen",
    "Growth",
    "Held",
    "Hit",
    "Kept",
    "Location",
    "Miss",
    "Note",
    "Noted",
    "Plain",
    "Problem",
    "Ratio",
    "Reach",
    "Removal",
    "Reply",
    "ReplyState",
    "Sample",
    "Served",
    "SettleRun",
    "SettleSummary",
    "Snapshot",
    "Spread",
    "TargetDifference",
    "Verdict",
    "VerifySummary",
    "WarmOutcome",
    "WarmResult",
    "WarmSummary",
    "summarise_checked",
    "summarise_evict",
    "summarise_verify",
    "summarise_warm",
]
