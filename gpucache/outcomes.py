"""Frozen results of the verbs and their summaries, which are pure folds over them.

Owns what a verb can answer. Must not know how an answer is shown, nor how it was found.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from statistics import median

from gpucache.keys import Difference
from gpucache.model import Artifact, CacheKey, EntryHead, KeyField


class ExitCode(IntEnum):
    """What the process says of the whole."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    FINDINGS = 3
    NOTHING_ATTEMPTED = 4
    CACHE_UNUSABLE = 5
    INTERRUPTED = 130


class Verdict(StrEnum):
    """Why a lookup missed."""

    NEVER_BUILT = "never-built"
    KEY_CHANGED = "key-changed"
    EVICTED = "evicted"
    CORRUPT = "corrupt"
    REJECTED = "rejected"
    POISONED = "poisoned"
    NOT_CONSULTED = "not-consulted"
    UNCACHEABLE = "uncacheable"
    OPAQUE_KEY = "opaque-key"
    NOT_RECORDED = "not-recorded"


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing was found, in words, and for a changed key the fields that changed."""

    verdict: Verdict
    detail: str
    differences: tuple[Difference, ...] = ()
    nearest: CacheKey | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A sound entry was found."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    layer: str
    """``memory``, or the root it came from."""


@dataclass(frozen=True, slots=True)
class Built:
    """Nothing was found and the program was compiled."""

    artifact: Artifact
    miss: Miss
    key: CacheKey | None
    """The key it was published under; None where it was not published."""
    size_bytes: int = 0
    note: str = ""
    """Why it was not published, in one sentence; empty where it was."""


class WarmResult(StrEnum):
    """What became of one item."""

    HIT = "hit"
    BUILT = "built"
    FAILED = "failed"
    MISSING = "missing"
    SKIPPED = "skipped"
    POISONED = "poisoned"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """One program for one target."""

    program: str
    target: str
    result: WarmResult
    variant: str = ""
    key: str | None = None
    compile_ns: int | None = None
    size_bytes: int | None = None
    reason: str = ""
    log: str = ""
    """The compiler's own words under the program's own file name."""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class WarmSummary:
    """How many items came out how."""

    counts: dict[WarmResult, int]
    compile_ns: int
    size_bytes: int

    @property
    def exit_code(self) -> ExitCode:
        """3 with any failure or miss, 130 when interrupted, 4 when every item was skipped."""
        counts = self.counts
        if counts[WarmResult.INTERRUPTED]:
            return ExitCode.INTERRUPTED
        if any(counts[bad] for bad in (WarmResult.FAILED, WarmResult.MISSING, WarmResult.POISONED)):
            return ExitCode.FINDINGS
        if counts[WarmResult.SKIPPED] and counts[WarmResult.SKIPPED] == sum(counts.values()):
            return ExitCode.NOTHING_ATTEMPTED
        return ExitCode.DONE


def summarise_warm(outcomes: Iterable[WarmOutcome]) -> WarmSummary:
    """The summary of a run of warm."""
    counts: Counter[WarmResult] = Counter()
    compile_ns = size_bytes = 0
    for outcome in outcomes:
        counts[outcome.result] += 1
        compile_ns += outcome.compile_ns or 0 if outcome.result is WarmResult.BUILT else 0
        size_bytes += outcome.size_bytes or 0
    return WarmSummary({result: counts[result] for result in WarmResult}, compile_ns, size_bytes)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One entry of any cache as inspect and evict see it."""

    cache: str
    key: str
    path: str
    size_bytes: int
    created_ns: int
    last_used_ns: int
    program: str = ""
    target: str = ""
    artifact_kind: str = ""
    variant: str = ""
    """Build options and local sizes, as text."""
    toolchain: tuple[tuple[str, str], ...] = ()
    toolchain_identity: tuple[str, ...] = ()
    payload_sha256: str = ""
    damage: str = ""
    """Why it cannot be read; empty for a readable entry."""
    handle: object = field(default=None, compare=False, repr=False)
    """The cache's own record of the file, with what tells whether it changed since the scan."""


class AdviceKind(StrEnum):
    """What the keys of a program can suffer from."""

    IDENTICAL = "identical"
    RESTLESS = "restless"
    GROWTH = "growth"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Advice:
    """Something worth knowing about the entries of one program for one target."""

    kind: AdviceKind
    program: str
    target: str
    detail: str
    fields: tuple[str, ...] = ()
    """Labels of the key fields it is about."""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryReport:
    """One entry with everything that inspect can say of it."""

    entry: CacheEntry
    key_fields: tuple[KeyField, ...]
    payload: tuple[tuple[str, str], ...]
    compile_ns: int
    build_log: str
    tool_version: str
    lowered_names: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Location:
    """Where a cache lives, which setting decided that, and what is wrong with the place."""

    cache: str
    root: str
    decided_by: str
    enabled: bool
    limit_bytes: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheState:
    """The state of one cache."""

    location: Location
    entries: int
    size_bytes: int
    files: int
    programs: int
    damaged: int
    oldest_used_ns: int | None = None


