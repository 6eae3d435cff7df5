"""pytools' dictionaries for tests: databases as it makes them, with pickles of texts."""

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

PYTHON = "3.11.7"


def content(number: int = 0) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE dict (keyhash TEXT NOT NULL PRIMARY KEY, key_value TEXT NOT NULL)")
        rows = [(f"{row:032x}", pickle.dumps((row, f"code {number}"))) for row in range(2)]
        with database:
            database.executemany("INSERT INTO dict VALUES (?, ?)", rows)
        return database.serialize()


def put_items(root: Path, name: str = "code-v3") -> Path:
    """Lay a dictionary of one item as pytools before 2024.1.3 does; the directory of the item."""
    folder = root / f"pdict-v4-{name}-py{PYTHON}.final.0" / "3f4" / "6cd" / ("e2" * 29)
    folder.mkdir(parents=True)
    for file, value in (("key", 7), ("contents", "code")):
        (folder / file).write_bytes(pickle.dumps(value))
    return folder


def put(root: Path, number: int = 0, python: str = PYTHON, dash: str = "-") -> Path:
    """Lay a dictionary; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"pdict-v5-pyopencl-invoker-cache-v{number}-nano{dash}{python}.final.0.sqlite"
    path.write_bytes(content(number))
    path.chmod(0o600)
    return path


def poison(path: Path, value: bytes) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE dict SET key_value = ? WHERE rowid = 1", (value,))


def cut_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE dict SET key_value = substr(key_value, 1, 20) WHERE rowid = 1")
