"""Outcomes of verify."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.told import told
from gpucache.errors import ExitCode


@told("cache entry kind wrong=kind.wrong program target detail repaired")
class Finding(NamedTuple):
    """Something that verify found."""

    cache: str
    """The cache's name, as --cache takes it."""
    entry: str
    """The entry's key, or the file's name where it has none."""
    kind: FindingKind
    """What it is."""
    detail: str
    """A sentence."""
    program: str = ""
    """The program's name."""
    target: str = ""
    """The target; empty where it is not known."""
    repaired: bool = False
    """Whether --repair mended it."""
    paths: tuple[str, ...] | None = None
    """As ``Problem`` has them; nobody is shown them."""

    @classmethod
    def of(cls, problem: Problem, cache: str, entry: str, program: str = "", target: str = "") -> "Finding":
        """A problem of an entry, or of what is none, as a sentence."""
        kind = problem.kind or FindingKind.UNTRUSTED
        detail = f"{problem.detail}; {problem.remedy}" if problem.remedy else problem.detail
        return cls(cache, entry, kind, detail, program, target, paths=problem.paths)

    @property
    def problem(self) -> Problem:
        """The problem that it is about."""
        return Problem(self.kind, self.detail, paths=self.paths)


class Checked(NamedTuple):
    """An entry that was looked at; ``findings`` is empty for a sound one."""

    entry: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """What was tried and could not be told, such as ``not comparable``."""
    counts: bool = True
    """False for what is no entry (a leftover), which is not counted as checked."""
    unchecked: str = ""
    """Why it could not be checked, where that is no fault of it: the machine is short of something."""
    checksum: bool = True
    """Whether a checksum over what it holds was compared; without one only its form was checked."""

    def mended(self) -> "Checked":
        """The same with every finding marked as repaired."""
        return self._replace(findings=tuple(one._replace(repaired=True) for one in self.findings))

    def unmended(self, why: str, kinds: Collection[FindingKind]) -> "Checked":
        """The same, in which each finding of some kinds says why it stays."""
        told = (
            one._replace(detail=f"{one.detail}; {why}") if one.kind in kinds else one for one in self.findings
        )
        return self._replace(findings=tuple(told))


class Note(NamedTuple):
    """What verify tried and could not tell."""

    entry: str
    """The entry's key."""
    note: str
    """A sentence."""


@told("checked sound without_checksum findings wrong repaired notes unchecked unread")
class VerifySummary(NamedTuple):
    """How many entries were checked, how many are sound, what was found, and what could not be told."""

    checked: int
    """Entries that were checked."""
    sound: int
    """Those with nothing wrong."""
    findings: int
    """Findings of every kind."""
    wrong: int
    """Those that give exit 3."""
    repaired: int
    """Those that --repair mended."""
    wrong_repaired: int
    notes: tuple[Note, ...]
    """What was tried and could not be told."""
    unchecked: tuple[Note, ...]
    """What could not be checked, for a reason outside of it."""
    without_checksum: int
    """Those of the sound ones of which only the form could be checked."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""

    def exit_code(self, *, strict: bool) -> ExitCode:
        """3 for anything wrong that was not repaired, with strict for any finding; else 4 if unchecked."""
        open_findings = self.findings - self.repaired if strict else self.wrong - self.wrong_repaired
        if open_findings > 0:
            return ExitCode.FINDINGS
        return ExitCode.NOTHING_ATTEMPTED if self.unchecked else ExitCode.DONE


def summarise_verify(outcomes: Iterable[Checked]) -> VerifySummary:
    """The summary of a run of verify."""
    checked = sound = found = wrong = repaired = wrong_repaired = without_checksum = 0
    notes: list[Note] = []
    unchecked: list[Note] = []
    for outcome in outcomes:
        told = outcome.counts and not outcome.unchecked
        checked += told
        if told and not any(finding.kind.wrong for finding in outcome.findings):
            sound += 1
            without_checksum += not outcome.checksum
        found += len(outcome.findings)
        wrong += sum(finding.kind.wrong for finding in outcome.findings)
        repaired += sum(finding.repaired for finding in outcome.findings)
        wrong_repaired += sum(finding.repaired and finding.kind.wrong for finding in outcome.findings)
        notes += (Note(outcome.entry, note) for note in outcome.notes)
        if outcome.unchecked:
            unchecked.append(Note(outcome.entry, outcome.unchecked))
    return VerifySummary(
        checked,
        sound,
        found,
        wrong,
        repaired,
        wrong_repaired,
        tuple(notes),
        tuple(unchecked),
        without_checksum,
    )
