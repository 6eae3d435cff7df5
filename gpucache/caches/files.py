"""The files of other caches: read with bounds, never through a link, leaving access times alone.

Owns the opening of a foreign file, the detection of changes since the scan, the files of one entry, the walk
below a directory, and the tally of names of which the first are listed. Works on open directories
(``gpucache.folders.Folder``).

A frame describes the parts of a file's bytes in one line of text. It has one word for each part, in order:
``name:u8`` (u32, u64) is a little-endian number, ``name:z`` a C string, ``name:p64`` bytes after their length
as u64, ``name:rest`` all that follows, ``:N`` or ``:N*name`` bytes to pass over, ``/4`` zeros up to a
multiple of 4. ``?name`` after a word reads it only if that number is not 0. Only numbers and strings are
read, and the parts that a rule asks for, each after a comparison with the file's size. Must not know any
system or format.
"""

import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gpucache.answers.entries import FindingKind
from gpucache.errors import FormatError
from gpucache.folders import Folder, is_own
from gpucache.units import format_size, printable

BLOCK_BYTES = 512
HERE = "."
"""The name of an entry's own directory among the files of the entry."""
DEEPEST = 8
"""The number of directory levels below an entry's own directory that are read."""
LARGEST_BYTES = 1 << 30
"""The size up to which files are read whole, if no other is given."""
MOST_FILES = 20_000
"""The maximum number of files of one entry; the rest is ignored."""
_PAUSE_S = 0.05
_HELD_BYTES = 16 << 20
_QUIET = getattr(os, "O_NOATIME", 0)


