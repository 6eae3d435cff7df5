"""Whether a PoCL cache has a kernel for a local size; PoCL does not store more than that.

The hash covers the preprocessed source, the options, and PoCL's own version, build time and LLVM, and is
all that is left of them. So the answers are about kernels by name. Must not know files.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpucache.answers.entries import Problem
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Wanted
from gpucache.caches.pocl.entry import Program, Variant
from gpucache.caches.pocl.locations import PoclPlaces
from gpucache.errors import UsageError
from gpucache.keys import Difference
from gpucache.units import printable

FIELDS: Mapping[str, str] = {
    "kernel": "the name of a kernel; may be repeated",
    "local-size": "a local size that it is launched with, such as 64x1x1; may be repeated",
    "llvm": "the version of LLVM in PoCL's platform version, such as 15.0.6",
}
_SIZE = re.compile(r"([0-9]{1,9})(?:[x,]([0-9]{1,9}))?(?:[x,]([0-9]{1,9}))?")
_LLVM = re.compile(r"(?:LLVM)?\s*([0-9][0-9A-Za-z.+~-]{0,40})", re.IGNORECASE)
_UNSTORED = "PoCL stores neither source nor options, so it may be another program's kernel of that name"


Check = Callable[[Program], Problem | None]
"""The problems of a program, checked whole; None for a sound one."""


@dataclass(frozen=True, slots=True)
class Question:
    """One kernel for one local size, of one LLVM if that is named."""

    kernel: str
    local_size: str
    llvm: str

    @property
    def words(self) -> str:
        """The question, in a few words."""
        size = f" with local size {self.local_size}" if self.local_size else ""
        return f"kernel {self.kernel}{size}{f' of LLVM {self.llvm}' if self.llvm else ''}"


def read_questions(wanted: Wanted) -> list[Question]:
    """The questions: each kernel with each local size; raises UsageError."""
    kernels = [printable(raw.decode("utf-8", "surrogateescape").strip()) for raw in wanted.get("kernel", ())]
    if not kernels or not all(kernels):
        raise UsageError(
            "PoCL does not store a program's inputs, so ask for a kernel by name: "
            "'gpucache inspect --cache pocl --why --want kernel=NAME'"
        )
    sizes = [_local_size(raw) for raw in wanted.get("local-size", ())] or [""]
    versions = [_version(raw) for raw in wanted.get("llvm", ())] or [""]
    if len(versions) > 1:
        raise UsageError(f"the field 'llvm' is given {len(versions)} times; give it once")
    return [Question(kernel, size, versions[0]) for kernel in kernels for size in sizes]


def _local_size(raw: bytes) -> str:
    match = _SIZE.fullmatch(raw.decode("ascii", "replace").strip())
    if match is None:
        raise UsageError(
            f"{printable(raw.decode('ascii', 'replace'))!r} is not a local size; write it as 64x1x1"
        )
    return "x".join(str(int(extent or "1")) for extent in match.groups())


def _version(raw: bytes) -> str:
    match = _LLVM.fullmatch(raw.decode("ascii", "replace").strip())
    if match is None:
        raise UsageError(
            f"{printable(raw.decode('ascii', 'replace'))!r} is not a version of LLVM; write it as 15.0.6"
        )
    return match[1]


def answer(question: Question, candidates: Sequence[Program], check: Check) -> Reach:
    """Whether a kernel exists for a local size, and if not what exists of it."""
    holding = [one for one in candidates if question.kernel in _names(one)]
    if not holding:
        return _missing(question, candidates)
    fitting = [one for one in holding if not question.llvm or one.llvm == question.llvm]
    if not fitting:
        return _of_another_llvm(question, _latest(holding))
    sized = [one for one in fitting if _for_size(question, one)]
    if not sized:
        return _of_another_size(question, _latest(fitting))
    return _held(question, sized, check)


def _missing(question: Question, candidates: Sequence[Program]) -> Reach:
    unreadable = [one for one in candidates if one.broken and not _names(one)]
    if unreadable:
        first = unreadable[0]
        detail = f"no readable program has it, but {len(unreadable)} cannot be read; {_remedy(first)}"
        return Reach(PoclPlaces.name, question.words, Verdict.CORRUPT, detail, nearest=first.files.key)
    detail = (
        "no program in this cache has a kernel of this name: it was never built, or was removed, which PoCL "
        "does not record"
    )
    return Reach(PoclPlaces.name, question.words, Verdict.NEVER_BUILT, detail)


def _of_another_llvm(question: Question, one: Program) -> Reach:
    held = one.llvm or "unknown"
    detail = (
        f"the kernel exists, compiled by LLVM {held}, which is in the hash; "
        f"PoCL of LLVM {question.llvm} builds it anew"
    )
    difference = Difference("LLVM", held, question.llvm)
    return Reach(PoclPlaces.name, question.words, Verdict.KEY_CHANGED, detail, (difference,), one.files.key)


def _for_size(question: Question, one: Program) -> list[Variant]:
    own = [variant for variant in one.variants if variant.kernel == question.kernel]
    return [
        variant for variant in own if not question.local_size or variant.local_size == question.local_size
    ]


def _of_another_size(question: Question, one: Program) -> Reach:
    own = [variant for variant in one.variants if variant.kernel == question.kernel]
    held = ", ".join(dict.fromkeys(variant.words for variant in own))
    lacking = f"this launch, only for {held}" if held else "any launch"
    detail = (
        f"its program exists, but the kernel is not compiled for {lacking}; PoCL compiles it at the first "
        "launch, so launch it once where the cache is filled"
    )
    difference = Difference("local size", held or None, question.local_size or None)
    return Reach(PoclPlaces.name, question.words, Verdict.KEY_CHANGED, detail, (difference,), one.files.key)


def _held(question: Question, sized: Sequence[Program], check: Check) -> Reach:
    latest = _latest(sized)
    key = latest.files.key
    if (wrong := check(latest)) is not None:
        return Reach(
            PoclPlaces.name, question.words, Verdict.CORRUPT, f"{wrong}; {_remedy(latest)}", nearest=key
        )
    words = ", ".join(dict.fromkeys(variant.words for one in sized for variant in _for_size(question, one)))
    where = "there" if len(sized) == 1 else f"in {len(sized)} programs"
    told = f"kernel {question.kernel} is {where}, compiled for {words}; {_UNSTORED}"
    if question.local_size:
        return Reach(PoclPlaces.name, question.words, Served.HIT, told, nearest=key)
    detail = f"{told}; give local-size=SIZE to ask for a launch"
    return Reach(PoclPlaces.name, question.words, Verdict.NOT_RECORDED, detail, nearest=key)


def _names(one: Program) -> frozenset[str]:
    """All of its kernels, as directories and bitcode name them."""
    return frozenset((*(one.module.kernels if one.module else ()), *one.folders))


def _remedy(one: Program) -> str:
    return f"run 'gpucache verify --cache {shlex.quote(f'{PoclPlaces.name}:{one.files.root}')} --repair'"


def _latest(some: Sequence[Program]) -> Program:
    return max(some, key=lambda one: (one.accessed_ns, one.files.key))
