"""MIOpen's databases: the kernels that it compiled for each kind of GPU, and its measurements.

Source: MIOpen of October 2024, ``src/binary_cache.cpp``, ``src/include/miopen/kern_db.hpp``,
``src/sqlite_db.cpp`` and ``src/db_record.cpp``; checked against the databases of measurements in its
repository; no kernel cache written by it was available. Each version has a directory with ``GPU_CUS.ukdb``,
in SQLite: a row of ``kern_db`` has the name of a kernel's source and its options, which are its whole key,
the binary (bzip2 if ``uncompressed_size`` is not 0) and its MD5. MIOPEN_CUSTOM_CACHE_DIR is used as it is,
without a version. Next to its settings are ``.udb``, in SQLite, and ``.udb.txt`` and ``.ufdb.txt``, lines of
``PROBLEM=SOLVER:VALUES;...``. Programs wait for SQLite's own locks; nothing is ever evicted.
"""

import bz2
import re
import sqlite3
from collections.abc import Iterator, Sequence
from hashlib import md5

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import databases
from gpucache.caches.databases import DatabaseFormat, has_table
from gpucache.caches.files import Files
from gpucache.caches.format import HeldError
from gpucache.caches.layout import Layout, hashed
from gpucache.units import printable

_GPU = r"gfx(?:9[0-9a-f]{2}|1[0-9a-f]{3}|8\d\d)"
_NAMES = (r"([0-9.]+)/(gfx\w+\.ukdb)", r"(gfx\w+\.ukdb)", r"(gfx[\w.]+\.udb)", r"(gfx[\w.]+\.uf?db\.txt)")
_BINARY_BYTES, _LINE_BYTES = 256 << 20, 1 << 20
_NAMED = "SELECT kernel_name, kernel_args FROM kern_db ORDER BY 1, 2 LIMIT 1000"
_ROWS = "SELECT id, kernel_name, length(kernel_blob), kernel_hash, uncompressed_size FROM kern_db"
_RECORD = re.compile(rb"[^=]+=[^:;]+:[^;]*(?:;[^:;]+:[^;]*)*;?")


class Miopen(DatabaseFormat, of="miopen"):
    """The files that MIOpen stores for each of its versions and each kind of GPU: a file is an entry."""

    layout = Layout(
        [*_NAMES, *(name + side for name in _NAMES[:3] for side in databases.SIDES)],
        signs=(r"[0-9.]+/gfx.+", r"gfx.+\.(?:ukdb|udb|uf?db\.txt)", r"\d+\.\d+\.\d+\.[\w.-]+"),
        key=hashed,
    )
    opaque = (
        "a database is found by version and GPU, and a kernel in it by its source's name and its options, "
        "which 'gpucache inspect KEY' shows; MIOPEN_LOG_LEVEL=6 makes MIOpen print those that it wants"
    )
    consequence = "MIOpen cannot use it, so it compiles or measures at every start"
    row_fails = "MIOpen raises an error whenever it wants that kernel, as long as the row is there"
    folders_removed = 1

    def look(self, item: Files) -> CacheEntry:
        name = item.names[0]
        text = name.endswith(".txt")
        wrong = None if text else self.look_at_database(item)
        if name.endswith(databases.SIDES):
            return self.entry(item)._replace(damage=wrong)
        gpu = re.match(_GPU, name)
        return self.entry(item)._replace(
            program=name.split(".")[0],
            target=f"hip:{gpu[0]}" if gpu else "",
            artifact_kind="kernel database" if name.endswith(".ukdb") else "measurements",
            damage=wrong,
            toolchain=(("MIOpen", item.parts[0]),) if item.parts else (),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        return _lines(item) if item.names[0].endswith(".txt") else super().check(item)

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:
        if not item.names[0].endswith(".ukdb"):
            return
        if not has_table(connection, "kern_db"):
            yield Problem(FindingKind.MISLABELLED, f"it has no table of kernels; {self.consequence}")
        else:
            yield from super().rows(item, connection)

    def broken(self, connection: sqlite3.Connection) -> Iterator[tuple[str, int, Problem]]:
        for number, name, length, digest, size in connection.execute(_ROWS):
            if any(isinstance(one, int) and one > _BINARY_BYTES for one in (length, size)):
                continue  # larger than the limit for reading
            ((blob,),) = connection.execute("SELECT kernel_blob FROM kern_db WHERE id = ?", (number,))
            shown = f"its kernel {printable(str(name))}"
            try:
                data = bz2.BZ2Decompressor().decompress(blob, max(size, 0) + 1) if size else blob
                found = md5(data, usedforsecurity=False).hexdigest()
            except (OSError, ValueError, TypeError):
                yield "kern_db", number, Problem(FindingKind.CORRUPT, f"{shown} does not unpack")
                continue
            if found != digest:
                yield "kern_db", number, Problem(FindingKind.CORRUPT, f"{shown} does not match its MD5")

    def fix(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        wrong = [one for one in problems if one.kind in self.fixes]
        if wrong and item.names[0].endswith(".txt") and all(one.kind is FindingKind.CORRUPT for one in wrong):
            raise HeldError("the file stays for its other lines; take such lines out yourself")
        return super().fix(item, problems)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield "version", "/".join(item.parts) or "not told"

    def content(self, item: Files, entry: CacheEntry) -> Sequence[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        if item.names[0].endswith(".ukdb") and item.seen[item.names[0]].st_size:
            with self.database(item) as (connection, _), databases.told(item.path):
                found = connection.execute(_NAMED) if has_table(connection, "kern_db") else ()
                rows = [(printable(str(one)), printable(str(args).strip())) for one, args in found]
        return (("kind", entry.artifact_kind), ("kernels told", str(len(rows))), *rows)


def _lines(item: Files) -> Iterator[Problem]:
    data = item.read(item.names[0], _BINARY_BYTES)
    bad = [
        number
        for number, line in enumerate(data.splitlines(), 1)
        if not _RECORD.fullmatch(line[:_LINE_BYTES])
    ]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield Problem(
            FindingKind.CORRUPT, f"line {bad[0]}{more} is not a record, so MIOpen skips it and measures again"
        )
