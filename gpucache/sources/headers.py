"""Headers on disk, each read once and within bounds; a header is identified by the path where it was found.

The path, not the file, because a quoted include is searched next to the path, not next to the target of a
link. Paths of one file are recorded as well, since ``#pragma once`` goes by the file. A header that cannot
be read counts as not found, as it does for a compiler run by the same user.
"""

# Paths are bytes, as names in sources are, and pathlib accepts only text.
# ruff: noqa: PTH118, PTH120

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from gpucache.errors import SourceError
from gpucache.sources.disk import Disk, Look
from gpucache.sources.macro_names import Pattern
from gpucache.sources.rules import Limits
from gpucache.sources.scan import Hints, Scan
from gpucache.units import format_size

_FIXED = {b"": b"", rb"\.": b"", rb"\.\.": b"..", rb"\.[ \t]*\.": b".."}
"""Parts of a path that name no file: the patterns of ``.``, ``..`` and the empty part between slashes."""
_NO_HINTS = Hints()


class UncacheableError(Exception):
    """Ends a walk if no key can be made; says why, with the remedy."""


@dataclass(slots=True, eq=False)
class File:
    """A file found at one path; the main source has number 0 and no path."""

    name: str
    """The name for messages: as first spelled, in quotes or brackets."""
    number: int
    """Its position in the order in which files are found."""
    data: bytes | None
    """The content, kept until the file is scanned."""
    path: bytes = b""
    inode: int = 0
    """A number that all paths of one file share, counted in the order in which files are found."""
    digest: str = ""
    text: Scan | None = None
    hints: Hints = _NO_HINTS

    @property
    def directory(self) -> bytes | None:
        """The directory in which the search for its own quoted includes begins."""
        return os.path.dirname(self.path) if self.path else None


class Headers:
    """Every header looked at in one walk. Raises UncacheableError above the limits."""

    def __init__(self, disk: Disk, limits: Limits) -> None:
        self._disk = disk
        self._limits = limits
        self._seen: dict[bytes, File | None] = {}
        self._files: dict[bytes, File] = {}
        self._inodes: dict[int, int] = {}
        self._bytes = 0
        self.remedy = "include less"

    def paths(self) -> Iterable[str]:
        """The paths of the headers, in the order in which they were found."""
        return map(os.fsdecode, self._files)

    def at(self, directory: bytes, name: bytes) -> File | None:
        """The file with a name in a directory; None if there is none."""
        path = os.path.join(directory, name)
        if path not in self._seen:
            self._seen[path] = self._find(path, repr(os.fsdecode(name)))
        return self._seen[path]

    def again(self, file: File) -> bytes:
        """The content of a file, read again after its data was dropped; empty if the file is gone."""
        with suppress(OSError):
            read = self._disk.read(file.path, self._limits.file_bytes)
            return read[0] if read else b""
        return b""

    def _find(self, path: bytes, shown: str) -> File | None:
        try:
            found = self._disk.look(path)
            if found.error is not None:
                raise found.error
            if found.kind in ("", "folder"):
                return None
            identity = self._identity(path)
            if identity not in self._files:
                file = self._read(identity, shown, found)
                if file is None:
                    return None
                self._files[identity] = file
            return self._files[identity]
        except ValueError:  # a NUL in the name
            return None
        except OSError as error:
            raise UncacheableError(
                f"the header {shown} cannot be read ({error.strerror}); check its disk and try again"
            ) from None

    def _identity(self, path: bytes) -> bytes:
        """One spelling for each place: normalised as text, except if ``..`` leaves a linked directory."""
        normal = os.path.normpath(path)
        directory, base = os.path.split(path)
        if b".." not in directory or self._disk.look(os.path.dirname(normal)) == self._disk.look(directory):
            return normal
        return os.path.join(self._disk.real(directory), base)

    def _read(self, path: bytes, shown: str, found: Look) -> File | None:
        limits = self._limits
        if found.kind != "file":
            raise UncacheableError(
                f"the header {shown} is not a regular file; include a regular file instead"
            )
        if len(self._files) >= limits.files:
            raise UncacheableError(f"more than {limits.files} headers would have to be read; {self.remedy}")
        read = self._disk.read(path, limits.file_bytes)
        if read is None:
            return None
        data, content = read
        if len(data) > limits.file_bytes:
            raise UncacheableError(
                f"the header {shown} is larger than {format_size(limits.file_bytes)}; {self.remedy}"
            )
        self._bytes += len(data)
        if self._bytes > limits.total_bytes:
            raise UncacheableError(
                f"more than {format_size(limits.total_bytes)} of headers would have to be read; {self.remedy}"
            )
        inode = self._inodes.setdefault(found.number, len(self._inodes) + 1)
        return File(shown, len(self._files) + 1, data, path, inode, content)


def matching_files(disk: Disk, root: bytes, patterns: Iterable[Pattern], *, entries: int) -> Iterator[bytes]:
    """Paths of files that match a pattern, relative to ``root``, each once.

    Raises SourceError after looking at ``entries`` names, or for a directory that cannot be listed.
    """
    left = entries
    pending: dict[bytes, set[Pattern]] = {b"": {*patterns}}
    while pending:
        below, wanted = pending.popitem()
        steps: dict[bytes, set[Pattern]] = {}
        for pattern in wanted:
            steps.setdefault(pattern[0], set()).add(pattern[1:])
        names: list[bytes] = []
        if not steps.keys() <= _FIXED.keys():
            names = _listed(disk, os.path.join(root, below))
            left -= len(names)
            if left < 0:
                raise SourceError(f"contains more than {entries} files and directories")
        for step, others in steps.items():
            for name in [_FIXED[step]] if step in _FIXED else filter(re.compile(step).fullmatch, names):
                path = os.path.join(below, name) if name else below
                found = disk.look(os.path.join(root, path)) if () in others else Look()
                if found.error is not None:  # compilers fail at it, and do not look further
                    raise SourceError(f"contains {os.fsdecode(path)!r}: {found.error.strerror}")
                if found.kind == "file":
                    yield path
                if deeper := others - {()}:
                    pending.setdefault(path, set()).update(deeper)


def _listed(disk: Disk, folder: bytes) -> list[bytes]:
    try:
        return disk.names(folder)
    except OSError as error:
        raise SourceError(f"cannot be listed: {error.strerror}") from None
