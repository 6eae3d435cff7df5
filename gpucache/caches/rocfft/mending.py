"""Every change of a database that is there: rows removed, pages given back, damage taken out of the way.

Owns the rule that nothing is changed but by SQLite under its own locks, and only in a table that is
rocFFT's and runs nothing. A file that SQLite cannot open is renamed, never removed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from gpucache.answers.evict import Kept
from gpucache.caches.databases import open_reader, told, writing
from gpucache.caches.rocfft.rows import Row, look_again
from gpucache.caches.rocfft.schema import TABLE, Shape, Table, read_shape
from gpucache.caches.sqlite_file import SIDES, examine, sides
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.units import format_size

NAMED = "rocfft_kernel_cache*.db"
_VACUUM_SHARE = 5
"""A fifth of all pages free is where rocFFT's own trimming gives pages back."""
_ASIDE_LIMIT = 1000


def delete(path: Path, rows: Sequence[Row]) -> list[Kept | None]:
    """Delete rows that are as they were seen, all in one transaction; None for each that is gone."""
    kept: list[Kept | None] = []
    try:
        with changing(path) as connection:
            for row in rows:
                found = look_again(connection, row)
                kept.append(Kept() if found is None else None)
                if found is not None:
                    connection.execute(f"DELETE FROM {TABLE} WHERE rowid = ?", (found.rowid,))
    except (FormatError, CacheUnusableError) as error:
        return [Kept(str(error))] * len(rows)
    return kept


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on rocFFT's table; raises FormatError, CacheUnusableError."""
    with writing(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _require_plain(path, read_shape(connection))
        yield connection
        connection.execute("COMMIT")  # what is not committed goes when the connection closes


def _require_plain(path: Path, shape: Shape) -> None:
    if shape.table is not Table.OURS or not shape.alone:
        raise FormatError(f"{path} does not hold rocFFT's table alone; it is left as it is")


def give_back(path: Path) -> tuple[str, ...]:
    """Shrink a database of which a fifth or more is free; sentences that say what was done."""
    try:
        file = examine(path)
        if file is None or not file.size_bytes:
            return ()
        with writing(path) as connection:
            free, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _COUNTS)
            if not free or free * _VACUUM_SHARE < pages:
                return ()
            share = f"{100 * free // pages} % of {path.name}"
            if not read_shape(connection).alone:
                return (f"{share} is free and stays so, as it holds more than rocFFT's table",)
            connection.execute("VACUUM")
    except (FormatError, CacheUnusableError) as error:
        return (f"free pages were not given back: {error}",)
    gained = file.size_bytes - path.stat().st_size
    return (f"{share} was free, so VACUUM gave {format_size(max(gained, 0))} back",)


_COUNTS = ("freelist_count", "page_count")


def close_log(path: Path) -> bool:
    """Work a log or a dead writer's journal into rocFFT's database and leave write-ahead mode.

    Not while others have it open: then SQLite refuses, and nothing changes.
    """
    try:
        if not _is_plain(path):
            return False
        with writing(path) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return bool(connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete")
    except (FormatError, CacheUnusableError):
        return False


def _is_plain(path: Path) -> bool:
    """Whether a database holds nothing but rocFFT's table, told without changing it."""
    file = examine(path)
    if file is None or not file.header:
        return False
    reader = open_reader(path, file)
    try:
        with told(path):
            return read_shape(reader.connection).alone
    finally:
        reader.close()


def reindex(path: Path) -> bool:
    """Make the index anew from the rows; whether the pages are sound then."""
    try:
        if not _is_plain(path):
            return False
        with changing(path) as connection:
            connection.execute(f"REINDEX {TABLE}")
            said = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if said[0] != "ok":
                raise FormatError(f"{path} stays damaged")
    except (FormatError, CacheUnusableError):
        return False
    return True


def move_aside(path: Path) -> Path | None:
    """Rename a damaged database and what lies beside it, so that rocFFT makes a new one; its new place.

    Refused, with None, for a file that neither begins as a SQLite database nor is named as rocFFT names its
    own, and for a database that holds tables of others.
    """
    with told(path), Folder.at(path.parent) as folder:
        if not _may_go(path):
            return None
        aside = _free_name(folder, path.name)
        # A journal or log first: beside a new database it would be worked into that.
        for suffix in (*SIDES, ""):
            if suffix == "" or suffix in sides(path):
                folder.move(path.name + suffix, folder, aside + suffix)
    return path.with_name(aside)


def _may_go(path: Path) -> bool:
    file = examine(path)
    if file is None or not file.database:
        return file is not None and fnmatch(path.name, NAMED)
    try:
        with writing(path) as connection:
            connection.execute("BEGIN EXCLUSIVE")  # nobody else is in the middle of anything
            return read_shape(connection).alone
    except CacheUnusableError:
        return False
    except FormatError:
        return True


def _free_name(folder: Folder, name: str) -> str:
    taken = {entry.name for entry in folder.entries()}
    names = (f"{name}.corrupt{number or ''}" for number in range(_ASIDE_LIMIT))
    for candidate in names:
        if taken.isdisjoint(candidate + suffix for suffix in ("", *SIDES)):
            return candidate
    raise CacheUnusableError(f"{folder.path} holds {_ASIDE_LIMIT} damaged databases of {name}; remove them")
