"""Formats whose entries are one binary each, and the problems of a binary in any file."""

import os
from collections.abc import Generator, Iterator
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.portable import Fact
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.payload.elf import NEEDED
from gpucache.units import format_size

OF_OPENCL = frozenset(
    {
        PayloadKind.POCLBIN, PayloadKind.INTEL_CPU, PayloadKind.INTEL_GPU, PayloadKind.PTX,
        PayloadKind.CUBIN, PayloadKind.AMDGPU, PayloadKind.RUSTICL, PayloadKind.LLVM_BITCODE,
    }
)  # fmt: skip


def needed(start: bytes) -> Iterator[tuple[str, str]]:
    """The feature of the CPU without which Intel's runtime refuses a binary, as a fact, if it is Intel's."""
    found = dict(describe(start).detail).get(NEEDED)
    if found:
        yield Fact.FEATURE, found


def broken(
    name: str, data: bytes, kind: PayloadKind, end: str
) -> Generator[Problem, None, PayloadInfo | None]:
    """The problems of a whole file that should be a binary of some kind; ``end`` is their consequence.

    Returns the description of a binary without problems.
    """
    info = describe(data)
    if not data:
        yield Problem(FindingKind.TRUNCATED, f"{name} is empty; {end}")
    elif info.kind is not kind:
        detail = f"{name} contains {info.kind.value} instead of {kind.value}; {end}"
        yield Problem(FindingKind.MISLABELLED, detail)
    elif info.problem:
        yield Problem(FindingKind.CORRUPT, f"the {kind.value} in {name} is broken: {info.problem}; {end}")
    else:
        return info
    return None


class BinaryFormat(Format):
    """A cache whose entries are one file each: a compiled binary, with or without a wrapper.

    Content of another kind than ``kinds`` is not an entry's; content of these kinds identifies the owner.
    """

    kinds: ClassVar[frozenset[PayloadKind]]
    consequence: ClassVar[str]
    """The effect of a broken entry on a program; ends the sentences about that."""
    empty: ClassVar[str] = ""
    """The effect of an empty file on programs, if a broken file has another one."""
    checked_bytes: ClassVar[int] = 256 << 20
    """Of larger files only the beginning is checked."""
    scanned_bytes: ClassVar[int] = 64 << 10
    """The part of a file that a scan reads; a larger one may leave kernel names unknown."""
    _checked: tuple[str, PayloadKind] | None = None

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        """The binary in a file, or in its beginning if not ``whole``; and the problem of its wrapper."""
        return data, None

    def used_ns(self, status: os.stat_result) -> int:
        """The last use of an entry: when it was written or, if the disk notes that, read."""
        return max(status.st_atime_ns, status.st_mtime_ns)

    def shows_left(self, start: bytes) -> bool:
        return describe(start).kind in self.kinds

    def look(self, item: Files) -> CacheEntry:
        name, status = next(iter(item.seen.items()))
        data = item.part(name, 0, self.scanned_bytes)
        whole = len(data) == status.st_size
        binary, problem = self.unwrap(data, whole=whole)
        info = describe(binary)
        known = info.kind in self.kinds
        return self.entry(item)._replace(
            program=next(iter(info.kernels or ()), ""),
            target=info.target if known else "",
            artifact_kind=info.kind.value if binary else "",
            damage=problem if known and problem else self._wrong(binary, info, whole=whole) or problem,
            last_used_ns=self.used_ns(status),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        name, status = next(iter(item.seen.items()))
        whole = status.st_size <= self.checked_bytes
        data = item.part(name, 0, self.checked_bytes if whole else self.scanned_bytes)
        binary, problem = self.unwrap(data, whole=whole)
        info = describe(binary, inside=2 * whole)
        self._checked = name, info.kind
        if problem := problem or self._wrong(binary, info, whole=whole):
            yield problem
        elif self.links and whole and info.kind is PayloadKind.ELF:
            yield from self.linked(item, name, binary, self.consequence)

    def notes(self, item: Files) -> Iterator[str]:
        yield from super().notes(item)
        name, status = next(iter(item.seen.items()))
        if status.st_size > self.checked_bytes:
            yield f"it is larger than {format_size(self.checked_bytes)}: only its beginning was looked at"
        if self._checked == (name, PayloadKind.LTOIR):
            yield "LTO-IR does not record its length, so a lost end cannot be detected"

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        yield from super().facts(item, look)
        if look.artifact_kind == PayloadKind.INTEL_CPU:
            data = item.part(item.names[0], 0, self.scanned_bytes)
            yield from needed(self.unwrap(data, whole=False)[0])

    def payload(self, item: Files) -> bytes:
        return self.unwrap(super().payload(item), whole=True)[0]

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        """The problem of a binary; of a beginning, only whether it is a binary."""
        if not binary:
            detail = self.empty or f"it is empty; {self.consequence}"
            return Problem(FindingKind.TRUNCATED, detail) if whole else None
        if info.kind not in self.kinds:
            start = dict(info.detail).get("starts with", "")
            unknown = info.kind is PayloadKind.UNKNOWN
            words = f"bytes of no known format ({start})" if unknown else info.kind.value
            detail = f"it contains {words} instead of a binary of {self.owner}'s; {self.consequence}"
            return Problem(FindingKind.MISLABELLED, detail)
        if whole and info.problem is not None:
            detail = f"its {info.kind.value} is broken: {info.problem}; {self.consequence}"
            return Problem(FindingKind.CORRUPT, detail)
        return None
