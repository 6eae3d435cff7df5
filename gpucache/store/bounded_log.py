"""A file of JSON lines that stays small: append lines, read the last ones.

Lines are appended in one write, so that processes do not mix them up. A file that exceeds its limit is
rewritten with the newer half of its lines; a line that another process appends meanwhile may be lost. A line
that is not JSON, as after a killed writer or on a full disk, is skipped. Losing lines is not an error, so
nothing here raises OSError. Must not know the subject of a line.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.root_folder import UNUSABLE, RootFolder
from gpucache.store.trust import distrust, open_trusted

LINE_CAP = 4096
"""The maximum bytes of a line, including its newline."""
LOG_CAP = 1 << 20
_OLD_JOURNAL_CAP = 2 << 20
_EVENTS_CAP = 256
"""How many events of programs stay when the older half of the log goes."""
_LINE = re.compile(rb"^\{.{9,%d}\}$" % (LINE_CAP - 3), re.MULTILINE)
"""Finds lines that may be records: another file may have millions of lines, and parsing takes time."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)
Record = dict[str, object]


class BoundedLog:
    """The records of one file of at most ``cap`` bytes.

    When old lines are dropped, ``forgotten`` makes records of theirs that replace them.
    """

    def __init__(
        self,
        root: RootFolder,
        place: tuple[str, ...],
        name: str,
        cap: int,
        forgotten: Callable[[Sequence[Record]], Iterable[Mapping[str, object]]] | None = None,
    ) -> None:
        self._root, self._place, self._name, self._cap = root, place, name, cap
        self._forgotten = forgotten
        self._read: tuple[int, int, dict[bytes, list[bytes]]] = 0, 0, {}
        """The inode and the bytes that were read of it, and its lines by their beginnings."""

    def append(self, records: Iterable[Mapping[str, object]]) -> bool:
        """Append records, each as a line of at most 4 KiB; returns whether that created the file.

        Nothing is written to a directory that others may write to.
        """
        made = False
        with suppress(*UNUSABLE), self._root.make(*self._place) as folder:
            if distrust(folder.status()):
                return False
            for piece in _pieces(map(line_of, records), self._cap // 2):
                fd = folder.open_for_writing(self._name, os.O_WRONLY | os.O_APPEND, self._root.file_mode)
                try:
                    os.write(fd, piece)
                    size = os.fstat(fd).st_size
                finally:
                    os.close(fd)
                made |= size == len(piece)
                if size > self._cap:
                    self._shrink(folder)
        return made

    def records(self, limit_bytes: int | None = None) -> list[Record]:
        """The records, oldest first: all, or those in the last bytes."""
        with suppress(*UNUSABLE), self._root.open(*self._place) as folder:
            lines = self._lines(folder, limit_bytes)
            return [record for line in lines if (record := record_of(line)) is not None]
        return []

    def by_beginning(self, end: bytes) -> Mapping[bytes, Sequence[bytes]]:
        """The lines by their text before ``end``, each read once; raises OSError, CacheUnusableError."""
        inode, begin, known = self._read  # which another thread may replace
        with (
            self._root.open(*self._place) as folder,
            open_trusted(folder, self._name) as (fd, status),
        ):
            if status.st_ino != inode or status.st_size < begin:
                begin, known = 0, {}
            begin = max(begin, status.st_size - self._cap - LINE_CAP)
            os.lseek(fd, begin, os.SEEK_SET)
            data = os.read(fd, status.st_size - begin)
        whole, new = data.rfind(b"\n") + 1, dict[bytes, list[bytes]]()
        for line in _LINE.findall(data, 0, whole):
            new.setdefault(line.partition(end)[0], []).append(line)
        known = known | {name: [*known.get(name, ()), *lines] for name, lines in new.items()}
        self._read = status.st_ino, begin + whole, known
        return known

    def _lines(self, folder: Folder, limit_bytes: int | None = None) -> list[bytes]:
        most = self._cap + LINE_CAP
        most = most if limit_bytes is None else min(limit_bytes, most)
        with open_trusted(folder, self._name) as (fd, status):
            start = max(0, status.st_size - most)
            os.lseek(fd, start, os.SEEK_SET)
            data = os.read(fd, most)
        found: list[bytes] = _LINE.findall(data, data.find(b"\n") if start else 0)  # a cut leaves half a line
        return found

    def _shrink(self, folder: Folder) -> None:
        """Rewrite the file with the newer half of its lines, unless another process has done so meanwhile."""
        if folder.lstat(self._name).st_size <= self._cap:
            return
        lines = [line + b"\n" for line in self._lines(folder)]
        size, cut = sum(map(len, lines)), 0
        while size > self._cap // 2:
            size -= len(lines[cut])
            cut += 1
        gone = [record for line in lines[:cut] if (record := record_of(line)) is not None]
        first = [*map(line_of, self._forgotten(gone))] if self._forgotten is not None and gone else []
        self._root.put(folder, self._name, b"".join(first + lines[cut:]))


def log(root: RootFolder) -> BoundedLog:
    """The log of a root: misses and processes, whose totals stay when lines go, and events of programs."""

    def forgotten(dropped: Sequence[Record]) -> Iterable[Mapping[str, object]]:
        from gpucache.answers.stats import folded  # which one process in thousands needs

        events = [one for one in dropped if is_event(one)]
        return (folded(dropped), *events[-_EVENTS_CAP:])

    return BoundedLog(root, layout.LOG, layout.LOG_NAME, LOG_CAP, forgotten)


def is_event(record: Record) -> bool:
    """Whether a record of the log is an event of a program."""
    return "what" in record


class Journal:
    """The misses and processes in a root's log, after those in the journal of an older gpucache."""

    def __init__(self, root: RootFolder) -> None:
        self._log = log(root)
        self._old = BoundedLog(root, layout.JOURNAL, layout.JOURNAL_NAME, _OLD_JOURNAL_CAP)

    def append(self, record: Mapping[str, object]) -> None:
        self._log.append([record])

    def records(self, limit_bytes: int | None = None) -> list[Record]:
        """Every record, oldest first, or only those in the last bytes of the files."""
        found = (*self._old.records(limit_bytes), *self._log.records(limit_bytes))
        return [one for one in found if not is_event(one)]

    def tail(self, count: int) -> list[Record]:
        """The last records, the newest first."""
        return self.records(min(count, LOG_CAP) * LINE_CAP)[: -count - 1 : -1]


def line_of(record: Mapping[str, object]) -> bytes:
    """The line of a record, without the items that would make it longer than ``LINE_CAP``.

    A line that lacks items has ``"truncated": true``. Values unknown to JSON are written as text.
    """
    line = _dump(record)
    if len(line) <= LINE_CAP:
        return line
    kept: Record = {"truncated": True}
    for name, value in record.items():
        # Items are few: dumping the line again for each is cheap and exact.
        if len(_dump(kept | {name: value})) <= LINE_CAP:
            kept[name] = value
    return _dump(kept)


def _dump(record: Mapping[str, object]) -> bytes:
    return _ENCODER.encode(dict(record)).encode("ascii") + b"\n"


def _pieces(lines: Iterable[bytes], most: int) -> Iterable[bytes]:
    """Lines joined into pieces of at most this many bytes."""
    joined = b""
    for line in lines:
        if joined and len(joined) + len(line) > most:
            yield joined
            joined = b""
        joined += line
    if joined:
        yield joined


def record_of(line: bytes) -> Record | None:
    """The record of a line; None if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