class FindingKind(StrEnum):
    """What verify reports. The first five are wrong; the rest are worth knowing."""

    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    MISPLACED = "misplaced"
    MISLABELLED = "mislabelled"
    UNTRUSTED = "untrusted"
    STALE = "stale"
    SUPERSEDED = "superseded"
    ORPHAN = "orphan"
    LEFTOVER = "leftover"
    LOCKED = "locked"
    UNSUPPORTED = "unsupported"

    @property
    def wrong(self) -> bool:
        """Whether it gives exit 3 without ``--strict``."""
        return self in _WRONG


_WRONG = frozenset(
    {
        FindingKind.TRUNCATED,
        FindingKind.CORRUPT,
        FindingKind.MISPLACED,
        FindingKind.MISLABELLED,
        FindingKind.UNTRUSTED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing verify found."""

    cache: str
    entry: str
    """The key, or the file's name where there is none."""
    kind: FindingKind
    detail: str
    program: str = ""
    target: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """An entry that was looked at; ``findings`` is empty for a sound one."""

    entry: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """What was tried and could not be told, such as ``not comparable``."""
    counts: bool = True
    """False for what is no entry (a leftover), which is not counted as checked."""


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """How many entries were checked, how many are sound, and what was found."""

    checked: int
    sound: int
    findings: int
    wrong: int
    repaired: int
    notes: int
    wrong_repaired: int = 0

    def exit_code(self, *, strict: bool) -> ExitCode:
        """3 for anything wrong that was not repaired; with strict for any finding."""
        open_findings = self.findings - self.repaired if strict else self.wrong - self.wrong_repaired
        return ExitCode.FINDINGS if open_findings > 0 else ExitCode.DONE


def summarise_verify(outcomes: Iterable[Checked]) -> VerifySummary:
    """The summary of a run of verify."""
    checked = sound = found = wrong = repaired = notes = wrong_repaired = 0
    for outcome in outcomes:
        checked += outcome.counts
        sound += outcome.counts and not any(finding.kind.wrong for finding in outcome.findings)
        found += len(outcome.findings)
        wrong += sum(finding.kind.wrong for finding in outcome.findings)
        repaired += sum(finding.repaired for finding in outcome.findings)
        wrong_repaired += sum(finding.repaired and finding.kind.wrong for finding in outcome.findings)
        notes += len(outcome.notes)
    return VerifySummary(checked, sound, found, wrong, repaired, notes, wrong_repaired)


@dataclass(frozen=True, slots=True)
class Removal:
    """One entry that evict plans to remove, and the rule that chose it."""

    entry: CacheEntry
    rule: str


@dataclass(frozen=True, slots=True)
class EvictPlan:
    """What would go and what stays."""

    removals: tuple[Removal, ...]
    kept: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class EvictOutcome:
    """What became of one planned removal."""

    removal: Removal
    removed: bool


@dataclass(frozen=True, slots=True)
class EvictSummary:
    """What was removed, what that freed in allocated blocks, and what stays."""

    removed: int
    freed_bytes: int
    kept: int
    kept_bytes: int


def summarise_evict(plan: EvictPlan, outcomes: Iterable[EvictOutcome]) -> EvictSummary:
    """The summary of a run of evict; an entry that changed since the scan counts as kept."""
    removed = freed = kept = kept_bytes = 0
    for outcome in outcomes:
        if outcome.removed:
            removed += 1
            freed += outcome.removal.entry.size_bytes
        else:
            kept += 1
            kept_bytes += outcome.removal.entry.size_bytes
    return EvictSummary(removed, freed, plan.kept + kept, plan.kept_bytes + kept_bytes)


class Temperature(StrEnum):
    """Whether a start finds anything cached."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class Sample:
    """One start in a fresh process: phases in order, in ns, or why it failed."""

    temperature: Temperature
    phases: tuple[tuple[str, int], ...] = ()
    hit: bool = False
    error: str = ""

    @property
    def total_ns(self) -> int:
        """The sum of all phases."""
        return sum(duration for _, duration in self.phases)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of some durations in ns."""

    median_ns: int
    low_ns: int
    high_ns: int
    runs: int

    @classmethod
    def of(cls, durations_ns: Iterable[int]) -> "Spread":
        """The spread of at least one duration."""
        values = sorted(durations_ns)
        return cls(round(median(values)), values[0], values[-1], len(values))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Cold divided by warm, pair by pair."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One program on one target, cold against warm."""

    program: str
    target: str
    verdict: str
    """``measured``, ``no-ratio`` or ``failed``."""
    reason: str = ""
    cold: Spread | None = None
    warm: Spread | None = None
    ratio: Ratio | None = None
    phases: tuple[tuple[str, int | None, int | None], ...] = ()
    """Phase, its cold median and its warm median in ns."""
    samples: tuple[Sample, ...] = field(default=(), repr=False)
