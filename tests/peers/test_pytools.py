"""pytools' own dictionaries, and what pytools does with damage, after a repair and while one is open."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from gpucache.cli import main
from tests.caches.opened import kinds, only
from tests.caches.pytools.build import cut_row
from tests.children import run_text

SYSTEM = of_others("pytools")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pytools") is None, reason="pytools is not installed"
)

_PROGRAM = """
from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict

known = WriteOncePersistentDict("peer-v1", safe_sync=False)
try:
    print("found" if known["key"] == "code" else "wrong")
except NoSuchEntryError:
    known["key"] = "code"
    print("stored", flush=True)
input()
"""


def _run(home: Path) -> str:
    """Whether a program finds its key, stores it, or fails."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(home)}
    done = run_text([sys.executable, "-c", _PROGRAM], env=environ, input="\n")  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else "failed"


def _middle_overwritten(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(200) + data[4296:])


def _pages_cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [_middle_overwritten, _pages_cut, cut_row])
def test_a_damaged_dictionary_fails_programs_until_a_repair(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """As the finding says; what pytools wrote was sound, and it stores again after the removal."""
    assert (_run(tmp_path), _run(tmp_path)) == ("stored", "found")
    (location,) = SYSTEM.locations({"XDG_CACHE_HOME": str(tmp_path)})
    cache = SYSTEM.open(location)
    entry = only(cache)
    assert entry.program == "peer-v1" and not cache.check(entry).findings
    damage(Path(entry.path))
    assert _run(tmp_path) == "failed"
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked)[0] in (FindingKind.CORRUPT, FindingKind.TRUNCATED)
    assert cache.repair(checked, entry).findings[0].repaired
    assert (_run(tmp_path), _run(tmp_path)) == ("stored", "found")


def test_warm_counts_what_a_program_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By dictionaries, not by the files that SQLite makes; the second run stores nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    program = _PROGRAM.replace("input()", "")
    into = tmp_path / "warmed"
    assert main(["warm", "--into", str(into), "--", sys.executable, "-c", program]) == 0
    said = "".join(capsys.readouterr())
    assert "1 entry (" in said and "into pytools in all" in said and f"XDG_CACHE_HOME={into}" in said


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_dictionary_that_a_program_has_open_goes_once_it_ended(tmp_path: Path) -> None:
    """A removal before that would make the next store of the program fail."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environ, stdin=pipe, stdout=pipe) as program:
        assert program.stdout and program.stdout.readline() == b"stored\n"
        cache = SYSTEM.open(Location("pytools", str(tmp_path / "pytools"), "--cache", enabled=True))
        kept = cache.remove(only(cache), "--all")
        assert kept is not None and "end it first" in kept.reason
        program.communicate(b"\n", timeout=120)
    assert cache.remove(only(cache), "--all") is None
    assert _run(tmp_path) == "stored"
