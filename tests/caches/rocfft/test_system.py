"""Where rocFFT looks, what is wrong with those places, and the environment that redirects it."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import of_others
from gpucache.caches.rocfft.database import misfit
from tests.caches.rocfft.build import code, database, row
from tests.unprivileged import as_nobody, needs_root

SYSTEM = of_others("rocfft")


def user(path: Path, **more: str) -> Location:
    """The user's location with a path set, and no system database."""
    environ = {"ROCFFT_RTC_CACHE_PATH": str(path), "ROCFFT_RTC_SYS_CACHE_PATH": ":memory:", **more}
    (location,) = SYSTEM.locations(environ)
    return location


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "rocm" / "lib"
    folder.mkdir(parents=True)
    (folder / "librocfft.so.0.3").touch()
    return folder


@needs_root
def test_a_library_in_a_folder_that_may_not_be_entered_has_no_database(library: Path, tmp_path: Path) -> None:
    """Whether it is there cannot be known, and nothing raises."""
    tmp_path.chmod(0o700)
    environ = {"LD_LIBRARY_PATH": str(library), "ROCM_PATH": str(library.parent)}
    assert as_nobody(lambda: str(len(SYSTEM.locations(environ)))) == "0"


def test_damage_is_a_finding_and_no_problem_of_the_place(tmp_path: Path) -> None:
    """The content of the file changes nothing about its place, so that nothing is reported twice."""
    before = user(tmp_path / "c.db").problems
    (tmp_path / "c.db").write_bytes(b"junk")
    assert user(tmp_path / "c.db").problems == before


def test_a_place_that_was_named_is_looked_at_too(tmp_path: Path) -> None:
    """A database opened by its path says what is wrong with the place as one of the environment does."""
    place = tmp_path / "no" / "c.db"
    location = SYSTEM.open(Location("rocfft", str(place), "--cache", enabled=True)).location()
    assert location.problems == user(place).problems
    assert any("mkdir" in problem for problem in location.problems)


def test_a_systems_place_is_held_to_its_owner_alone(library: Path) -> None:
    """A directory that others may write is not believed, the process that reads from it."""
    database(library / "rocfft_kernel_cache.db", [row()])
    environ = {"ROCM_PATH": str(library.parent)}
    (sound,) = SYSTEM.locations(environ)
    library.chmod(0o777)
    (open_to_all,) = SYSTEM.locations(environ)
    assert sound.problems == ()
    assert "others may write" in open_to_all.problems[0]


def test_a_read_only_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be written keeps nothing new."""
    database(tmp_path / "c.db", [row()])
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "c.db" or mode != os.W_OK)
    assert any("read-only" in problem for problem in user(tmp_path / "c.db").problems)


def test_a_read_only_folder_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where directory and file cannot be written that is one problem."""
    (tmp_path / "d").mkdir()
    database(tmp_path / "d" / "c.db", [row()])
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    told = [problem for problem in user(tmp_path / "d" / "c.db").problems if "nothing new is kept" in problem]
    assert len(told) == 1


def test_tracing_is_the_bit_of_the_compile_log() -> None:
    """Bit 32 of rocFFT's layers logs runtime compilation."""
    assert SYSTEM.tracing == {"ROCFFT_LAYER": "32"}


def test_code_for_a_family_of_processors_fits_each_of_them() -> None:
    """Code whose flags name no single processor is not held against the architecture of its row."""
    assert misfit(code("gfx9-generic"), "gfx906") is None
