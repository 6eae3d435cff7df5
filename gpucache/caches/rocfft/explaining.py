"""Whether a database would answer a lookup, and which of the four values of its key is in the way.

Owns the comparison and its words. Source: rocFFT, ``rtc_cache.cpp``: a lookup is a select by kernel name,
architecture up to the first colon, HIP version and generator sum. Must not open files.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Wanted
from gpucache.caches.rocfft.rows import Row, hip, text
from gpucache.caches.rocfft.schema import parse_hip
from gpucache.errors import UsageError
from gpucache.keys import Difference

FIELDS = {
    "kernel_name": "the name of the kernel's function, as rocFFT's log has it",
    "arch": "the architecture, such as gfx90a; what follows a colon is not compared",
    "hip_version": "the HIP version rocFFT was built with: 6.2.41133, or the integer 60241133",
    "generator_sum": "the SHA-256 of rocFFT's kernel generator, as hex",
}
"""What an explanation can be asked for; nothing is compared that is not given."""
_WHY = {
    "arch": "it was compiled for another GPU",
    "hip_version": "every other HIP version compiles all kernels anew",
    "generator_sum": "every other build of rocFFT compiles all kernels anew",
}
_SUM = re.compile(r"[0-9a-fA-F]{64}")
_SIMILAR = 0.6
_NAMES_COMPARED = 5000
_NAME_CHARS = 300
_WEIGHTS = {"kernel_name": 8, "arch": 4, "generator_sum": 2, "hip_version": 1}
"""The same kernel for anything is nearer than another kernel, however like."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted, by column, as people read it; and what was done to it."""

    values: tuple[tuple[str, str], ...]
    note: str = ""
    whole_arch: str = ""

    def differences(self, row: Row) -> tuple[Difference, ...]:
        """The values that a row has otherwise."""
        held = dict(row.fields)
        return tuple(
            Difference(label, held[label], value)
            for label, value in self.values
            if held[label] != value and not (label == "arch" and held[label] == self.whole_arch)
        )

    def __str__(self) -> str:
        return ", ".join(f"{label} {value}" for label, value in self.values)


@dataclass(slots=True)
class _Best:
    """The nearest row so far."""

    row: Row | None = None
    score: float = -1.0
    differences: tuple[Difference, ...] = ()


def asked(wanted: Wanted) -> list[Asked]:
    """What is wanted, one for each kernel; raises UsageError for values that cannot be."""
    if not any(wanted.values()):
        raise UsageError(f"nothing is asked for; give one of {', '.join(FIELDS)}")
    for name, values in wanted.items():
        if name != "kernel_name" and len(values) > 1:
            raise UsageError(f"rocfft looks a kernel up by one {name}; give {name} once")
    kernels = wanted.get("kernel_name") or (None,)
    return [_one(kernel, wanted) for kernel in kernels]


def _one(kernel: bytes | None, wanted: Wanted) -> Asked:
    given = {name: text(values[0]) for name, values in wanted.items() if values and name != "kernel_name"}
    if kernel is not None:
        given["kernel_name"] = text(kernel)
    whole = given.get("arch", "")
    note = ""
    if ":" in whole:
        given["arch"] = whole.partition(":")[0]
        note = f"; rocFFT leaves {whole[len(given['arch']) :]} out of {whole}"
    if "hip_version" in given:
        given["hip_version"] = hip(parse_hip(given["hip_version"]))
    if "generator_sum" in given:
        given["generator_sum"] = _sum(given["generator_sum"])
    return Asked(tuple((name, given[name]) for name in FIELDS if name in given), note, whole)


def _sum(value: str) -> str:
    if _SUM.fullmatch(value) is None:
        raise UsageError(f"{value[:80]!r} is not a generator sum; give SHA-256 as 64 hex digits")
    return value.lower()


def reach(cache: str, one: Asked, rows: Iterable[Row], sound: Callable[[Row], Problem | None]) -> Reach:
    """Whether some row answers; ``sound`` tells what is wrong with one."""
    best = _Best()
    spoiled: Reach | None = None
    for row in _ranked(rows, one, best):
        trouble = sound(row)
        if trouble is None:
            detail = f"a row has all that is asked for{one.note}"
            return Reach(cache, str(one), Served.HIT, detail, nearest=row.key)
        spoiled = spoiled or _spoiled(cache, one, row, trouble)
    return spoiled or _missed(cache, one, best)


def _ranked(rows: Iterable[Row], one: Asked, best: _Best) -> Iterator[Row]:
    """Rows that have all that is asked for; the nearest of the others is kept."""
    wanted = dict(one.values)
    likeness = _Likeness(wanted.get("kernel_name"))
    for row in rows:
        differences = one.differences(row)
        if not differences:
            yield row
            continue
        other = {item.label for item in differences}
        score = likeness.of(text(row.kernel_name)) + ("kernel_name" not in other)
        score *= _WEIGHTS["kernel_name"]
        score += sum(_WEIGHTS[label] for label in wanted if label not in other and label != "kernel_name")
        if likeness.last >= _SIMILAR and score > best.score:
            best.row, best.score, best.differences = row, score, differences


class _Likeness:
    """How like a wanted name others are, from 0 to 1; of so many names, and so much of each."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self._matcher = SequenceMatcher(autojunk=False)
        self._matcher.set_seq2((wanted or "")[:_NAME_CHARS])
        self._left = _NAMES_COMPARED
        self.last = 0.0

    def of(self, name: str) -> float:
        self.last = 1.0 if self._wanted in (None, name) else self._compared(name)
        return self.last

    def _compared(self, name: str) -> float:
        if self._left <= 0:
            return 0.0
        self._left -= 1
        self._matcher.set_seq1(name[:_NAME_CHARS])
        if self._matcher.real_quick_ratio() < _SIMILAR or self._matcher.quick_ratio() < _SIMILAR:
            return 0.0
        return self._matcher.ratio()


def _spoiled(cache: str, one: Asked, row: Row, problem: Problem) -> Reach:
    """A row that rocFFT would take, or not find, and that is wrong."""
    verdict = Served.FALSE_HIT if problem.kind is FindingKind.MISLABELLED else Verdict.CORRUPT
    text = f"the row that has all of it is {problem}; run 'gpucache verify --repair'{one.note}"
    return Reach(cache, str(one), verdict, text, nearest=row.key)


def _missed(cache: str, one: Asked, best: _Best) -> Reach:
    if best.row is None:
        detail = f"no row is like it, so rocFFT compiles it at the first run that may write here{one.note}"
        return Reach(cache, str(one), Verdict.NEVER_BUILT, detail)
    labels = [item.label for item in best.differences]
    if "kernel_name" in labels:
        why = f"no row has that kernel; the likest is {text(best.row.kernel_name)[:_NAME_CHARS]}"
    else:
        told = "; ".join(_WHY[label] for label in labels)
        what = "the kernel is here" if "kernel_name" in dict(one.values) else "the nearest row is"
        why = f"{what} with another {' and '.join(labels)}: {told}"
    return Reach(cache, str(one), Verdict.KEY_CHANGED, why + one.note, best.differences, best.row.key)
