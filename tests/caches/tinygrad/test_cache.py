"""Whose a database is that has the name of tinygrad's."""

import sqlite3
from contextlib import closing
from pathlib import Path

from gpucache.caches.registry import of_others
from tests.caches.opened import opened
from tests.caches.tinygrad.build import put

SYSTEM = of_others("tinygrad")


def test_a_database_of_another_program_is_not_tinygrads(tmp_path: Path) -> None:
    """Its tables decide, as several programs name one ``cache.db``."""
    put(tmp_path / "own")
    (tmp_path / "other").mkdir()
    with closing(sqlite3.connect(tmp_path / "other" / "cache.db")) as database, database:
        database.execute("CREATE TABLE cache (key TEXT PRIMARY KEY, blob BLOB NOT NULL)")
    assert SYSTEM.recognises(tmp_path / "own") and not SYSTEM.recognises(tmp_path / "other")
    assert not list(opened(SYSTEM, tmp_path / "other").scan())
