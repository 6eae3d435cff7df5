"""Whether Futhark would restore a cache file for a program, and if not what is in the way.

Owns the verdicts. The files were read before; must not touch any.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.futhark.changes import Change, Edit, label_of
from gpucache.caches.futhark.file import RECOMPILED
from gpucache.caches.futhark.keys import COMPARED_BYTES, to_bytes, to_number, total
from gpucache.caches.futhark.logs import LogReading, Outcome
from gpucache.caches.futhark.question import Question, cancelled
from gpucache.caches.futhark.searching import Explanation, search
from gpucache.keys import Difference
from gpucache.units import printable

_CACHE = "futhark"
_TOLD = 3
"""Explanations of one difference that are told."""
_ALWAYS = (b"-I/usr/local/cuda/include", b"-I/usr/include")
_VARIABLES = "CUDA_HOME, CUDA_ROOT, CUDA_PATH"
_CHAR = {True: "signed", False: "unsigned"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache file that a program may be given."""

    name: str
    key: bytes
    """Empty where the file is damaged."""
    entry: str
    """What its entry is called."""
    backend: str
    damage: str
    """Why Futhark does not restore it, whatever the key; empty where nothing is."""
    readable: bool
    """False for a link, and for a file that may not be read."""
    payload_problem: Callable[[], str]
    """What is wrong with what it holds, looked for only where the key fits."""


