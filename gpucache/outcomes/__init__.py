"""Names of ``gpucache.answers`` under their former place; new imports name their modules."""

TYPE_CHECKING = False  # the one of typing, which type checkers know by its name

if TYPE_CHECKING:
    from gpucache.answers.bench import CACHED as CACHED
    from gpucache.answers.bench import FEWEST_PAIRS as FEWEST_PAIRS
    from gpucache.answers.bench import PAPER_ASYNC as PAPER_ASYNC
    from gpucache.answers.bench import PAPER_SYNC as PAPER_SYNC
    from gpucache.answers.bench import Arm as Arm
    from gpucache.answers.bench import ArmResult as ArmResult
    from gpucache.answers.bench import BenchCase as BenchCase
    from gpucache.answers.bench import BenchVerdict as BenchVerdict
    from gpucache.answers.bench import BreakEven as BreakEven
    from gpucache.answers.bench import CachedPart as CachedPart
    from gpucache.answers.bench import CheckedCase as CheckedCase
    from gpucache.answers.bench import CheckedMeans as CheckedMeans
    from gpucache.answers.bench import Ratio as Ratio
    from gpucache.answers.bench import Sample as Sample
    from gpucache.answers.bench import SettleRun as SettleRun
    from gpucache.answers.bench import SettleSummary as SettleSummary
    from gpucache.answers.bench import Spread as Spread
    from gpucache.answers.bench import summarise_checked as summarise_checked
    from gpucache.answers.devices import TargetDifference as TargetDifference
    from gpucache.answers.entries import CacheEntry as CacheEntry
    from gpucache.answers.entries import EntryReport as EntryReport
    from gpucache.answers.entries import FindingKind as FindingKind
    from gpucache.answers.entries import Location as Location
    from gpucache.answers.entries import Problem as Problem
    from gpucache.answers.evict import ALL as ALL
    from gpucache.answers.evict import GONE as GONE
    from gpucache.answers.evict import EvictOutcome as EvictOutcome
    from gpucache.answers.evict import EvictSummary as EvictSummary
    from gpucache.answers.evict import Foreseen as Foreseen
    from gpucache.answers.evict import Kept as Kept
    from gpucache.answers.evict import Removal as Removal
    from gpucache.answers.export import Exported as Exported
    from gpucache.answers.growth import Growth as Growth
    from gpucache.answers.growth import Held as Held
    from gpucache.answers.growth import Snapshot as Snapshot
    from gpucache.answers.inspect import Advice as Advice
    from gpucache.answers.inspect import AdviceKind as AdviceKind
    from gpucache.answers.inspect import CacheState as CacheState
    from gpucache.answers.inspect import Stale as Stale
    from gpucache.answers.inspect import Written as Written
    from gpucache.answers.layer import Layered as Layered
    from gpucache.answers.layer import LayerResult as LayerResult
    from gpucache.answers.layer import LayerSummary as LayerSummary
    from gpucache.answers.layer import summarise_layer as summarise_layer
    from gpucache.answers.lookup import Built as Built
    from gpucache.answers.lookup import Hit as Hit
    from gpucache.answers.lookup import Miss as Miss
    from gpucache.answers.lookup import Noted as Noted
    from gpucache.answers.lookup import Plain as Plain
    from gpucache.answers.lookup import Verdict as Verdict
    from gpucache.answers.record import PassedOver as PassedOver
    from gpucache.answers.record import RecordedProgram as RecordedProgram
    from gpucache.answers.record import RecordingSummary as RecordingSummary
    from gpucache.answers.record import RecordSummary as RecordSummary
    from gpucache.answers.record import Unrecorded as Unrecorded
    from gpucache.answers.record import summarise_recording as summarise_recording
    from gpucache.answers.run import Ended as Ended
    from gpucache.answers.run import Intercepted as Intercepted
    from gpucache.answers.run import RunResult as RunResult
    from gpucache.answers.run import RunSummary as RunSummary
    from gpucache.answers.run import summarise_run as summarise_run
    from gpucache.answers.verify import Checked as Checked
    from gpucache.answers.verify import Finding as Finding
    from gpucache.answers.verify import Note as Note
    from gpucache.answers.verify import VerifySummary as VerifySummary
    from gpucache.answers.verify import summarise_verify as summarise_verify
    from gpucache.answers.warm import WarmOutcome as WarmOutcome
    from gpucache.answers.warm import WarmResult as WarmResult
    from gpucache.answers.warm import WarmSummary as WarmSummary
    from gpucache.answers.warm import summarise_warm as summarise_warm
    from gpucache.answers.why import Answer as Answer
    from gpucache.answers.why import Build as Build
    from gpucache.answers.why import Reach as Reach
    from gpucache.answers.why import Reply as Reply
    from gpucache.answers.why import ReplyState as ReplyState
    from gpucache.answers.why import Served as Served
    from gpucache.keys import Difference as Difference

_HOMES = {
    "answers.devices": "TargetDifference",
    "answers.entries": "CacheEntry EntryReport Location Problem FindingKind",
    "answers.evict": "ALL GONE EvictOutcome EvictSummary Foreseen Kept Removal",
    "answers.export": "Exported",
    "answers.growth": "Growth Held Snapshot",
    "answers.inspect": "Advice AdviceKind CacheState Stale Written",
    "answers.layer": "LayerResult LayerSummary Layered summarise_layer",
    "answers.lookup": "Verdict Miss Hit Noted Plain Built",
    "answers.record": "PassedOver RecordSummary RecordedProgram RecordingSummary Unrecorded "
    "summarise_recording",
    "answers.run": "Ended Intercepted RunResult RunSummary summarise_run",
    "answers.verify": "Checked Finding Note VerifySummary summarise_verify",
    "answers.warm": "WarmOutcome WarmResult WarmSummary summarise_warm",
    "answers.why": "Answer Build Reply ReplyState Reach Served",
    "keys": "Difference",
    "answers.bench": "CACHED FEWEST_PAIRS PAPER_ASYNC PAPER_SYNC Arm ArmResult BenchCase "
    "BenchVerdict BreakEven CachedPart CheckedCase CheckedMeans Ratio Sample SettleRun "
    "SettleSummary Spread summarise_checked",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gpucache.outcomes' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gpucache.{_HOME[name]}"), name)
