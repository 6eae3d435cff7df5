"""The results of verify: the problems found, and the entries that could not be checked."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Annotated, NamedTuple

from gpucache.answers.console import NAMED, ROWS_SHOWN, Block, Column, Grid, more_rows, plain
from gpucache.answers.entries import CacheEntry, FindingKind, Problem, unread_words
from gpucache.errors import ExitCode
from gpucache.json_keys import json_keys
from gpucache.units import format_count, format_list

_KEY = re.compile(r"[0-9a-f]{12,}(-\d+)?")


@json_keys("cache entry kind wrong=kind.wrong program target detail repaired")
class Finding(NamedTuple):
    """Something that verify found."""

    cache: str
    entry: Annotated[str, "The entry's key, or the file's name where it has none."]
    kind: Annotated[FindingKind, "The kind of finding."]
    detail: Annotated[str, "A sentence."]
    program: str = ""
    target: Annotated[str, "The target; empty where it is not known."] = ""
    repaired: Annotated[bool, "Whether --repair fixed it."] = False
    paths: Annotated[
        tuple[str, ...] | None, "The files whose removal fixes it, as in ``Problem``; not printed."
    ] = None

    @classmethod
    def of(cls, problem: Problem, cache: str, entry: str, program: str = "", target: str = "") -> "Finding":
        """A problem of an entry, or of a file that is not one, as a sentence."""
        kind = problem.kind or FindingKind.UNTRUSTED
        detail = f"{problem.detail}; {problem.remedy}" if problem.remedy else problem.detail
        return cls(cache, entry, kind, detail, program, target, paths=problem.paths)

    @classmethod
    def about(cls, entry: CacheEntry, problem: Problem) -> "Finding":
        return cls.of(problem, entry.cache, entry.key, entry.program, entry.target)

    @property
    def problem(self) -> Problem:
        return Problem(self.kind, self.detail, paths=self.paths)


class Checked(NamedTuple):
    """An entry that was looked at; ``findings`` is empty for a sound one."""

    entry: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """The trials that gave no result, such as ``not comparable``."""
    counts: int = 1
    """For how many entries it counts: for several sound ones, and for none if it is of a file that is not an
    entry, or of an entry that was counted."""
    unchecked: str = ""
    """Why it could not be checked, if the entry is not at fault: the machine lacks something."""
    checksum: bool = True
    """Whether a checksum over its content was compared; without one only its form was checked."""
    passed: tuple[str, ...] = ()
    """The trials that found no fault: ``loaded``, ``rebuilt``."""
    unseen: str = ""
    """Faults that no check can find, as the cache's owner stores nothing to check against; a sentence."""

    def fixed(self) -> "Checked":
        return self._replace(findings=tuple(one._replace(repaired=True) for one in self.findings))

    def unfixed(self, why: str, kinds: Collection[FindingKind]) -> "Checked":
        """The result, in which each finding of some kinds says why it remains."""
        told = (
            one._replace(detail=f"{one.detail}; {why}") if one.kind in kinds else one for one in self.findings
        )
        return self._replace(findings=tuple(told))


class Note(NamedTuple):
    """The trials of verify that gave no result."""

    entry: Annotated[str, "The entry's key."]
    note: Annotated[str, "A sentence."]


@json_keys(
    "checked sound without_checksum loaded rebuilt findings wrong repaired notes unchecked unseen unread"
)
class VerifySummary(NamedTuple):
    """How many entries were checked, how many are sound, the findings, and the trials without a result."""

    checked: Annotated[int, "Entries that were checked."]
    sound: Annotated[int, "How many of them have no fault."]
    findings: Annotated[int, "Findings of every kind."]
    wrong: Annotated[int, "How many of them give exit 3."]
    repaired: Annotated[int, "How many --repair fixed."]
    wrong_repaired: int
    notes: Annotated[tuple[Note, ...], "The trials that gave no result."]
    unchecked: Annotated[tuple[Note, ...], "Parts that could not be checked, for a reason outside of them."]
    without_checksum: Annotated[int, "How many of the sound ones could be checked only for their form."]
    loaded: Annotated[int | None, "How many of the checked ones were loaded; null without --load."] = None
    rebuilt: Annotated[int | None, "How many compiled to the same bytes again; null without --rebuild."] = (
        None
    )
    unseen: Annotated[
        tuple[str, ...], "Faults that no check of these caches finds, a sentence by system."
    ] = ()
    unread: tuple[str, ...] = ()

    def exit_code(self, *, strict: bool) -> ExitCode:
        """3 for anything wrong that was not repaired, with strict for any finding; else 4 if unchecked."""
        open_findings = self.findings - self.repaired if strict else self.wrong - self.wrong_repaired
        if open_findings > 0:
            return ExitCode.FINDINGS
        return ExitCode.NOTHING_ATTEMPTED if self.unchecked else ExitCode.DONE


