"""MIOpen's databases for tests, made by SQLite from MIOpen's schema."""

import bz2
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.caches.opened import Cases, Environs, Lay, changed, lay, write

_SCHEMA = """
CREATE TABLE IF NOT EXISTS `kern_db` (`id` INTEGER PRIMARY KEY ASC,`kernel_name` TEXT NOT NULL
,`kernel_args` TEXT NOT NULL,`kernel_blob` BLOB NOT NULL,`kernel_hash` TEXT NOT NULL
,`uncompressed_size` INT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS `idx_kern_db` ON kern_db(kernel_name, kernel_args);
"""
NAMES = ("MIOpenConvUni.cpp.o", "static_composable_kernel.cpp.o", "small.o")


def binary(name: str) -> bytes:
    return b"\x7fELF" + name.encode() * 100


def content(number: int = 0) -> bytes:
    """A database with three kernels, the last of them not packed."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        for name in NAMES:
            data = binary(name)
            packed = name != NAMES[-1]
            row = (
                name, f" -DN={number} -mcpu=gfx90a", bz2.compress(data) if packed else data,
                hashlib.md5(data).hexdigest(), len(data) if packed else 0,
            )  # fmt: skip
            insert = (
                "INSERT INTO kern_db (kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size)"
            )
            database.execute(f"{insert} VALUES (?, ?, ?, ?, ?)", row)
        database.commit()
        return database.serialize()


def put(root: Path, number: int = 0) -> Path:
    """Lay the database of a version; its file."""
    return lay(root / f"3.2.{number}.0" / "gfx90a6e.ukdb", content(number))


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def _sql(*statements: str) -> Lay:
    return changed(put, *(lambda path, one=statement: execute(path, one) for statement in statements))


def _page_lost(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * 4096 + data[8192:])


def _linked(path: Path) -> None:
    path.rename(path.with_name("mine"))
    path.symlink_to("mine")


_NO_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
_RECORD = b"1000-13-13-1x1-NCHW-FP16-B=ConvBinWinogradRxSf3x2:0.139,0,Algo;GemmBwd1x1_stride1:0.05,0,Algo\n"
_MEASURED = "gfx90a6e.HIP.3_2_0_0.ufdb.txt"
CASES: Cases = {
    "a database": put,
    "another MD5": _sql("UPDATE kern_db SET kernel_hash = 'no' WHERE id = 3"),
    "a kernel that does not unpack": _sql("UPDATE kern_db SET kernel_blob = x'4242' WHERE id = 1"),
    "another size": _sql("UPDATE kern_db SET uncompressed_size = 7 WHERE id = 1"),
    "a size below zero": _sql("UPDATE kern_db SET uncompressed_size = -7 WHERE id = 1"),
    "text in the place of a kernel": _sql("UPDATE kern_db SET kernel_blob = 'text' WHERE id = 3"),
    "a view without end": _sql("DROP TABLE kern_db", f"CREATE VIEW kern_db AS {_NO_END}"),
    "cut": changed(put, lambda path: path.write_bytes(path.read_bytes()[:-1000])),
    "another format": changed(put, lambda path: path.write_bytes(b"garbage")),
    "a page lost": changed(put, _page_lost),
    "new": changed(put, lambda path: path.write_bytes(b"")),
    "a log without its database": changed(put, lambda path: path.rename(f"{path}-wal")),
    "a link": changed(put, _linked),
    "in a folder without versions": changed(put, lambda path: path.rename(path.parents[1] / path.name)),
    "alone: notes of one's own": write("gfx900.ukdb", b"my own notes"),
    "measurements": write(_MEASURED, _RECORD),
    "measurements with a broken line": write(_MEASURED, _RECORD + b"broken\n"),
    "measurements that could be parted in many ways": write(_MEASURED, b"a=" + b"b:" * 500 + b";;\n"),
}
PLACES: Environs = {"measurements beside its settings": ({"HOME": "{tmp}"}, ".config/miopen")}
