"""cuTile's databases for tests, made by SQLite from cuTile's statements."""

import sqlite3
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.caches.deep_gemm.build import CUBIN
from tests.caches.opened import Cases, changed, lay

_TABLE = """CREATE TABLE IF NOT EXISTS cache (
    key       TEXT PRIMARY KEY,
    blob      BLOB NOT NULL,
    blob_size INTEGER NOT NULL,
    atime     REAL NOT NULL,
    metadata  TEXT
)"""


def content(number: int = 0) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database, database:
        database.execute(_TABLE)
        database.execute("CREATE INDEX IF NOT EXISTS idx_cache_atime_key on cache(atime, key)")
        for row in range(2):
            key = sha256(b"%d %d" % (number, row)).hexdigest()
            values = (key, CUBIN, len(CUBIN), 1.0, '{"version": 1}')
            database.execute("INSERT INTO cache VALUES (?, ?, ?, ?, ?)", values)
        database.commit()
        return database.serialize()


def put(root: Path, number: int = 0) -> Path:
    """Lay a database; its file."""
    return lay(root / (f"cache-{number}.db" if number else "cache.db"), content(number))


def change(path: Path, blob: str, size: str = "blob_size") -> None:
    """Give one row another binary, and maybe another size, as SQL expressions."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE cache SET blob = {blob}, blob_size = {size} WHERE rowid = 1")


def _page_lost(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * 4096 + data[8192:])


CASES: Cases = {
    "a database": put,
    "a kernel cut": changed(put, partial(change, blob="substr(blob, 1, 9)")),
    "a kernel cut, and its size": changed(put, partial(change, blob="substr(blob, 1, 9)", size="9")),
    "a kernel of text": changed(put, partial(change, blob="CAST('text' AS BLOB)", size="4")),
    "a page lost": changed(put, _page_lost),
    "empty": lambda root: lay(root / "cache.db", b""),
}
