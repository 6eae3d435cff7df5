"""Futhark's cache files as a kind of cache."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.futhark import format as futhark_format
from gpucache.caches.registry import of_others
from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from tests.caches.futhark.build import file_bytes, open_cache

SYSTEM = of_others("futhark")


def test_no_place_is_known_beforehand() -> None:
    """Only who starts a program knows its file."""
    assert SYSTEM.locations({"HOME": "/", "CUDA_HOME": "/opt/cuda"}) == ()


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    """No variable redirects or traces; the fields of a question are there."""
    assert "--cache-file" in SYSTEM.isolation(tmp_path).lacking
    assert SYSTEM.isolation(tmp_path).environment == ()
    assert SYSTEM.tracing == {}
    assert {"source", "option", "log"} <= set(SYSTEM.wanted)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(file_bytes(), True), (b"FUTHARK\0", True), (b"FUTHARK", False), (b"", False), (b"junk" * 20, False)],
)
def test_a_file_is_recognised_by_its_magic(tmp_path: Path, data: bytes, expected: bool) -> None:
    """Eight bytes tell, a part of them does not; likewise of the directory around it."""
    path = tmp_path / "x"
    path.write_bytes(data)
    assert (SYSTEM.recognises(path), SYSTEM.recognises(tmp_path)) == (expected, expected)


def test_what_is_no_file_is_not_recognised(tmp_path: Path) -> None:
    """Links, pipes, what is not there, and names that no file can have."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(file_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    os.mkfifo(tmp_path / "pipe")
    strange = (tmp_path / "link", tmp_path / "pipe", tmp_path / "no" / "x", Path("a\0b"), tmp_path)
    assert [path for path in strange if SYSTEM.recognises(path)] == []


def test_a_folder_is_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory of very many files no more than a bounded number is opened."""
    opened: list[str] = []

    def look(_folder: Folder, name: str) -> bool:
        opened.append(name)
        return False

    monkeypatch.setattr(futhark_format, "is_cache_file", look)
    for index in range(2100):
        (tmp_path / f"{index}").touch()
    assert not SYSTEM.recognises(tmp_path)
    assert len(opened) == 2000


def test_a_pipe_is_not_opened_as_a_cache(tmp_path: Path) -> None:
    """A location that is neither file nor directory is refused with what to name instead."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CacheUnusableError, match="is not a file or a directory; name"):
        open_cache(tmp_path / "pipe")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    """A zero byte in a name is an error of the place."""
    with pytest.raises(CacheUnusableError, match="cannot be accessed"):
        SYSTEM.open(Location("futhark", "a\0b", "--cache", enabled=True))
