"""Which Pythons are found on this machine: the one that runs these tests is."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucache.caches import interpreters
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is looked for on Windows")
SHORT = "{}.{}".format(*sys.version_info)
WHOLE = "{}.{}.{}".format(*sys.version_info)


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    interpreters._interpreters.cache_clear()
    yield
    interpreters._interpreters.cache_clear()


@pytest.mark.parametrize("version", [SHORT, WHOLE])
def test_the_python_that_runs_is_here(version: str) -> None:
    """By its version with and without the last number, as its own file says it."""
    assert not interpreters.is_gone(version)


@pytest.mark.parametrize("version", ["2.1", "2.1.3", f"{SHORT}.255"])
def test_a_python_that_nobody_has_is_gone(version: str) -> None:
    """Of a version with three numbers also where another one of the first two is here."""
    assert interpreters.is_gone(version)


def test_an_interpreter_is_found_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uv keeps them, and distinguished by its file, which is not run."""
    folder = tmp_path / ".local" / "share" / "uv" / "python" / "cpython-2.1.3-linux" / "bin"
    folder.mkdir(parents=True)
    (folder / "python2.1").write_bytes(b"\x7fELF\0 no program \0002.1.3\0")
    (folder / "python2.1").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not interpreters.is_gone("2.1")
    assert not interpreters.is_gone("2.1.3")
    assert interpreters.is_gone("2.1.4")


def test_an_interpreter_that_does_not_say_its_version_may_be_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is not gone if an interpreter of an unknown version might have it."""
    (tmp_path / "python2.1").write_bytes(b"\x7fELF")
    (tmp_path / "python2.1").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not interpreters.is_gone("2.1.4")


def test_a_script_is_no_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyenv has such scripts for versions that it removed."""
    (tmp_path / "python2.1").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "python2.1").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreters.is_gone("2.1")


def test_every_interpreter_on_the_path_says_the_version_that_it_prints() -> None:
    """The version that is read from an interpreter's file is the one that it prints."""
    found = shutil.which(f"python{SHORT}") or sys.executable
    said = subprocess.run(
        [found, "-c", "import platform; print(platform.python_version())"],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S, env={**os.environ},
    ).stdout.strip()  # fmt: skip
    assert not interpreters.is_gone(said.rstrip("+"))