class Identity(NamedTuple):
    """The identity of a file, by which a change since the scan shows."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Identity":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def allocated_bytes(status: os.stat_result) -> int:
    blocks: int = getattr(status, "st_blocks", -(-status.st_size // BLOCK_BYTES))
    return blocks * BLOCK_BYTES


def open_folder(root: Path, *parts: str) -> Folder:
    """A directory below a root, which may itself be a link, but nothing below it. Raises OSError."""
    folder = Folder.at(root)
    if not parts:
        return folder
    with folder:
        return folder.folder(*parts)


@contextmanager
def opened(folder: Folder, name: str) -> Iterator[tuple[int, os.stat_result]]:
    """Descriptor and status of a regular file; raises FormatError for anything else, OSError."""
    try:
        fd = folder.open_file(name, flags=_QUIET)
    except PermissionError:
        fd = folder.open_file(name)  # O_NOATIME is for the owner alone
    except OSError as error:
        mode = folder.lstat(name).st_mode
        if stat.S_ISLNK(mode):
            raise FormatError(f"{name} is a link, which is not followed") from error
        if not stat.S_ISREG(mode):  # as a socket, which does not open
            raise FormatError(f"{name} is not a regular file") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name} is not a regular file")
        yield fd, status
    finally:
        os.close(fd)


def read(folder: Folder, name: str, limit_bytes: int) -> bytes:
    """A whole file up to a limit in bytes; raises FormatError for a larger one or no file, OSError."""
    with opened(folder, name) as (fd, status):
        if status.st_size > limit_bytes:
            raise FormatError(
                f"{name} has {format_size(status.st_size)}, over the {format_size(limit_bytes)} that are read"
            )
        return _read(fd, status.st_size, 0)


def read_part(folder: Folder, name: str, offset: int, count: int) -> bytes:
    """Up to ``count`` bytes of a file from an offset; raises FormatError for no file, OSError."""
    with opened(folder, name) as (fd, status):
        return _read(fd, max(0, min(count, status.st_size - offset)), offset)


def overwrite(folder: Folder, name: str, content: bytes, *, whole: bool) -> None:
    """Overwrite the beginning of a file, or with ``whole`` all of it, keeping its place and mode.

    Raises FormatError if it is not a file, or has another name as well, as that may be a user's file and
    would change with it; OSError.
    """
    fd = folder.open_file(name, flags=os.O_RDWR)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name} is not a regular file")
        if status.st_nlink > 1:
            raise FormatError(f"{name} has another hard link, so it is not written")
        os.write(fd, content)
        if whole:
            os.ftruncate(fd, len(content))
    finally:
        os.close(fd)


def publish(folder: Folder, below: str, name: str, content: bytes, like: os.stat_result) -> None:
    """Replace a file atomically by a new one, made in a new directory ``below``, of its mode and times.

    Raises OSError, and leaves nothing behind.
    """
    with folder.make(below, 0o700) as made:
        times_ns, mode = (like.st_atime_ns, like.st_mtime_ns), stat.S_IMODE(like.st_mode)
        try:
            made.publish(name, folder, name, content, mode, times_ns=times_ns, durable=True)
        finally:
            folder.rmdir(below)


def take_lock(fd: int, patience_s: float, *, record: bool = False) -> bool:
    """Take the lock that an owner's programs take with flock(2), or as a ``record`` lock with fcntl(2), which
    requires the file to be open for writing; waits at most so long, and returns whether it was taken."""
    if sys.platform == "win32":
        return True
    import fcntl

    for attempt in range(1 + round(patience_s / _PAUSE_S)):
        try:
            if attempt:
                time.sleep(_PAUSE_S)
            (fcntl.lockf if record else fcntl.flock)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


@contextmanager
def held_by_name(folder: Folder, name: str, mode: int) -> Iterator[None]:
    """Hold a lock that is the existence of an empty file.

    Raises FileExistsError if a program has it, OSError. One of a gpucache that was killed is taken over: its
    mode has the sticky bit, which no owner sets, and no process locks it by flock(2), as is done before it
    gets its name.
    """
    fd = _taken_by_name(folder, name, mode)
    try:
        yield
    finally:
        if sys.platform == "win32":  # which removes no open file
            os.close(fd)
        with suppress(FileNotFoundError):
            folder.unlink(name)
        if sys.platform != "win32":  # afterwards: another gpucache could take it for that of a killed one
            os.close(fd)


def _taken_by_name(folder: Folder, name: str, mode: int) -> int:
    made = f".gpucache-lock-{os.getpid()}-{os.urandom(4).hex()}"
    fd = _held_file(folder, made, mode)
    try:
        free_abandoned(folder, name)
        try:
            folder.link(made, folder, name)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.close(fd)
            fd = -1
            fd = _held_file(folder, name, mode)
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    finally:
        folder.unlink(made)
    return fd


def free_abandoned(folder: Folder, name: str) -> None:
    """Remove a file if it is a lock of a gpucache that was killed; raises nothing."""
    with suppress(OSError):
        seen = folder.lstat(name)
        if not (stat.S_ISREG(seen.st_mode) and seen.st_mode & stat.S_ISVTX and not seen.st_size):
            return
        fd = folder.open_file(name, flags=os.O_WRONLY)
        try:
            if take_lock(fd, 0) and os.path.samestat(folder.lstat(name), os.fstat(fd)):
                folder.unlink(name)
        finally:
            os.close(fd)


def _held_file(folder: Folder, name: str, mode: int) -> int:
    fd = folder.open_for_writing(name, os.O_WRONLY | os.O_EXCL, mode | stat.S_ISVTX)
    take_lock(fd, 0)
    return fd


def _read(fd: int, count: int, offset: int) -> bytes:
    parts = []
    os.lseek(fd, offset, os.SEEK_SET)  # Windows has no pread
    while count > 0:
        part = os.read(fd, count)  # nearly always all of it, so that it is in memory once
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Files(NamedTuple):
    """The files of one entry as a scan saw them."""

    root: Path
    parts: tuple[str, ...]
    """The names of the directories from the root to the directory of the files."""
    key: str
    seen: Mapping[str, os.stat_result]
    """Statuses, links not followed, by name in that directory. If an entry is a directory: everything below
    it by path with slashes, including directories, and the directory itself as ``HERE``."""
    complete: bool = True
    """Whether there were no more than ``MOST_FILES``, and all of its directories could be read."""
    detail: Any = None
    """The format's own value for an entry that is a part of its files, such as a row."""
    held: dict[str, bytes] | None = None
    """The content of files that were read, for an entry that is judged and moved: each is read once."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files, and of directories if the entry is a directory."""
        return tuple(name for name in self.seen if name != HERE)

    @property
    def folder(self) -> Path:
        return self.root.joinpath(*self.parts)

    @property
    def path(self) -> Path:
        """The path shown to people: the directory that the entry is, or its first file."""
        return self.folder if HERE in self.seen else self.folder / self.names[0]

    @property
    def size_bytes(self) -> int:
        """The size on disk of its files, and of the directories that go with them."""
        return sum(map(allocated_bytes, self.seen.values()))

    @property
    def written_ns(self) -> int:
        return self.seen[self.names[0] if self.names else HERE].st_mtime_ns

    @property
    def used_ns(self) -> int:
        """The time of the last read or write of any of its files, as far as the file system stores it."""
        return max(max(one.st_atime_ns, one.st_mtime_ns) for one in self.seen.values())

    @property
    def owned(self) -> bool:
        return all(map(is_own, self.seen.values()))

    def open(self, *below: str) -> Folder:
        """The directory that the files are in, or one below it; raises OSError."""
        return open_folder(self.root, *self.parts, *below)

    def read(self, name: str, limit_bytes: int = LARGEST_BYTES) -> bytes:
        """Read a whole file; raises FormatError if it is too large, a link or not a file, and OSError."""
        found = (self.held or {}).get(name)
        if found is not None and len(found) <= limit_bytes:
            return found
        *below, last = name.split("/")
        with self.open(*below) as folder:
            data = read(folder, last, limit_bytes)
        if self.held is not None:
            self.held[name] = data
        return data

    def part(self, name: str, offset: int, count: int) -> bytes:
        """At most so many bytes of a file from an offset on; raises FormatError, OSError."""
        if self.held is not None and name in self.seen and self.seen[name].st_size <= _HELD_BYTES:
            return self.read(name)[offset : offset + count]
        *below, last = name.split("/")
        with self.open(*below) as folder:
            return read_part(folder, last, offset, count)

    def again(self) -> "Files":
        """The entry's current state; raises OSError, FileNotFoundError if one of its files is gone."""
        with self.open() as folder:
            if HERE in self.seen:
                return tree(folder, self.root, self.parts, self.key)
            return self._replace(seen={name: folder.lstat(name) for name in self.seen})

    def unchanged(self) -> bool:
        """Whether no file changed since the scan; raises OSError, FileNotFoundError if one is gone."""
        return _identities(self.again().seen) == _identities(self.seen)


