"""Modules that ninja builds, each in a directory with its library, objects and ``build.ninja``.

Owns reading that file. Must not know which system wrote it.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.portable import Moving
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind

BUILD = "build.ninja"
NO_MOVING = Moving(
    "ninja builds it again, as it compares absolute paths and the times of files; build it once in the image "
    "that all machines run"
)
_BUILD_BYTES, _LARGEST_BYTES = 1 << 20, 2 << 30


class NinjaFormat(FilesFormat):
    """A cache of such modules."""

    folders_removed = 1
    moving = NO_MOVING
    fails: ClassVar[str]
    """The effect of a broken library; ends the sentences about that."""
    reads_build: ClassVar[bool] = True
    """Whether the owner reads the ``build.ninja`` that is there."""

    def library(self, item: Files) -> str:
        """The newest library; empty if there is none."""
        every = [name for name in item.names if name.endswith((".so", ".pyd", ".dll"))]
        return max(every, key=lambda name: (item.seen[name].st_mtime_ns, name), default="")

    def orphan(self, item: Files) -> Problem | None:
        """The problem of a module without a library."""
        detail = f"it has no library, so {self.owner} builds it again"
        return None if self.library(item) else Problem(FindingKind.ORPHAN, detail)

    def unlinked(self, item: Files) -> str:
        """The effect of a broken object."""
        return "the next link of the module fails"

    def check(self, item: Files) -> Iterator[Problem]:
        if orphan := self.orphan(item):
            yield orphan
        for name in item.names:
            if name.endswith((".so", ".o")):
                end = self.fails if name.endswith(".so") else self.unlinked(item)
                yield from broken(name, item.read(name, _LARGEST_BYTES), PayloadKind.ELF, end)
        if self.reads_build and BUILD in item.seen:
            try:
                item.read(BUILD, _BUILD_BYTES).decode()
            except UnicodeDecodeError:  # owners compare it with a new one at each start
                detail = f"{BUILD} is not UTF-8, at which programs that need the module end at every start"
                yield Problem(FindingKind.CORRUPT, detail)

    def payload(self, item: Files) -> bytes:
        if library := self.library(item):
            return item.read(library, _LARGEST_BYTES)
        raise FormatError(f"{item.folder} contains no library")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield from built_with(item)


def built_with(item: Files) -> list[tuple[str, str]]:
    """The variables that are not empty, and the sources, in an entry's ``build.ninja`` if it has one."""
    if BUILD not in item.seen:
        return []
    text = item.part(BUILD, 0, _BUILD_BYTES).decode("utf-8", "replace").replace("$\n", "")
    found = re.findall(r"^(\w+) = (\S.*)$", text, re.MULTILINE)
    sources = re.findall(r"^build .+: (?:cuda_)?compile (.+)$", text, re.MULTILINE)
    return [
        (label, " ".join(value.split())) for label, value in (*found, *(("source", one) for one in sources))
    ]
