"""The file around the table: SQLite's header, and the files that SQLite puts next to a database.

Source: SQLite's database file format, 1.3 (header) and 4 (write-ahead log). Must not know tables. All of it
is read without SQLite, so that looking at a damaged file has no effect.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
SIDES = ("-wal", "-shm", "-journal")
ROLLBACK, WAL = 1, 2
UNREAD = "give this user the right to read it and to enter its folder, or name another file"
VERSIONS = slice(18, 20)
"""The place in the header of the file's write and read versions."""


class UnreadableError(CacheUnusableError):
    """This user may not read the file, or not search its directory."""


Stamp = tuple[Identity | None, ...]
"""A value that changes with a database, its log or its journal."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A database file's header; numbers are 0 if it has no possible value for them."""

    status: os.stat_result
    database: bool
    """Whether it begins as every SQLite database does."""
    versions: tuple[int, int] = (0, 0)
    page_bytes: int = 0
    pages: int = 0
    header: bool = False
    """Whether the whole header exists."""

    @property
    def size_bytes(self) -> int:
        """The file's size."""
        return self.status.st_size

    @property
    def wal(self) -> bool:
        """Whether the database is in write-ahead mode."""
        return WAL in self.versions


def examine(path: Path) -> SqliteFile | None:
    """A file's header; None if there is no file.

    Raises FormatError for a link or a node that is not a file, UnreadableError, CacheUnusableError.
    """
    try:
        with Folder.at(path.parent) as folder, files.opened(folder, path.name) as (fd, status):
            return _sqlite_file(os.pread(fd, HEADER_BYTES, 0), status)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror}); {UNREAD}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CacheUnusableError(f"{path} cannot be read ({why}); name another file") from error


def _sqlite_file(head: bytes, status: os.stat_result) -> SqliteFile:
    if not head.startswith(MAGIC):
        return SqliteFile(status, database=False)
    if len(head) < HEADER_BYTES:
        return SqliteFile(status, database=True)
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    sound = 512 <= page <= 65536 and page & (page - 1) == 0
    # The number of pages counts only if its writer also wrote the change counter.
    counted = head[24:28] == head[92:96]
    pages = int.from_bytes(head[28:32], "big") if counted else 0
    return SqliteFile(status, True, (head[18], head[19]), page if sound else 0, pages, header=True)


_BEGINNINGS = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-shm": ((3007000).to_bytes(4, "little"), (3007000).to_bytes(4, "big")),
    "-journal": (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",),
}
"""The beginnings of the files next to a database; SQLite or a crash can leave zeros instead."""
NO_FILE = 1 << 62
"""The size given for a node that is not a regular file."""


def sides(path: Path) -> Mapping[str, int]:
    """The files next to a database by their suffix, each with its size; ``NO_FILE`` for other nodes."""
    found = {}
    for suffix in SIDES:
        status = _status(path, suffix)
        if status is not None:
            found[suffix] = status.st_size if stat.S_ISREG(status.st_mode) else NO_FILE
    return found


def stranger(path: Path) -> str:
    """The name of a file in the place of one of SQLite's that is not SQLite's; empty for none."""
    with suppress(OSError, FormatError), Folder.at(path.parent) as folder:
        for suffix, size in sides(path).items():
            name = path.name + suffix
            start = files.read_part(folder, name, 0, 8) if size != NO_FILE else b"?"
            if any(start) and not start.startswith(_BEGINNINGS[suffix]):
                return name
    return ""


def stamp(path: Path) -> Stamp:
    """A value that changes with a database and its log or journal."""
    found = [_status(path, suffix) for suffix in ("", "-wal", "-journal")]
    return tuple(None if status is None else Identity.of(status) for status in found)


def _status(path: Path, suffix: str) -> os.stat_result | None:
    try:
        return path.with_name(path.name + suffix).lstat()
    except (OSError, ValueError):  # the second if the path has no name, like the root directory
        return None
