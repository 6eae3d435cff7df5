"""pytools' dictionaries on disk: an SQLite database for each of them and each version of Python.

Source: pytools 2026.1, ``pytools/persistent_dict.py``; checked against what it wrote. PyOpenCL, loopy and
others keep generated code there. A file is called by the dictionary's name and ``sys.version_info``; its one
table ``dict`` has a digest of a key and a pickle of key and value. pytools unpickles what is there; here
opcodes are only listed. Rows are never evicted, and a file stays when its Python goes. A program has its
databases open until it ends, and fails to store anything where one was removed meanwhile, so Linux is asked
for a lease first, which it grants for a file that nobody else has open.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha1

from gpucache.caches import interpreters, pickles
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.format import HeldError, Look, UnjudgedError
from gpucache.caches.layout import Layout
from gpucache.caches.places import Home, Place, Var
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.units import format_size, printable

_NAME = r"pdict-(v\d+)-(.+)-(\d+\.\d+\.\d+)\.(\w+\.\d+)\.sqlite"
_MAGIC = b"SQLite format 3\0"
_VERSIONS, _ROLLBACK = slice(18, 20), b"\1\1"
_LARGEST_BYTES = 256 << 20
_FAILS = "pytools raises an error that programs do not catch, so they fail at it every time"


def _key(groups: Sequence[str]) -> str:
    return sha1("/".join(groups).encode("utf-8", "surrogateescape")).hexdigest()


class Pytools(FilesFormat):
    """What programs keep in pytools' ``PersistentDict``."""

    name = "pytools"
    title = "pytools dictionaries"
    owner = "pytools"
    place = Place(
        (Var("XDG_CACHE_HOME", "pytools"), Home(".cache/pytools", expanded=True)),
        move="set XDG_CACHE_HOME",
        nowhere="pytools finds no home folder; set XDG_CACHE_HOME",
        lacking="XDG_CACHE_HOME moves every cache that follows it, as pytools has no variable of its own",
        opt_in=True,
    )
    layout = Layout([_NAME, f"{_NAME}-wal", f"{_NAME}-shm", f"{_NAME}-journal"], key=_key)
    wanted = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    opaque = "a dictionary keeps its keys as pickles, which are not unpickled here"
    absent = "no entry has this key: the dictionary was never made here, or its file was removed"
    served = "pytools would open it; which of its rows programs find, their keys decide"
    shows = "a database of pytools'"
    key_digits = 40

    def look(self, item: Files) -> Look:
        """The dictionary's name and its Python."""
        name = item.names[0]
        if not name.endswith(".sqlite"):
            detail = "its database is gone, so SQLite throws it away"
            return Look(problem=Problem(FindingKind.ORPHAN, detail), shows=False)
        program, _, python = name.removesuffix(".sqlite").split("-", 2)[2].rpartition("-")
        python = ".".join(python.split(".")[:3])
        start = item.part(name, 0, len(_MAGIC))
        problem = None
        if start and start != _MAGIC:
            problem = Problem(FindingKind.MISLABELLED, f"it is no database of SQLite's; {_FAILS}")
        return Look(
            program=program,
            kind="database",
            fields=(("python", python),),
            problem=problem,
            gone=f"Python {python}" if interpreters.is_gone(python) else "",
            shows=problem is None,
            used_ns=item.used_ns,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Whether SQLite finds the database whole, and each row ends as a pickle does."""
        if problem := self.look(item).problem:
            yield problem
        elif size_bytes := item.seen[item.names[0]].st_size:
            try:
                with closing(self._opened(item)) as database:
                    problem = _damage(database, size_bytes)
            except (sqlite3.Error, MemoryError) as error:
                said = printable(str(error))
                problem = Problem(FindingKind.CORRUPT, f"SQLite does not read it ({said}); {_FAILS}")
            if problem:
                yield problem

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """How many rows it has."""
        try:
            with closing(self._opened(item)) as database:
                rows = str(next(database.execute("SELECT count(*) FROM dict"))[0])
        except (sqlite3.Error, MemoryError, UnjudgedError) as error:
            rows = f"not counted: {error}"
        fields = {"key": entry.key, **dict(entry.fields), "keys of its rows": "pickles, not unpickled"}
        return EntryReport(
            entry, tuple(KeyField(*pair) for pair in fields.items()), (("kind", "database"), ("rows", rows))
        )

    def payload(self, item: Files) -> bytes:
        """The database as it is."""
        return item.read(item.names[0], _LARGEST_BYTES)

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The database first, as that may be damaged without its log, and a log alone harms nobody."""
        return sorted(names)

    @contextmanager
    def lock(self, item: Files) -> Iterator[None]:
        """A lease of the database, so that no program has it open; on Windows the removal itself fails."""
        with item.open() as folder:
            fd = folder.open_file(item.names[0])
        try:
            if why := _held(fd):
                raise HeldError(f"{why} {item.path} open, which could store nothing more; end it first")
            yield
        finally:
            os.close(fd)

    def _opened(self, item: Files) -> sqlite3.Connection:
        """A copy in memory; raises sqlite3.Error, UnjudgedError for one that a program changes."""
        if item.seen[item.names[0]].st_size > _LARGEST_BYTES:
            raise UnjudgedError(f"{item.path} is larger than {format_size(_LARGEST_BYTES)} and was not read")
        for name in item.names[1:]:
            if not name.endswith("-shm") and item.seen[name].st_size:
                raise UnjudgedError(
                    f"{item.path} has a log, as a program writes to it or was stopped while it did; SQLite "
                    "works that in when the next program opens it"
                )
        data = bytearray(self.payload(item))
        data[_VERSIONS] = _ROLLBACK  # in memory nothing else is read
        database = sqlite3.connect(":memory:")
        database.execute("PRAGMA trusted_schema=OFF")
        database.deserialize(bytes(data))
        return database


def _damage(database: sqlite3.Connection, size_bytes: int) -> Problem | None:
    """What is wrong with a database of this size on disk."""
    pages, page_bytes, said = (
        next(database.execute(f"PRAGMA {pragma}"))[0]
        for pragma in ("page_count", "page_size", "quick_check(1)")
    )
    if pages * page_bytes > size_bytes:
        return Problem(FindingKind.TRUNCATED, f"its last pages are gone; {_FAILS}")
    if said != "ok":
        return Problem(
            FindingKind.CORRUPT, f"SQLite finds it damaged ({printable(' '.join(said.split()))}); {_FAILS}"
        )
    for (row,) in database.execute("SELECT key_value FROM dict"):
        if wrong := pickles.texts(row if isinstance(row, bytes) else b"", 1)[1]:
            return Problem(wrong.kind, f"a row {wrong.detail}; {_FAILS}")
    return None


def _held(fd: int) -> str:
    """Who may have a file open beside this process, to begin a sentence; empty for nobody."""
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(
                fd, fcntl.F_SETSIG, signal.SIGURG
            )  # what opens it meanwhile does not end this process
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return "a program has"
        except OSError:  # such as a file system without leases
            return "it cannot be told here whether a program has"
    return ""


SYSTEM = ForeignSystem(Pytools)