def tree(folder: Folder, root: Path, parts: tuple[str, ...], key: str) -> Files:
    """An entry that is a directory, with everything below it; raises OSError if it cannot be read."""
    seen: dict[str, os.stat_result] = {}
    complete = True
    for path, status, _why in below(folder):
        if status is not None and len(seen) < MOST_FILES:
            seen[path] = status
        else:
            complete = False
            if status is not None:
                break
    return Files(root, parts, key, {HERE: folder.status(), **dict(sorted(seen.items()))}, complete)


def below(folder: Folder) -> Iterator[tuple[str, os.stat_result | None, str]]:
    """Everything below an open directory, each directory before its content: path with slashes, and status.

    A directory that is not read, as it is too deep, a mount point or cannot be opened, comes a second time
    without a status but with the reason. Raises OSError if the directory itself cannot be read.
    """
    yield from _below(folder, "", folder.status().st_dev, 0)


def _below(
    folder: Folder, above: str, device: int, depth: int
) -> Iterator[tuple[str, os.stat_result | None, str]]:
    for found in folder.entries():
        path = above + found.name
        try:
            status = folder.lstat(found.name)
        except FileNotFoundError:
            continue
        yield path, status, ""
        if not stat.S_ISDIR(status.st_mode):
            continue
        if depth == DEEPEST or status.st_dev != device:
            yield path, None, "it is too deep" if depth == DEEPEST else "another file system is mounted there"
            continue
        try:
            with folder.folder(found.name) as inner:
                yield from _below(inner, f"{path}/", device, depth + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield path, None, error.strerror or "it does not open"


def _identities(seen: Mapping[str, os.stat_result]) -> dict[str, Identity]:
    return {name: Identity.of(one) for name, one in seen.items()}


@dataclass(slots=True)
class NameTally:
    """Names, in constant memory; as text the first of them in order and how many more there are."""

    named: int = 3
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        self.first = sorted([*self.first, name])[: self.named]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(printable(name, None) for name in self.first) + more


def listed(names: Iterable[str]) -> str:
    """The first names in order and how many more there are, in constant memory; empty for none."""
    found = NameTally()
    for name in names:
        found.add(name)
    return str(found)


LOOKED_BYTES = 256 << 20
_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
_TEXT_BYTES = 4096
_NUMBERS = {"u8": 1, "u32": 4, "u64": 8}
_WORD = re.compile(r"(\w*):(u8|u32|u64|z|p64|rest|\d+(?:\*\w+)?)(?:\?(\w+))?|/(\d+)")


class LargeError(FormatError):
    """A part is too large to be read; the message says so after 'it was'."""


class Span(NamedTuple):
    """Where a part begins in its file, and its size."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Parts:
    """The parts of one file by name. Raises FormatError for a link and the like, OSError."""

    def __init__(self, item: Files, name: str, frame: str) -> None:
        self.item, self.name = item, name
        self.size_bytes = item.seen[name].st_size
        self.numbers: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.spans: dict[str, Span] = {}
        self.cut = ""
        """The part in which the file ends; empty if it is whole."""
        self._head = item.part(name, 0, _HEAD_BYTES)
        self._at = 0
        for part, kind, only, multiple in _words(frame):
            if only and not self.numbers.get(only):
                continue
            self._at = self._end(part, kind) if kind else -(-self._at // int(multiple)) * int(multiple)
            if self._at > self.size_bytes:
                self.cut = part or "head"
                return

    def read(self, part: str, most: int | None = None) -> bytes:
        """A part, or its first bytes; raises LargeError, FormatError if the file became shorter, OSError."""
        return self.part(self.spans[part], most)

    def part(self, span: Span, most: int | None = None) -> bytes:
        length = span.length if most is None else min(span.length, most)
        if length > LOOKED_BYTES and most is None:
            raise LargeError(f"not looked into: larger than {format_size(LOOKED_BYTES)}")
        data = self._bytes(span.offset, length)
        if len(data) != length:
            raise FormatError(f"{self.name} became shorter while it was read; try again")
        return data

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        return self.item.part(self.name, offset, length)

    def sha256(self, span: Span) -> str:
        """SHA-256 of a span of any length, as lower-case hex."""
        hasher = hashlib.sha256()
        for offset in range(span.offset, span.end, _PIECE_BYTES):
            hasher.update(self.part(Span(offset, min(_PIECE_BYTES, span.end - offset))))
        return hasher.hexdigest()

    def number(self, offset: int, size: int = 8) -> int:
        """The number at an offset; 0 if the file ends before it."""
        data = self._bytes(offset, size)
        return int.from_bytes(data, "little") if len(data) == size else 0

    def _end(self, part: str, kind: str) -> int:
        """Remember where a part ends, by its name."""
        start, left = self._at, self.size_bytes - self._at
        if kind in _NUMBERS:
            self.numbers[part] = self.number(start, _NUMBERS[kind])
            return start + _NUMBERS[kind]
        if kind == "z":
            text, end, _ = self._bytes(start, _TEXT_BYTES).partition(b"\0")
            self.texts[part] = text.decode("utf-8", "replace")
            return start + len(text) + 1 if end else self.size_bytes + 1
        if kind == "rest":
            self.spans[part] = Span(start, left)
        elif kind == "p64":
            self.spans[part] = Span(start + 8, self.number(start) if left >= 8 else left)
        else:
            times, _, of = kind.partition("*")
            return start + int(times) * (self.numbers.get(of, 0) if of else 1)
        return self.spans[part].end


class Rule(NamedTuple):
    """A property that the parts of a file must have."""

    kind: FindingKind | None
    """The kind of finding if the rule is broken; None for a note."""
    broken: Callable[[Parts], object]
    """Returns a false value if the rule holds; else the value for ``{}`` in the sentence."""
    says: str
    effect: str = ""
    """The effect on programs, if it differs from that of other damage in the file."""


class Frame(NamedTuple):
    """The files with some names: their parts, the effect of damage on programs, and their rules."""

    names: str
    words: str
    effect: str
    """Ends the sentences about damage."""
    rules: Sequence[Rule] = ()


@cache
def _words(frame: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(_iterated(frame))


def _iterated(frame: str) -> Iterator[tuple[str, str, str, str]]:
    for word in frame.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no word of a frame")
        part, kind, only, multiple = match.groups("")
        yield part, kind, only, multiple
