"""pytools' own dictionaries: the counted entries, and the behaviour while one is open."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import of_others
from gpucache.cli import main
from tests.caches.opened import only
from tests.patience import PATIENCE_S
from tests.peers.owners import PYTOOLS

SYSTEM = of_others("pytools")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pytools") is None, reason="pytools is not installed"
)


def test_warm_counts_what_a_program_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts dictionaries, not the files that SQLite makes; the second run stores nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    program = PYTOOLS.program.replace("input()", "")
    into = tmp_path / "warmed"
    assert main(["warm", "--into", str(into), "--", sys.executable, "-c", program]) == 0
    said = "".join(capsys.readouterr())
    assert "1 entry (" in said and "into pytools in all" in said and f"XDG_CACHE_HOME={into}" in said


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_dictionary_that_a_program_has_open_goes_once_it_ended(tmp_path: Path) -> None:
    """An earlier removal would make the program's next store fail."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PYTOOLS.program], env=environ, stdin=pipe, stdout=pipe
    ) as program:
        assert program.stdout and program.stdout.readline() == b"stored\n"
        cache = SYSTEM.open(Location("pytools", str(tmp_path / "pytools"), "--cache", enabled=True))
        kept = cache.remove(only(cache), "--all")
        assert kept is not None and "end it first" in kept.reason
        program.communicate(b"\n", timeout=PATIENCE_S)
    assert cache.remove(only(cache), "--all") is None
    assert PYTOOLS.run(tmp_path) == "stored"
