"""MIOpen's databases: the kernels that it compiled for each kind of GPU, and what it measured.

Source: MIOpen of October 2024, ``src/binary_cache.cpp``, ``src/include/miopen/kern_db.hpp``,
``src/sqlite_db.cpp`` and ``src/db_record.cpp``; read against the databases of measurements in its repository,
while no cache of kernels that it wrote was at hand. A folder for each version holds ``GPU_CUS.ukdb``, in
SQLite: a row of ``kern_db`` has the name of a kernel's source and its options, which are all of its key, the
binary (by bzip2 where ``uncompressed_size`` is not 0) and the MD5 of that. MIOPEN_CUSTOM_CACHE_DIR is taken
as it is, without a version. Beside its settings lie ``.udb``, in SQLite, and ``.udb.txt`` and ``.ufdb.txt``,
lines of ``PROBLEM=SOLVER:VALUES;...``. Programs wait for SQLite's own locks; nothing is ever evicted.
"""

import bz2
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import md5, sha1

from gpucache.caches import databases, sqlite_file
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.format import HeldError, Look, UnjudgedError
from gpucache.caches.layout import Layout
from gpucache.caches.places import Home, Place, Var
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.units import printable

_GPU = r"gfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}|8\d\d)"
_NAMES = (r"([0-9.]+)/(gfx\w+\.ukdb)", r"(gfx\w+\.ukdb)", r"(gfx[\w.]+\.udb)", r"(gfx[\w.]+\.uf?db\.txt)")
_SIDES = ("-wal", "-shm", "-journal")
_LARGEST_BYTES, _BINARY_BYTES, _COPIED_BYTES, _LINE_BYTES = 4 << 30, 256 << 20, 128 << 20, 1 << 20
_MOST = 20
"""Kernels of a database that are told one by one."""
_NAMED = "SELECT kernel_name, kernel_args FROM kern_db ORDER BY 1, 2 LIMIT 1000"
_ROWS = "SELECT id, kernel_name, length(kernel_blob), kernel_hash, uncompressed_size FROM kern_db"
_FAILS = "MIOpen raises an error whenever it wants that kernel, as long as the row is there"
_UNREAD = "MIOpen cannot use it, so it compiles or measures at every start"


def _key(groups: Sequence[str]) -> str:
    return sha1("/".join(groups).encode("utf-8", "surrogateescape")).hexdigest()