def summarise_verify(
    outcomes: Iterable[Checked], *, load: bool = False, rebuild: bool = False
) -> VerifySummary:
    """The summary of a run of verify; ``load`` and ``rebuild`` are the trials that were requested."""
    count: Counter[str] = Counter()
    notes: list[Note] = []
    unchecked: list[Note] = []
    unseen: dict[str, None] = {}
    for outcome in outcomes:
        checked = 0 if outcome.unchecked else outcome.counts
        sound = 0 if any(finding.kind.wrong for finding in outcome.findings) else checked
        count["checked"] += checked
        count["sound"] += sound
        count["without_checksum"] += 0 if outcome.checksum else sound
        count.update(outcome.passed if checked else ())
        if sound and outcome.unseen:
            unseen[outcome.unseen] = None
        for finding in outcome.findings:
            count["findings"] += 1
            count["wrong"] += finding.kind.wrong
            count["repaired"] += finding.repaired
            count["wrong_repaired"] += finding.kind.wrong and finding.repaired
        notes += (Note(outcome.entry, note) for note in outcome.notes)
        if outcome.unchecked:
            unchecked.append(Note(outcome.entry, outcome.unchecked))
    return VerifySummary(
        count["checked"],
        count["sound"],
        count["findings"],
        count["wrong"],
        count["repaired"],
        count["wrong_repaired"],
        tuple(notes),
        tuple(unchecked),
        count["without_checksum"],
        count["loaded"] if load else None,
        count["rebuilt"] if rebuild else None,
        tuple(unseen),
    )


def verify(outcomes: Sequence[Checked], summary: VerifySummary, *, whole: bool = False) -> Iterator[Block]:
    """A row for each finding, then unchecked entries, then the sum; first sound entries if ``whole``."""
    for outcome in outcomes if whole else ():
        if outcome.counts and not outcome.findings and not outcome.unchecked:
            yield plain(f"{_brief(outcome.entry)}: no fault found", "green")
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    if findings:
        caches = len({finding.cache for finding in findings}) > 1
        columns = (
            Column("cache", lambda one: one.cache if caches else "", whole=True, shared=True),
            Column("entry", lambda one: _brief(one.entry), whole=True),
            Column("finding", lambda one: plain(one.kind, "red" if one.kind.wrong else "yellow"), whole=True),
            Column("program", lambda one: one.program, prose=True),
            Column("detail", lambda one: one.detail + _repaired(one), prose=True),
        )
        yield Grid(columns, findings[:ROWS_SHOWN])
        yield from more_rows(len(findings), "finding")
    notes = _shared((outcome.entry, note) for outcome in outcomes for note in outcome.notes)
    yield from (plain(note, "dim") for note in notes[:ROWS_SHOWN])
    yield from more_rows(len(notes), "note")
    unchecked = ((one.entry, f"not checked: {one.unchecked}") for one in outcomes if one.unchecked)
    yield from (plain(why, "yellow") for why in _shared(unchecked))
    repaired = f", {summary.repaired} repaired" if summary.repaired else ""
    left = f", {len(summary.unchecked)} not checked" if summary.unchecked else ""
    yield from (plain(sentence, "dim") for sentence in summary.unseen)
    said = whole or summary.unseen or any(one.findings or one.notes or one.unchecked for one in outcomes)
    gap = "\n" if said else ""
    checked = format_count(summary.checked, "entry", "entries")
    yield plain(
        f"{gap}{checked} checked: {_tried(summary)}{_found(findings)}{_without(summary)}{repaired}{left}"
        f"{unread_words(summary.unread)}",
        "bold",
    )


def _tried(summary: VerifySummary) -> str:
    trials = {"loaded": summary.loaded, "rebuilt": summary.rebuilt}
    return "".join(
        f"{count} {name} and {summary.checked - count} not, "
        for name, count in trials.items()
        if count is not None
    )


def _found(findings: Sequence[Finding]) -> str:
    counts = Counter(sorted((finding.kind for finding in findings), key=lambda kind: not kind.wrong))
    told = [f"{count} {kind}" for kind, count in counts.items()]
    if told and not any(kind.wrong for kind in counts):
        told.insert(0, "0 damaged")
    return ", ".join(told) or "no fault found"


def _without(summary: VerifySummary) -> str:
    return f" ({summary.without_checksum} without a checksum)" if summary.without_checksum else ""


def _repaired(finding: Finding) -> str:
    """The effect of a repair: our own store keeps damaged files, so that they can be examined."""
    if not finding.repaired:
        return ""
    if finding.cache != "gpucache":
        return " (repaired)"
    return " (moved to quarantine)" if finding.kind.wrong else " (removed)"


def _shared(found: Iterable[tuple[str, str]]) -> list[str]:
    entries: dict[str, list[str]] = {}
    for entry, sentence in found:
        entries.setdefault(sentence, []).append(_brief(entry))
    return [f"{format_list(named, NAMED)}: {sentence}" for sentence, named in entries.items()]


def _brief(entry: str) -> str:
    """A key as people see it, or the last part of a path."""
    return entry[:12] if _KEY.fullmatch(entry) else PurePath(entry).name[-32:] or entry