def explain(question: Question, candidates: Sequence[Candidate]) -> Iterator[Reach]:
    """One answer per file; of several files the one that the log names, where it names one."""
    asked = _asked_for(question)
    named = [one for one in candidates if one.name == asked]
    chosen = named or list(candidates)
    if not chosen:
        yield _never_built(question)
        return
    if not question.backend:
        question = question.of(next((one.backend for one in chosen if one.backend), "cuda"))
    expected = total(question.inputs, signed=question.signed)
    strange = total(question.inputs, signed=not question.signed)
    apart = {to_number(one.key) ^ expected for one in chosen if not one.damage} - {0, strange ^ expected}
    found = search(question.options, question.backend, question.environ, apart, signed=question.signed)
    answers = _Answers(question, expected, strange, found, asked if not named else "")
    yield from (answers.of(one) for one in chosen)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is known once for all files."""

    question: Question
    expected: int
    strange: int
    """The key where ``char`` is of the other kind."""
    found: dict[int, Explanation]
    elsewhere: str
    """The file that the log asks for, where it is none of these."""

    def of(self, one: Candidate) -> Reach:
        if not one.readable:
            return self._reach(one, Verdict.OPAQUE_KEY, f"{one.damage}, so its key is not known")
        if one.damage:
            return self._reach(one, Verdict.CORRUPT, one.damage)
        difference = to_number(one.key) ^ self.expected
        if not difference:
            return self._matching(one)
        why, changed = self._why(to_number(one.key))
        if one.key[:COMPARED_BYTES] != to_bytes(self.expected)[:COMPARED_BYTES]:
            return self._reach(one, Verdict.KEY_CHANGED, f"{why}; {RECOMPILED}", changed)
        detail = (
            "Futhark compares only the first eight bytes of the key, so it will accept this file "
            f"although it was made from other inputs ({why}); remove it"
        )
        return self._reach(one, Served.FALSE_HIT, detail, changed)

    def _matching(self, one: Candidate) -> Reach:
        log = self.question.log
        if problem := one.payload_problem():
            return self._reach(one, Verdict.CORRUPT, f"the key matches, but {problem}")
        if log is not None and log.outcome is Outcome.STOPPED:
            detail = "the platform refuses to build what was restored, and Futhark does not compile again"
            return self._reach(one, Verdict.REJECTED, f"{detail}; remove the file")
        if self.elsewhere:
            detail = (
                f"the key matches, but the program asked for {self.elsewhere}; start it with --cache-file"
            )
            return self._reach(one, Verdict.NOT_CONSULTED, f"{detail} {one.name}")
        return self._reach(one, Served.HIT, "all 32 bytes of its key match, so Futhark restores it")

    def _why(self, key: int) -> tuple[str, tuple[Difference, ...]]:
        """What explains another key, in words, and as differences where there is one explanation."""
        if key == self.strange:
            here, there = _CHAR[self.question.signed], _CHAR[not self.question.signed]
            why = (
                f"it was made where char is {there} (unsigned on AArch64, signed on x86-64), and the source "
                "has bytes that count differently there"
            )
            return why, (Difference("char", there, here),)
        explanation = self.found.get(key ^ self.expected, Explanation())
        changed = _differences(explanation.only) if explanation.only else ()
        return _told(explanation, self.question), changed

    def _reach(
        self, one: Candidate, verdict: Served | Verdict, detail: str, changed: tuple[Difference, ...] = ()
    ) -> Reach:
        wanted = f"{one.name}: {self.question.words}"
        return Reach(_CACHE, wanted, verdict, detail + _notes(self.question), changed, one.entry)


def _never_built(question: Question) -> Reach:
    remedy = "start the program with --cache-file, in a folder that exists, and it is made"
    log = question.log
    if log is not None and log.store_error:
        remedy = (
            f"the log says that it could not be written ({printable(log.store_error)}); name another file"
        )
    return Reach(_CACHE, question.words, Verdict.NEVER_BUILT, f"there is no cache file; {remedy}")


def _told(explanation: Explanation, question: Question) -> str:
    ways = explanation.alternatives
    if explanation.only:
        made = _made(explanation.only, question.options)
        alone = "no other two changes of options" if explanation.together else "no other change of an option"
        return f"most likely it was made {made}, as {alone} that could be tried explained the key"
    if ways:
        some = ", or ".join(f"it was made {_made(one, question.options)}" for one in ways[:_TOLD])
        more = "" if len(ways) <= _TOLD else ", or in yet another way"
        return (
            f"several changes explain the key, which cannot tell them apart, likely ones first: {some}{more}"
        )
    return (
        "the source or several options differ, more likely the source, as no change of one or two options "
        "explains the key and the file stores no source to compare"
    )


def _notes(question: Question) -> str:
    """What the log and the options say beyond the verdict, as clauses."""
    twice = [printable(option) for option in cancelled(question)[:_TOLD]]
    notes = [_log_note(question.log)] if question.log is not None else []
    if twice:
        notes.append(f"{', '.join(twice)} is given an even number of times, which cancels in the key")
    return "".join(f"; {note}" for note in notes if note)


def _log_note(log: LogReading) -> str:
    if log.outcome is Outcome.UNSAID:
        return "the log has no line about a cache file" if log.options is not None else ""
    reason = f" ({printable(log.reason)})" if log.reason else ""
    failed = f", and that it could not be written ({printable(log.store_error)})" if log.store_error else ""
    return f"the log says that {log.outcome.value}{reason}{failed}"


def _asked_for(question: Question) -> str:
    name = question.log.asked_for if question.log is not None else b""
    return PurePath(name.decode("utf-8", "surrogateescape")).name


def _differences(change: Change) -> tuple[Difference, ...]:
    """One difference per option: left as the file was made, right as it is wanted."""
    return tuple(
        Difference(
            printable(label_of(edit.stored or edit.wanted or b"")), _text(edit.stored), _text(edit.wanted)
        )
        for edit in change
    )


def _made(change: Change, options: Sequence[bytes]) -> str:
    """A change as a clause: what the file was made with, and what is given now."""
    return " and ".join(_edit(edit, options) for edit in change)


def _edit(edit: Edit, options: Sequence[bytes]) -> str:
    stored, wanted = _text(edit.stored), _text(edit.wanted)
    if edit.stored is None:
        return _without(edit.wanted or b"", options)
    hint = _hint(edit.stored)
    if edit.wanted is None:
        return f"with {stored}, which is not given now{hint}"
    return f"with {stored} and not {wanted}{hint}"


def _without(option: bytes, options: Sequence[bytes]) -> str:
    text = printable(option)
    if option in _ALWAYS and options.count(option) == 1:
        folder = text.removeprefix("-I").removesuffix("/include")
        return f"with {text} twice, which cancels (one of {_VARIABLES} was {folder})"
    if options.count(option) > 1:
        return f"with {text} once more or once less than now"
    return f"without {text}{_hint(option)}"


def _hint(option: bytes) -> str:
    """Where a folder comes from."""
    return f" ({_VARIABLES} or HIP_PATH may differ)" if option.startswith(b"-I") else ""


def _text(option: bytes | None) -> str | None:
    return None if option is None else printable(option)