class Miopen(FilesFormat):
    """What MIOpen keeps for each of its versions and each kind of GPU: a file is an entry."""

    name = "miopen"
    title = "MIOpen kernel cache"
    owner = "MIOpen"
    place = Place(
        (Var("MIOPEN_CUSTOM_CACHE_DIR"), Home(".cache/miopen")),
        also=(Var("MIOPEN_USER_DB_PATH"), Home(".config/miopen")),
        move="set MIOPEN_CUSTOM_CACHE_DIR",
        nowhere="MIOpen names no place without a home folder; set MIOPEN_CUSTOM_CACHE_DIR",
        off={"MIOPEN_DISABLE_CACHE": ("1", "true", "yes", "on", "enable", "enabled")},
        opt_in=True,
    )
    layout = Layout(
        [*_NAMES, *(name + side for name in _NAMES[:3] for side in _SIDES)],
        signs=(r"[0-9.]+/gfx.+", r"gfx.+\.(?:ukdb|udb|uf?db\.txt)", r"\d+\.\d+\.\d+\.[\w.-]+"),
        key=_key,
    )
    wanted = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    opaque = (
        "a database is found by version and GPU, and a kernel in it by its source's name and its options, "
        "which 'gpucache inspect KEY' tells; MIOPEN_LOG_LEVEL=6 makes MIOpen print those that it wants"
    )
    tracing = {"MIOPEN_LOG_LEVEL": "6"}
    absent = "no entry has this key: MIOpen made no such database here, or it was removed"
    served = "MIOpen would open it; which of its kernels it serves, names and options decide"
    shows = "a database of MIOpen's"
    key_digits = 40
    folders_removed = 1

    def look(self, item: Files) -> Look:
        """Version, GPU, and what the database is for."""
        name = item.names[0]
        if name.endswith(_SIDES):
            return Look(problem=Problem(FindingKind.ORPHAN, "its database is gone"), shows=False)
        text = name.endswith(".txt")
        start = item.part(name, 0, len(sqlite_file.MAGIC))
        wrong = None
        if start and not text and start != sqlite_file.MAGIC:
            wrong = Problem(FindingKind.MISLABELLED, f"it is no database of SQLite's; {_UNREAD}")
        gpu = re.match(_GPU, name)
        return Look(
            program=name.split(".")[0],
            target=f"hip:{gpu[0]}" if gpu else "",
            kind="kernel database" if name.endswith(".ukdb") else "measurements",
            problem=wrong,
            used_ns=item.used_ns,
            toolchain=(("MIOpen", item.parts[0]),) if item.parts else (),
            shows=wrong is None and bool(start),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Whether SQLite finds it whole and each kernel has its MD5; of a text whether its lines read."""
        name = item.names[0]
        if problem := self.look(item).problem:
            yield problem
        elif name.endswith(".txt"):
            yield from _lines(item)
        elif item.seen[name].st_size:
            try:
                with self._opened(item) as (connection, file):
                    yield from _damage(connection, file, kernels=name.endswith(".ukdb"))
            except (sqlite3.Error, MemoryError, FormatError) as error:
                said = printable(str(error))
                yield Problem(FindingKind.CORRUPT, f"SQLite does not read it ({said}); {_UNREAD}")

    def mend(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Take the rows of broken kernels out; a database that does not read goes as a whole."""
        if not all(_FAILS in one.detail for one in problems if one.kind and one.kind.wrong):
            return problems if self.remove(item) is None else ()
        try:
            with databases.writing(item.path) as connection:
                connection.execute("BEGIN IMMEDIATE")
                broken = [number for number, _ in _broken(connection)]
                connection.executemany("DELETE FROM kern_db WHERE id = ?", [(number,) for number in broken])
                connection.execute("COMMIT")
        except (CacheUnusableError, FormatError) as error:
            raise HeldError(str(error)) from error
        return problems

    def payload(self, item: Files) -> bytes:
        """The database as it is."""
        return item.read(item.names[0], _LARGEST_BYTES)

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The database first, as that may be damaged without its log, and a log alone harms nobody."""
        return sorted(names)

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """Every kernel by name with its options, which are all of its key."""
        fields = (KeyField("key", entry.key), KeyField("version", "/".join(item.parts) or "not told"))
        rows: list[tuple[str, str]] = []
        if item.names[0].endswith(".ukdb"):
            with self._opened(item) as (connection, _), databases.told(item.path):
                found = connection.execute(_NAMED)
                rows = [(printable(str(one)), printable(str(args).strip())) for one, args in found]
        told = (("kind", entry.artifact_kind), ("kernels told", str(len(rows))), *rows)
        return EntryReport(entry, fields, told)

    @contextmanager
    def _opened(self, item: Files) -> Iterator[tuple[sqlite3.Connection, sqlite_file.SqliteFile]]:
        """A database and its header: a copy in memory, as reading a file leaves its time of use alone, and a
        large one, or one with a log, where it lies. Raises FormatError, UnjudgedError for one that is locked.
        """
        file = sqlite_file.examine(item.path)
        if file is None:
            raise FileNotFoundError(item.path)
        log = any(item.seen[name].st_size for name in item.names[1:])
        try:
            if log or file.size_bytes > _COPIED_BYTES:
                reader = databases.open_reader(item.path, file)
                with closing(reader):
                    yield reader.connection, file
            else:
                data = bytearray(self.payload(item))
                data[sqlite_file.VERSIONS] = bytes((sqlite_file.ROLLBACK, sqlite_file.ROLLBACK))
                with closing(databases.in_memory(bytes(data), item.path)) as connection:
                    yield connection, file
        except CacheUnusableError as error:
            raise UnjudgedError(str(error)) from error


def _damage(
    connection: sqlite3.Connection, file: sqlite_file.SqliteFile, *, kernels: bool
) -> Iterator[Problem]:
    if file.pages * file.page_bytes > file.size_bytes:
        yield Problem(FindingKind.TRUNCATED, f"its last pages are gone; {_UNREAD}")
        return
    said = next(connection.execute("PRAGMA quick_check(1)"))[0]
    if said != "ok":
        words = printable(" ".join(str(said).split()))
        yield Problem(FindingKind.CORRUPT, f"SQLite finds it damaged ({words}); {_UNREAD}")
    elif kernels:
        for found, (_, detail) in enumerate(_broken(connection)):
            if found < _MOST:
                yield Problem(FindingKind.CORRUPT, f"{detail}; {_FAILS}")


def _broken(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """The kernels that MIOpen would not take: their rows, and what is wrong with each."""
    rows = connection.execute(
        "SELECT id, kernel_name, length(kernel_blob), kernel_hash, uncompressed_size FROM kern_db"
    )
    for number, name, length, digest, size in rows:
        if not all(isinstance(one, int) and 0 <= one <= _BINARY_BYTES for one in (length, size)):
            continue
        ((blob,),) = connection.execute("SELECT kernel_blob FROM kern_db WHERE id = ?", (number,))
        shown = f"its kernel {printable(str(name))}"
        try:
            data = bz2.BZ2Decompressor().decompress(blob, size + 1) if size else blob
        except (OSError, ValueError, TypeError):
            yield number, f"{shown} does not unpack"
            continue
        if md5(data, usedforsecurity=False).hexdigest() != digest:
            yield number, f"{shown} is not what its MD5 says"


def _lines(item: Files) -> Iterator[Problem]:
    """Lines of measurements that MIOpen skips."""
    data = item.read(item.names[0], _BINARY_BYTES)
    bad = [
        number
        for number, line in enumerate(data.splitlines(), 1)
        if not re.fullmatch(rb"[^=]+=(?:[^:;]+:[^;]*;?)+", line[:_LINE_BYTES])
    ]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield Problem(
            FindingKind.CORRUPT, f"line {bad[0]}{more} is no record, so MIOpen skips it and measures again"
        )


SYSTEM = ForeignSystem(Miopen)
