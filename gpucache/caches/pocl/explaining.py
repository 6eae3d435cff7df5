"""Whether a PoCL cache has a kernel for a local size; PoCL does not store more than that.

The hash covers the preprocessed source, the options, and PoCL's own version, build time and LLVM, and is
all that is left of them. So the results are about kernels by name. Must not know files.
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
_UNSTORED = "PoCL stores no source and no options, so it may be another program's kernel of that name"


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
    versions = [
        _matched(_LLVM, raw, "a version of LLVM; write it as 15.0.6")[1] for raw in wanted.get("llvm", ())
    ] or [""]
    if len(versions) > 1:
        raise UsageError(f"the field 'llvm' is given {len(versions)} times; give it once")
    return [Question(kernel, size, versions[0]) for kernel in kernels for size in sizes]


def _local_size(raw: bytes) -> str:
    match = _matched(_SIZE, raw, "a local size; write it as 64x1x1")
    return "x".join(str(int(extent or "1")) for extent in match.groups())


def _matched(pattern: re.Pattern[str], raw: bytes, what: str) -> re.Match[str]:
    text = raw.decode("ascii", "replace")
    if (match := pattern.fullmatch(text.strip())) is None:
        raise UsageError(f"{printable(text)!r} is not {what}")
    return match


def answer(question: Question, candidates: Sequence[Program], check: Check) -> Reach:
    """Whether a kernel exists for a local size, and if not for which ones."""

    def reach(verdict: Served | Verdict, detail: str, one: Program | None, *differs: Difference) -> Reach:
        return Reach(PoclPlaces.name, question.words, verdict, detail, differs, one.files.key if one else "")

    def of_kernel(one: Program, size: str = "") -> list[Variant]:
        own = (variant for variant in one.variants if variant.kernel == question.kernel)
        return [variant for variant in own if size in ("", variant.local_size)]

    holding = [one for one in candidates if question.kernel in _names(one)]
    if not holding and (unreadable := [one for one in candidates if one.broken and not _names(one)]):
        told = f"no readable program has it, but {len(unreadable)} cannot be read; {_remedy(unreadable[0])}"
        return reach(Verdict.CORRUPT, told, unreadable[0])
    if not holding:
        told = (
            "no program in this cache has a kernel of this name: it was never built, or was removed, which "
            "PoCL does not record"
        )
        return reach(Verdict.NEVER_BUILT, told, None)
    fitting = [one for one in holding if question.llvm in ("", one.llvm)]
    if not fitting:
        held = _latest(holding).llvm or "unknown"
        told = (
            f"the kernel exists, compiled by LLVM {held}, which is in the hash; "
            f"PoCL of LLVM {question.llvm} builds it anew"
        )
        return reach(Verdict.KEY_CHANGED, told, _latest(holding), Difference("LLVM", held, question.llvm))
    sized = [one for one in fitting if of_kernel(one, question.local_size)]
    latest = _latest(sized or fitting)
    of_each = [of_kernel(one, question.local_size) for one in sized] or [of_kernel(latest)]
    words = ", ".join(dict.fromkeys(variant.words for own in of_each for variant in own))
    if not sized:
        told = (
            "its program exists, but the kernel is not compiled for "
            f"{f'this launch, only for {words}' if words else 'any launch'}; PoCL compiles it at the first "
            "launch, so launch it once where the cache is filled"
        )
        difference = Difference("local size", words or None, question.local_size or None)
        return reach(Verdict.KEY_CHANGED, told, latest, difference)
    if (wrong := check(latest)) is not None:
        return reach(Verdict.CORRUPT, f"{wrong}; {_remedy(latest)}", latest)
    where = "there" if len(sized) == 1 else f"in {len(sized)} programs"
    told = f"kernel {question.kernel} is {where}, compiled for {words}; {_UNSTORED}"
    if question.local_size:
        return reach(Served.HIT, told, latest)
    return reach(Verdict.NOT_RECORDED, f"{told}; give local-size=SIZE to ask for a launch", latest)


def _names(one: Program) -> frozenset[str]:
    """All of its kernels, as directories and bitcode name them."""
    return frozenset((*(one.module.kernels if one.module else ()), *one.folders))


def _remedy(one: Program) -> str:
    return f"run 'gpucache verify --cache {shlex.quote(f'{PoclPlaces.name}:{one.files.root}')} --repair'"


def _latest(some: Sequence[Program]) -> Program:
    return max(some, key=lambda one: (one.accessed_ns, one.files.key))
