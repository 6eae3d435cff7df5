"""MIOpen's databases for tests, made by SQLite from MIOpen's schema."""

import bz2
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS `kern_db` (`id` INTEGER PRIMARY KEY ASC,`kernel_name` TEXT NOT NULL
,`kernel_args` TEXT NOT NULL,`kernel_blob` BLOB NOT NULL,`kernel_hash` TEXT NOT NULL
,`uncompressed_size` INT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS `idx_kern_db` ON kern_db(kernel_name, kernel_args);
"""
NAMES = ("MIOpenConvUni.cpp.o", "static_composable_kernel.cpp.o", "small.o")


def binary(name: str) -> bytes:
    """What a kernel was compiled to."""
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
    path = root / f"3.2.{number}.0" / "gfx90a6e.ukdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content(number))
    path.chmod(0o600)
    return path


def execute(path: Path, statement: str) -> None:
    """Change a database."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
