"""Signs that a command also caches in a place that gpucache does not watch."""

import os
from pathlib import Path

import pytest

from gpucache.engine.warm.command import (
    Clues,
    Homeless,
    Watched,
    homeless_places,
    is_far_more,
    opened,
    places,
)

_MS = 1_000_000
_S = 10**9


def test_noise_is_not_far_more() -> None:
    """Starts vary by up to half as much again and a tenth of a second; without starts there is no verdict."""
    assert not is_far_more(249 * _MS, [50 * _MS, 100 * _MS])
    assert is_far_more(251 * _MS, [50 * _MS, 100 * _MS])
    assert not is_far_more(10**12, [])


def test_a_place_says_more_than_times() -> None:
    """The directory is reported if it is known, else the times; without evidence there is no report."""
    assert Clues(100 * _MS, (100 * _MS,), Homeless(100 * _MS, ("~/.app",))).reason == ""
    first = Clues(3000 * _MS, (100 * _MS,))
    assert first.reason == (
        "it also caches where gpucache does not look: the first run of all used 3.00 s of CPU time, "
        "a cold start at most 100 ms"
    )
    home = Clues(3000 * _MS, (100 * _MS,), Homeless(900 * _MS, ("~/.app",)))
    assert home.reason.startswith("it also caches below the home directory in ~/.app: with an empty one")
    many = Clues(3000 * _MS, (100 * _MS,), home.homeless, ("/a", "/b", "/c", "/d"))
    assert "/a, /b, /c and 1 more" in many.reason


def test_what_an_empty_home_folder_gains_is_named(tmp_path: Path) -> None:
    """The first directory below it, the largest first; empty files do not count."""
    for name, size in (("home/.app/kernels/a", 9), ("home/.appstate", 1), ("tmp/x", 20), ("home/.none", 0)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    assert homeless_places(tmp_path) == ("TMPDIR/x", "~/.app", "~/.appstate")


def test_a_trace_names_the_files_that_were_opened_for_reading(tmp_path: Path) -> None:
    """Files are named by their real paths, strange names too; failed and write-only opens are left out."""
    (tmp_path / "trace.1").write_bytes(
        b'openat(AT_FDCWD</w>, "a", O_RDONLY|O_CLOEXEC) = 3</w/a>\n'
        b'openat(AT_FDCWD</w>, "a", O_RDONLY) = 4</w/a>\n'
        b'openat(AT_FDCWD</w>, "out", O_WRONLY|O_CREAT, 0666) = 3</w/out>\n'
        b'openat(AT_FDCWD</w>, "no", O_RDONLY) = -1 ENOENT (No such file or directory)\n'
    )
    (tmp_path / "trace.2").write_bytes(b'open("/w/\\303\\251 x", O_RDWR) = 5</w/\\303\\251 x>\n')
    assert list(opened(tmp_path)) == [Path("/w/a"), Path("/w/\u00e9 x")]


def _file(path: Path, written_s: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (written_s, written_s))
    return path


def test_a_cache_is_what_was_written_once_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that existed before, that every start writes, or that are in our directories are not a cache, nor
    is the number of an installation in the directory of states."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    own, script = tmp_path / "bench", tmp_path / "cache" / "script.sh"
    watched = Watched(100 * _S, 200 * _S, own, lambda _: None, (str(script),))
    files = [
        _file(tmp_path / "kept" / "kernel", 150),
        _file(tmp_path / "state" / "last-start", 250),
        _file(tmp_path / "states" / "app" / "number", 150),
        _file(tmp_path / "model" / "weights", 50),
        _file(own / "warm" / "kernel", 150),
        _file(tmp_path / "app" / "__pycache__" / "app.pyc", 150),
        _file(script, 50),
    ]
    assert places(files, watched) == (str(tmp_path / "kept"),)


def test_a_cache_is_known_by_its_layout_or_its_name(tmp_path: Path) -> None:
    """A cache filled earlier is found if a system knows it, or if its directory is called a cache."""
    known = _file(tmp_path / "known" / "ab" / "kernel", 50)
    called = _file(tmp_path / ".cache" / "app" / "kernel", 50)
    root_of = {known.parent: tmp_path / "known"}.get
    found = places([known, called], Watched(100 * _S, 200 * _S, tmp_path / "bench", root_of, ()))
    assert found == (str(tmp_path / "known"), str(tmp_path / ".cache"))


def test_a_cache_with_a_folder_for_each_entry_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many places are reported by their common directory, unless it is the home directory or above it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    kernels = [_file(tmp_path / ".boost_compute" / name[:2] / name / "kernel", 150) for name in _HASHES]
    own = [_file(tmp_path / name / "kernel", 150) for name in ("a", "b")]
    watched = Watched(100 * _S, 200 * _S, tmp_path / "bench", lambda _: None, ())
    assert places(kernels, watched) == ("~/.boost_compute",)
    assert places([*kernels[:2], *own], watched) == (
        *(f"~/.boost_compute/{name[:2]}/{name}" for name in _HASHES[:2]),
        "~/a",
        "~/b",
    )


_HASHES = ("50db4bf5", "83007bf5", "a4f1c6d0", "ad945cce")
