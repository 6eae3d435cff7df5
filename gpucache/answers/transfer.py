"""The results of push and pull: the outcome of each entry on its way to a store elsewhere or from one.

Both verbs yield outcomes one by one, and between them remarks on a cache or on the store; a
summary passes the outcomes through and counts::

    remote.push.push(selected, store, *, key, sources, dry_run, progress)
        -> Iterator[Pushed | Immovable | Unsound]
    remote.pull.pull(store, caches, *, trusted, machine, dry_run, progress)
        -> Iterator[Pulled | Immovable | Unsound]

``selected`` are caches with their entries; ``progress`` gets the number of entries that are done, that of
all or None, and a name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, NamedTuple, TypeVar

from gpucache.answers.console import NAMED, ROWS_SHOWN, Block, Column, Grid, more_rows, one_line, plain
from gpucache.answers.entries import unread_words
from gpucache.errors import ExitCode
from gpucache.json_keys import OrNull, json_keys
from gpucache.keys import Difference
from gpucache.units import format_count, format_list, format_size

_R = TypeVar("_R", bound=StrEnum)


class Moved(NamedTuple):
    """An entry on its way."""

    cache: str
    key: Annotated[str, "The cache key, or the owner's name for the entry."]
    program: str = ""
    target: Annotated[str, "The target; empty if the cache does not record it."] = ""
    size_bytes: Annotated[int, "The size of its files."] = 0


class PushResult(StrEnum):
    """The results of push."""

    SENT = "sent"
    """The store has it now."""
    WOULD_SEND = "would-send"
    """With --dry-run: the store does not have it."""
    PRESENT = "present"
    """The store had it."""
    REFUSED = "refused"
    """It cannot be used elsewhere, or contains sources and --sources was not given."""
    FAILED = "failed"
    """It is damaged or could not be read."""


class PullResult(StrEnum):
    """The results of pull."""

    PULLED = "pulled"
    """The cache has it now."""
    WOULD_PULL = "would-pull"
    """With --dry-run: the cache does not have it."""
    PRESENT = "present"
    """The cache had it."""
    DIFFERS = "differs"
    """No program of the machine would hit it; the differences say why."""
    UNSIGNED = "unsigned"
    """No trusted key signed it."""
    DAMAGED = "damaged"
    """Some of its bytes are missing or wrong in the store, or the check of its format found damage."""
    REFUSED = "refused"
    """The cache does not take it."""
    FAILED = "failed"
    """It could not be written."""


class Mismatch(NamedTuple):
    """A fact that keeps the programs of a machine from hitting an entry."""

    fact: Annotated[str, "Its name, such as architecture, driver or version."]
    there: Annotated[str, "The fact's value for the entry."]
    here: Annotated[str, "Its value on the machine."]


@json_keys("entry.* result reason sent_bytes")
class Pushed(NamedTuple):
    """An entry that push looked at."""

    entry: Moved
    result: Annotated[PushResult, "The result."]
    reason: Annotated[str, "Why it was not sent: a clause with the remedy."] = ""
    sent_bytes: Annotated[
        int, "Bytes that were sent; less than its size if the store had some of its files."
    ] = 0
    tells: str = ""
    """The facts on this machine in its files, as ``Moving.tells``; empty for an entry that is not sent."""


@json_keys("entry.* result reason differences unknown signer received_bytes")
class Pulled(NamedTuple):
    """An entry of a store that pull looked at."""

    entry: Moved
    result: Annotated[PullResult, "The result."]
    reason: Annotated[str, "Why it was not pulled, with the remedy; empty where the differences say it."] = ""
    differences: Annotated[tuple[Mismatch, ...], "The facts that differ."] = ()
    unknown: Annotated[tuple[str, ...], "Facts of the entry that this machine could not be compared by."] = ()
    signer: Annotated[OrNull, "The id of the key that signed it; null without a signature."] = ""
    received_bytes: Annotated[int, "Bytes of its files that were received."] = 0


class Immovable(NamedTuple):
    """A cache whose entries cannot be used on other machines."""

    cache: str
    reason: Annotated[str, "Why: a clause with the remedy if there is one."]


class Unsound(NamedTuple):
    """An object of a store that is not as gpucache wrote it, and belongs to no known entry."""

    name: Annotated[str, "Its name in the store."]
    detail: Annotated[str, "The fault and how to fix it, a clause."]
    wrong: Annotated[bool, "Whether that is damage, and not only another program's file."] = True


class Pin(NamedTuple):
    """The entries of a system that a pin keeps in a store; one with several pins counts for the first."""

    pin: Annotated[str, "Its name, as push --pin takes it."]
    cache: Annotated[str, "The system's name, as --cache takes it."]
    entries: int
    size_bytes: int


class NotMoved(NamedTuple):
    """Entries that were not moved, all for one reason."""

    cache: str
    result: Annotated[PushResult | PullResult, "Their result."]
    reason: Annotated[str, "The reason."]
    entries: int
    size_bytes: int
    examples: Annotated[tuple[str, ...], "The programs, or else the keys, of the first three."]


class Differing(NamedTuple):
    """Entries that differ from the machine in one fact; an entry that differs in two counts for both."""

    cache: str
    fact: Annotated[str, "The fact that differs, such as architecture, driver or version."]
    there: Annotated[str, "Its value for these entries."]
    here: Annotated[str, "Its value on the machine."]
    entries: int
    size_bytes: int


class Uncompared(NamedTuple):
    """Entries that were pulled although a fact that they name is not known of the machine."""

    cache: str
    fact: Annotated[str, "The fact."]
    entries: int


class Told(NamedTuple):
    """The facts on this machine in the files of sent entries."""

    cache: str
    tells: Annotated[str, "Such as source text."]
    entries: int


@dataclass(slots=True)
class TransferSummary:
    """The common counts of push and pull, as outcomes pass."""

    size_bytes: Annotated[int, "The size of the entries that were moved, or would be."] = 0
    moved_bytes: Annotated[int, "The bytes of files that were moved: equal files are moved once."] = 0
    immovable: Annotated[list[Immovable], "Caches that only their machine can use."] = field(
        default_factory=list
    )
    findings: Annotated[list[Unsound], "Objects that gpucache did not write like this; exit 3."] = field(
        default_factory=list
    )
    unread: tuple[str, ...] = ()
    _why: dict[tuple[str, PushResult | PullResult, str], NotMoved] = field(default_factory=dict)

    @property
    def reasons(self) -> tuple[NotMoved, ...]:
        """The entries that were not moved, by reason."""
        return tuple(self._why.values())

    @property
    def damaged(self) -> bool:
        """Whether an object of the store is damaged."""
        return any(one.wrong for one in self.findings)

    def note(self, found: Immovable | Unsound) -> None:
        if isinstance(found, Immovable):
            self.immovable.append(found)
        else:
            self.findings.append(found)

    def count_why(self, entry: Moved, result: PushResult | PullResult, reason: str) -> None:
        """Count an entry that was not moved under its reason."""
        place = (entry.cache, result, reason)
        known = self._why.get(place, NotMoved(*place, 0, 0, ()))
        examples = known.examples
        if len(examples) < NAMED:
            examples = tuple(dict.fromkeys((*examples, entry.program or entry.key[:12])))
        self._why[place] = known._replace(
            entries=known.entries + 1, size_bytes=known.size_bytes + entry.size_bytes, examples=examples
        )


@json_keys("counts.* size_bytes sent_bytes=moved_bytes reasons immovable tells findings unread")
@dataclass(slots=True)
class PushSummary(TransferSummary):
    """The number of entries by result, and the reasons."""

    counts: Annotated[dict[PushResult, int], "Entries whose result is"] = field(
        default_factory=lambda: dict.fromkeys(PushResult, 0)
    )
    _tells: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def tells(self) -> tuple[Told, ...]:
        """The facts on this machine in the files of entries that were sent, or would be."""
        return tuple(Told(*place, entries) for place, entries in self._tells.items())

    def of(self, found: Iterable[Pushed | Immovable | Unsound]) -> Iterator[Pushed]:
        """Pass the outcomes of entries through, one by one, and count everything."""
        for one in found:
            if not isinstance(one, Pushed):
                self.note(one)
                continue
            self.counts[one.result] += 1
            self.moved_bytes += one.sent_bytes
            if one.result in (PushResult.SENT, PushResult.WOULD_SEND):
                self.size_bytes += one.entry.size_bytes
                if one.tells:
                    self._tells[one.entry.cache, one.tells] += 1
            elif one.result is not PushResult.PRESENT:
                self.count_why(one.entry, one.result, one.reason)
            yield one

    @property
    def exit_code(self) -> ExitCode:
        """3 for damaged entries and objects, else 0."""
        return ExitCode.FINDINGS if self.counts[PushResult.FAILED] or self.damaged else ExitCode.DONE


@json_keys(
    "counts.* size_bytes received_bytes=moved_bytes groups uncompared reasons immovable findings unread"
)
@dataclass(slots=True)
class PullSummary(TransferSummary):
    """The number of entries by result, and the reasons."""

    counts: Annotated[dict[PullResult, int], "Entries whose result is"] = field(
        default_factory=lambda: dict.fromkeys(PullResult, 0)
    )
    _groups: Counter[tuple[str, Mismatch]] = field(default_factory=Counter)
    _group_bytes: Counter[tuple[str, Mismatch]] = field(default_factory=Counter)
    _uncompared: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def groups(self) -> tuple[Differing, ...]:
        """The entries for other machines by the fact that differs, the most first."""
        return tuple(
            Differing(place[0], *place[1], entries, self._group_bytes[place])
            for place, entries in self._groups.most_common()
        )

    @property
    def uncompared(self) -> tuple[Uncompared, ...]:
        """The facts that were not compared for entries that were pulled, or would be."""
        return tuple(Uncompared(*place, entries) for place, entries in self._uncompared.items())

    def of(self, found: Iterable[Pulled | Immovable | Unsound]) -> Iterator[Pulled]:
        """Pass the outcomes of entries through, one by one, and count everything."""
        for one in found:
            if not isinstance(one, Pulled):
                self.note(one)
                continue
            self.counts[one.result] += 1
            self.moved_bytes += one.received_bytes
            if one.result in (PullResult.PULLED, PullResult.WOULD_PULL):
                self.size_bytes += one.entry.size_bytes
                self._uncompared.update((one.entry.cache, fact) for fact in one.unknown)
            elif one.result is PullResult.DIFFERS:
                for why in one.differences:
                    self._groups[one.entry.cache, why] += 1
                    self._group_bytes[one.entry.cache, why] += one.entry.size_bytes
            elif one.result is not PullResult.PRESENT:
                self.count_why(one.entry, one.result, one.reason)
            yield one

    @property
    def exit_code(self) -> ExitCode:
        """3 if something in the store is unsigned or damaged or could not be written; else 0, also if
        entries differ."""
        bad = (PullResult.UNSIGNED, PullResult.DAMAGED, PullResult.FAILED)
        return ExitCode.FINDINGS if self.damaged or any(map(self.counts.get, bad)) else ExitCode.DONE


_PUSHED = {
    PushResult.SENT: "sent",
    PushResult.WOULD_SEND: "would be sent",
    PushResult.PRESENT: "there already",
    PushResult.REFUSED: "refused",
    PushResult.FAILED: "failed",
}
_PULLED = {
    PullResult.PULLED: "pulled",
    PullResult.WOULD_PULL: "would be pulled",
    PullResult.PRESENT: "here already",
    PullResult.DIFFERS: "for other machines",
    PullResult.UNSIGNED: "not signed by a trusted key",
    PullResult.DAMAGED: "damaged",
    PullResult.REFUSED: "refused",
    PullResult.FAILED: "failed",
}
_RESULT_STYLES = {"sent": "green", "pulled": "green", "refused": "yellow"} | dict.fromkeys(
    ("failed", "damaged", "unsigned"), "red"
)


def push(
    shown: Sequence[Pushed], summary: PushSummary, *, whole: bool = False, added: bool = False
) -> Iterator[Block]:
    """A row for each entry that is shown, the reasons, the kinds of content that go along, and the sum.

    ``added`` if only what a command adds was to be sent, which may be to caches that nobody wants to send.
    """
    yield from _rows(shown, whole=whole)
    refused = [one for one in summary.reasons if added and one.result is PushResult.REFUSED]
    yield from _reasons(summary, [one for one in summary.reasons if one not in refused])
    if refused:
        caches = ", ".join(dict.fromkeys(one.cache for one in refused))
        yield plain(
            f"some entries of {caches} are not sent; 'gpucache push URL --cache NAME' says why", "yellow"
        )
    for tells in dict.fromkeys(one.tells for one in summary.tells):
        same = [one for one in summary.tells if one.tells == tells]
        caches = ", ".join(f"{one.cache} ({one.entries})" for one in same)
        yield plain(f"entries of {caches} contain {tells}", "yellow")
    nothing = f"nothing to send: the caches have no {'new ' if added else ''}entries"
    yield _sum(summary, summary.counts, _PUSHED, nothing)


def pins(shown: Sequence[Pin]) -> Iterator[Block]:
    columns = (
        Column("pin", lambda one: one.pin, whole=True, shared=True),
        Column("cache", lambda one: one.cache, whole=True),
        Column("entries", lambda one: str(one.entries), numeric=True),
        Column("size", lambda one: format_size(one.size_bytes), numeric=True),
    )
    yield Grid(columns, shown) if shown else plain("no entry is pinned")


def pull(shown: Sequence[Pulled], summary: PullSummary, *, whole: bool = False) -> Iterator[Block]:
    """A row for each entry that is shown, the facts that differ, the reasons, and the sum."""
    yield from _rows(shown, whole=whole)
    if summary.groups:
        yield plain("Not pulled, as no program of this machine would hit them:")
        yield _differing(summary.groups[:ROWS_SHOWN])
        yield from more_rows(len(summary.groups), "difference")
        yield ""
    yield from _reasons(summary, summary.reasons)
    unknown: dict[str, list[str]] = {}
    for one in summary.uncompared:
        unknown.setdefault(one.fact, []).append(f"{one.cache} ({one.entries})")
    if unknown:
        facts = [f"{fact} of {', '.join(same)}" if whole else fact for fact, same in unknown.items()]
        listed = format_list(facts, len(facts) if whole else NAMED)
        yield plain(
            f"not compared, as this machine does not show it: {listed}; programs hit the entries that agree"
        )
    yield _sum(
        summary,
        summary.counts,
        _PULLED,
        "nothing to pull: the store has no entries of these caches; check its URL and --cache",
    )


def _rows(shown: Sequence[Pushed | Pulled], *, whole: bool) -> Iterator[Block]:
    """The entries, all columns if ``whole``; nothing for none."""
    if not shown:
        return
    caches = len({one.entry.cache for one in shown}) > 1
    columns: Sequence[Column] = (
        Column("cache", lambda one: one.entry.cache if caches else "", whole=True, shared=True),
        Column("key", lambda one: one.entry.key[:12], whole=True),
        Column("program", lambda one: one.entry.program),
        Column("target", lambda one: one.entry.target, shared=True),
        Column("size", lambda one: format_size(one.entry.size_bytes), numeric=True),
        Column("result", lambda one: plain(one.result, _RESULT_STYLES.get(one.result, "")), whole=True),
    )
    yield Grid(columns, shown if whole else shown[:ROWS_SHOWN], every=whole)
    yield from more_rows(0 if whole else len(shown), "entry", "entries")
    yield ""


def _differing(groups: Sequence[Differing]) -> Grid:
    columns = (
        Column("cache", lambda one: one.cache, whole=True, shared=True),
        Column("fact", lambda one: one.fact, whole=True),
        Column("in the store", lambda one: _apart(one)[0], prose=True),
        Column("wanted", lambda one: _apart(one)[1], prose=True),
        Column("entries", lambda one: str(one.entries), numeric=True),
        Column("size", lambda one: format_size(one.size_bytes), numeric=True),
    )
    return Grid(columns, groups)


def _apart(one: Differing) -> list[str]:
    sides = Difference(one.fact, one.there, one.here).apart()
    return ["none of these" if side is None else side for side in sides]


def _reasons(summary: TransferSummary, reasons: Sequence[NotMoved]) -> Iterator[Block]:
    """A row for entries that share a reason, a sentence for each cache that cannot move and each finding."""
    columns = (
        Column("cache", lambda one: one.cache, whole=True, shared=True),
        Column("result", lambda one: plain(one.result, _RESULT_STYLES[one.result]), whole=True, shared=True),
        Column("entries", lambda one: str(one.entries), numeric=True),
        Column("such as", lambda one: ", ".join(one.examples), spare=1),
        Column("why", lambda one: one.reason, prose=True),
    )
    if reasons:
        yield Grid(columns, reasons[:ROWS_SHOWN])
        yield from more_rows(len(reasons), "reason")
        yield ""
    for why in dict.fromkeys(one.reason for one in summary.immovable):
        caches = ", ".join(one.cache for one in summary.immovable if one.reason == why)
        yield one_line(f"{caches}: cannot be moved: {why}", "yellow")
    for finding in summary.findings[:ROWS_SHOWN]:
        yield one_line(f"{finding.name}: {finding.detail}", "red")
    yield from more_rows(len(summary.findings), "finding")


def _sum(summary: TransferSummary, counts: Mapping[_R, int], words: Mapping[_R, str], nothing: str) -> Block:
    """The counts that are not zero; entries that were moved, or would be, come first."""
    done, would = list(words)[:2]
    parts = [f"{counts[result]} {words[result]}" for result in list(words)[2:] if counts[result]]
    if moved := counts[done] + counts[would]:
        new = summary.moved_bytes if counts[done] else summary.size_bytes
        size = format_size(summary.size_bytes)
        size += f", {format_size(new)} of it new" if new < summary.size_bytes else ""
        how = words[done if counts[done] else would]
        parts.insert(0, f"{format_count(moved, 'entry', 'entries')} {how} ({size})")
    elif parts:
        parts.insert(0, f"nothing {words[done]}")
    if summary.findings:
        parts.append(f"{format_count(len(summary.findings), 'finding')} in the store")
    nothing = nothing.partition(":")[0] if summary.immovable else nothing
    return plain(f"{', '.join(parts) or nothing}{unread_words(summary.unread)}", "bold")
