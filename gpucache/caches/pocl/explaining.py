"""Whether a PoCL cache holds a kernel for a local size; more than that it does not store.

The hash covers the preprocessed source, the options, and PoCL's own version, build time and LLVM, and is
all that is left of them. So what is told is about kernels by name. Must not know files.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from gpucache.caches.interface import Wanted
from gpucache.caches.pocl.entries import NAME, llvm_of, shown
from gpucache.caches.pocl.names import Variant
from gpucache.errors import UsageError
from gpucache.keys import Difference
from gpucache.outcomes import CacheEntry, Checked, Reach, Served, Verdict

FIELDS: Mapping[str, str] = {
    "kernel": "the name of a kernel; may be repeated",
    "local-size": "a local size that it is launched with, such as 64x1x1; may be repeated",
    "llvm": "the version of LLVM in PoCL's platform version, such as 15.0.6",
}
_SIZE = re.compile(r"([0-9]{1,9})(?:[x,]([0-9]{1,9}))?(?:[x,]([0-9]{1,9}))?")
_LLVM = re.compile(r"(?:LLVM)?\s*([0-9][0-9A-Za-z.+~-]{0,40})", re.IGNORECASE)
_UNSTORED = "PoCL stores neither source nor options, so whether it is the one of your program is not told"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that is asked, with what it holds."""

    entry: CacheEntry
    kernels: frozenset[str]
    """All of them, as folders and bitcode name them."""
    variants: tuple[Variant, ...]


Check = Callable[[CacheEntry], Checked]


@dataclass(frozen=True, slots=True)
class _Question:
    kernel: str
    local_size: str
    llvm: str

    @property
    def words(self) -> str:
        size = f" with local size {self.local_size}" if self.local_size else ""
        return f"kernel {self.kernel}{size}{f' of LLVM {self.llvm}' if self.llvm else ''}"


def explain(wanted: Wanted, candidates: Sequence[Candidate], check: Check) -> Iterator[Reach]:
    """An answer for each kernel with each local size; raises UsageError."""
    return (_answer(question, candidates, check) for question in _questions(wanted))


def _questions(wanted: Wanted) -> list[_Question]:
    unknown = [name for name in wanted if name not in FIELDS]
    if unknown:
        raise UsageError(f"PoCL's cache has no field {unknown[0]!r}; ask for {', '.join(FIELDS)}")
    kernels = [shown(raw.decode("utf-8", "surrogateescape").strip()) for raw in wanted.get("kernel", ())]
    if not kernels or not all(kernels):
        raise UsageError(
            "PoCL stores nothing of what a program was made from, so it is asked for a kernel by name: "
            "'gpucache inspect --cache pocl --why --want kernel=NAME'"
        )
    sizes = [_local_size(raw) for raw in wanted.get("local-size", ())] or [""]
    versions = [_version(raw) for raw in wanted.get("llvm", ())] or [""]
    if len(versions) > 1:
        raise UsageError(f"the field 'llvm' is given {len(versions)} times; give it once")
    return [_Question(kernel, size, versions[0]) for kernel in kernels for size in sizes]


def _local_size(raw: bytes) -> str:
    match = _SIZE.fullmatch(raw.decode("ascii", "replace").strip())
    if match is None:
        raise UsageError(f"{shown(raw.decode('ascii', 'replace'))!r} is no local size; write it as 64x1x1")
    return "x".join(str(int(extent or "1")) for extent in match.groups())


def _version(raw: bytes) -> str:
    match = _LLVM.fullmatch(raw.decode("ascii", "replace").strip())
    if match is None:
        raise UsageError(
            f"{shown(raw.decode('ascii', 'replace'))!r} is no version of LLVM; write it as 15.0.6"
        )
    return match[1]


def _answer(question: _Question, candidates: Sequence[Candidate], check: Check) -> Reach:
    holding = [one for one in candidates if question.kernel in one.kernels]
    if not holding:
        return _missing(question, candidates)
    fitting = [one for one in holding if not question.llvm or llvm_of(one.entry) == question.llvm]
    if not fitting:
        return _of_another_llvm(question, _latest(holding))
    sized = [one for one in fitting if _for_size(question, one)]
    if not sized:
        return _of_another_size(question, _latest(fitting))
    return _held(question, sized, check)


def _missing(question: _Question, candidates: Sequence[Candidate]) -> Reach:
    unreadable = [one for one in candidates if one.entry.damage and not one.kernels]
    if unreadable:
        entry = unreadable[0].entry
        detail = (
            f"no readable program has it, but {len(unreadable)} cannot be read, which may; {_remedy(entry)}"
        )
        return Reach(NAME, question.words, Verdict.CORRUPT, detail, nearest=entry.key)
    detail = (
        "no program here has a kernel of this name: it was never built here, or was removed, of which PoCL "
        "keeps no record"
    )
    return Reach(NAME, question.words, Verdict.NEVER_BUILT, detail)


def _of_another_llvm(question: _Question, one: Candidate) -> Reach:
    held = llvm_of(one.entry) or "unknown"
    detail = (
        f"the kernel is there, compiled by LLVM {held}, which is in the hash; "
        f"PoCL of LLVM {question.llvm} builds it anew"
    )
    difference = Difference("LLVM", held, question.llvm)
    return Reach(NAME, question.words, Verdict.KEY_CHANGED, detail, (difference,), one.entry.key)


def _for_size(question: _Question, one: Candidate) -> list[Variant]:
    own = [variant for variant in one.variants if variant.kernel == question.kernel]
    return [
        variant for variant in own if not question.local_size or variant.local_size == question.local_size
    ]


def _of_another_size(question: _Question, one: Candidate) -> Reach:
    own = [variant for variant in one.variants if variant.kernel == question.kernel]
    held = ", ".join(dict.fromkeys(variant.words for variant in own))
    lacking = f"this launch, only for {held}" if held else "any launch"
    detail = (
        f"its program is there, but the kernel is not compiled for {lacking}; PoCL compiles it at the first "
        "launch, so launch it once where the cache is filled"
    )
    difference = Difference("local size", held or None, question.local_size or None)
    return Reach(NAME, question.words, Verdict.KEY_CHANGED, detail, (difference,), one.entry.key)


def _held(question: _Question, sized: Sequence[Candidate], check: Check) -> Reach:
    entry = _latest(sized).entry
    wrong = next((finding for finding in check(entry).findings if finding.kind.wrong), None)
    if wrong is not None:
        detail = f"{wrong.kind}: {wrong.detail}; {_remedy(entry)}"
        return Reach(NAME, question.words, Verdict.CORRUPT, detail, nearest=entry.key)
    words = ", ".join(dict.fromkeys(variant.words for one in sized for variant in _for_size(question, one)))
    where = "there" if len(sized) == 1 else f"in {len(sized)} programs"
    told = f"kernel {question.kernel} is {where}, compiled for {words}; {_UNSTORED}"
    if question.local_size:
        return Reach(NAME, question.words, Served.HIT, told, nearest=entry.key)
    detail = f"{told}; give local-size=SIZE to ask for a launch"
    return Reach(NAME, question.words, Verdict.NOT_RECORDED, detail, nearest=entry.key)


def _remedy(entry: CacheEntry) -> str:
    root = PurePath(entry.path).parents[1]
    return f"run 'gpucache verify --cache {shlex.quote(f'{NAME}:{root}')} --repair'"


def _latest(some: Sequence[Candidate]) -> Candidate:
    return max(some, key=lambda one: (one.entry.last_used_ns, one.entry.key))
