"""tinygrad's databases for tests, made by SQLite from tinygrad's statements."""

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, Lay, changed, lay

_COMPILED = "compile_null_sm_80_22"
_TABLE = "CREATE TABLE IF NOT EXISTS '{}' (key text, val blob, PRIMARY KEY (key))"


def content(number: int = 0) -> bytes:
    """A database with two binaries and an older table."""
    with closing(sqlite3.connect(":memory:")) as database, database:
        for table in (_COMPILED, "compile_null_sm_80_16"):
            database.execute(_TABLE.format(table))
            for row in range(2):
                pair = (f"void k{row}() {{ {number} }}", pickle.dumps(PTX, 4))
                database.execute(f"REPLACE INTO '{table}' (key, val) VALUES (?, ?)", pair)
        database.commit()
        return database.serialize()


def put(root: Path, number: int = 0) -> Path:
    """Lay a database; its file."""
    return lay(root / (f"cache-{number}.db" if number else "cache.db"), content(number))


def poison(path: Path, value: bytes) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {_COMPILED} SET val = ? WHERE rowid = 1", (value,))
    return path


def _value(value: str) -> Lay:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"UPDATE {_COMPILED} SET val = CAST({value} AS BLOB) WHERE rowid = 1")

    return changed(put, change)


def _page_lost(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * 4096 + data[8192:])


def _in_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


CASES: Cases = {
    "a database": put,
    "a value cut": _value("substr(val, 1, 20)"),
    "a value empty": _value("x''"),
    "a value of text": _value("'text'"),
    "a frame that is too long": _value("x'80049500ff' || substr(val, 6)"),
    "another protocol": _value("x'80ff' || substr(val, 3)"),
    "no binary": _value("x'4b012e'"),
    "a binary cut": _value("x'80034314' || x'7f454c4602010133070000000000000002000000' || x'2e'"),
    "new": changed(put, lambda path: path.write_bytes(b"")),
    "cut": changed(put, lambda path: path.write_bytes(path.read_bytes()[:-1000])),
    "a page lost": changed(put, _page_lost),
    "another format": changed(put, lambda path: path.write_bytes(b"garbage")),
    "a log without its database": changed(put, lambda path: path.rename(f"{path}-wal")),
    "a folder in its place": changed(put, _in_place),
    "files that programs fetched": changed(put, lambda path: (path.parent / "downloads").mkdir()),
}
PLACES: Environs = {
    "a file of another name": ({"CACHEDB": "{tmp}/mine/tiny.db"}, "mine/"),
    "a file": ({"CACHEDB": "{tmp}/mine/cache.db"}, "mine/"),
    "off": ({"CACHEDB": "{tmp}/mine/cache.db", "CACHELEVEL": "0"}, "mine/"),
}
