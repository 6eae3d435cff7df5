"""What a file of a cuda.core cache holds, and what comes of it where that is nothing good.

cuda.core hands out whatever bytes lie there. Pure; must not know files.
"""

import os
import stat
from dataclasses import dataclass

from gpucache.outcomes import FindingKind
from gpucache.payload import PayloadInfo, PayloadKind, describe

Problem = tuple[FindingKind, str]
CONSEQUENCE = "cuda.core serves it unchecked, so the program fails when it loads it, at every start"
# What Program.compile stores, and what programs that use the cache as a mapping can store beside it.
_KINDS = frozenset(
    {PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.LTOIR, PayloadKind.FATBIN, PayloadKind.ELF}
)
_KERNEL_LABELS = ("names of functions", "names of entries")


@dataclass(frozen=True, slots=True)
class Told:
    """What some bytes are."""

    kind: str = ""
    target: str = ""
    program: str = ""
    """The first kernel's name as the binary spells it; empty where it names none."""
    problem: Problem | None = None


def tell(data: bytes, *, whole: bool) -> Told:
    """What the bytes of a file are; of its beginning alone, not ``whole``, only what they are at all."""
    if not data:
        problem = FindingKind.TRUNCATED, f"it is empty; {CONSEQUENCE}"
        return Told(problem=problem if whole else None)
    info = describe(data)
    if info.kind not in _KINDS:
        detail = f"it holds {_words(info)} where a CUDA binary belongs; {CONSEQUENCE}"
        return Told(info.kind.value, problem=(FindingKind.MISLABELLED, detail))
    target = f"cuda:{info.architecture}" if info.architecture else ""
    return Told(info.kind.value, target, _first_kernel(info), _broken(info) if whole else None)


def is_binary(start: bytes) -> bool:
    """Whether the beginning of a file is that of a CUDA binary, or it is empty."""
    return not start or describe(start).kind in _KINDS


def no_file(status: os.stat_result) -> Problem:
    """What is wrong with an entry that is a link, a pipe or such."""
    if stat.S_ISLNK(status.st_mode):
        return FindingKind.UNTRUSTED, (
            "it is a link, which cuda.core follows: who can write to what it names chooses the binary"
        )
    return FindingKind.UNTRUSTED, "it is no regular file: a program that asks for it fails or waits for ever"


def unreadable(error: OSError) -> Problem:
    """What is wrong with an entry that does not open."""
    return FindingKind.UNTRUSTED, (
        f"it cannot be read ({error.strerror}): a program of this user that asks for it fails; "
        "remove it, or give the program a cache of its own"
    )


def _broken(info: PayloadInfo) -> Problem | None:
    if info.problem is None:
        return None
    return FindingKind.CORRUPT, f"its {info.kind.value} is broken: {info.problem}; {CONSEQUENCE}"


def _first_kernel(info: PayloadInfo) -> str:
    names = next((value for label, value in info.detail if label in _KERNEL_LABELS), "")
    return names.partition(", ")[0]


def _words(info: PayloadInfo) -> str:
    if info.kind is not PayloadKind.UNKNOWN:
        return info.kind.value
    start = next((value for label, value in info.detail if label == "starts with"), "")
    return f"bytes of no known format ({start})"
