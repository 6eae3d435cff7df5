"""Frozen results of the verbs and their summaries, which are pure folds over them.

Owns what a verb can answer. Must not know how an answer is shown, nor how it was found.

A name's module is imported when that name is first asked for: every process waits for the classes that it
makes, and a command or a program needs few of these.
"""

TYPE_CHECKING = False  # the one of typing, which type checkers know by its name

if TYPE_CHECKING:
    from gpucache.keys import Difference
    from gpucache.outcomes.answers import Answer, Build, Reply, ReplyState, TargetDifference
    from gpucache.outcomes.bench import (
        CACHED,
        FEWEST_PAIRS,
        PAPER_ASYNC,
        PAPER_SYNC,
        Arm,
        ArmResult,
        BenchCase,
        BenchVerdict,
        BreakEven,
        CachedPart,
        CheckedCase,
        CheckedMeans,
        Ratio,
        Sample,
        SettleRun,
        SettleSummary,
        Spread,
        summarise_checked,
    )
    from gpucache.outcomes.entries import (
        Advice,
        AdviceKind,
        CacheEntry,
        CacheState,
        EntryReport,
        Location,
        Stale,
        Written,
    )
    from gpucache.outcomes.evictions import (
        ALL,
        GONE,
        EvictOutcome,
        EvictSummary,
        Foreseen,
        Kept,
        Removal,
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
    from gpucache.outcomes.foreign_answers import Reach, Served
    from gpucache.outcomes.growth import Growth, Held, Snapshot
    from gpucache.outcomes.intercepted import Ended, Intercepted, RunResult, RunSummary, summarise_run
    from gpucache.outcomes.layered import Layered, LayerResult, LayerSummary, summarise_layer
    from gpucache.outcomes.lookups import Built, Hit, Miss, Noted, Plain, Verdict
    from gpucache.outcomes.recordings import (
        PassedOver,
        RecordedProgram,
        RecordingSummary,
        RecordSummary,
        Unrecorded,
        summarise_recording,
    )
    from gpucache.outcomes.warming import WarmOutcome, WarmResult, WarmSummary, summarise_warm

_HOMES = {
    "keys": ["Difference"],
    "outcomes.answers": ["Answer", "Build", "Reply", "ReplyState", "TargetDifference"],
    "outcomes.bench": [
        "CACHED",
        "FEWEST_PAIRS",
        "PAPER_ASYNC",
        "PAPER_SYNC",
        "Arm",
        "ArmResult",
        "BenchCase",
        "BenchVerdict",
        "BreakEven",
        "CachedPart",
        "CheckedCase",
        "CheckedMeans",
        "Ratio",
        "Sample",
        "SettleRun",
        "SettleSummary",
        "Spread",
        "summarise_checked",
    ],
    "outcomes.entries": [
        "Advice",
        "AdviceKind",
        "CacheEntry",
        "CacheState",
        "EntryReport",
        "Location",
        "Stale",
        "Written",
    ],
    "outcomes.evictions": [
        "ALL",
        "GONE",
        "EvictOutcome",
        "EvictSummary",
        "Foreseen",
        "Kept",
        "Removal",
    ],
    "outcomes.exports": ["Exported"],
    "outcomes.findings": [
        "Checked",
        "Finding",
        "FindingKind",
        "Note",
        "Problem",
        "VerifySummary",
        "summarise_verify",
    ],
    "outcomes.growth": ["Growth", "Held", "Snapshot"],
    "outcomes.intercepted": ["Ended", "Intercepted", "RunResult", "RunSummary", "summarise_run"],
    "outcomes.layered": ["LayerResult", "LayerSummary", "Layered", "summarise_layer"],
    "outcomes.lookups": ["Built", "Hit", "Miss", "Noted", "Plain", "Verdict"],
    "outcomes.foreign_answers": ["Reach", "Served"],
    "outcomes.recordings": [
        "PassedOver",
        "RecordSummary",
        "RecordedProgram",
        "RecordingSummary",
        "Unrecorded",
        "summarise_recording",
    ],
    "outcomes.warming": ["WarmOutcome", "WarmResult", "WarmSummary", "summarise_warm"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gpucache.outcomes' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"gpucache.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
