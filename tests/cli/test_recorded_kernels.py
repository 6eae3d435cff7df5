"""Recordings of Triton's kernels where there is no Triton: what is answered, and with which exit code."""

import json
import os
import sys
from pathlib import Path

import pytest

from gpucache.kernels import FOLDER, INSIDE
from tests.children import run_text
from tests.recording.test_kernels import kernel, write


def _warm(tmp_path: Path, *options: str, python: str = sys.executable) -> tuple[int, list[str]]:
    folder = write(
        tmp_path / "r", kernel(python=python), kernel(name="other", constants=[[[0], 1]], python=python)
    )
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), "HOME": str(tmp_path)}
    words = (sys.executable, "-m", "gpucache", "--json", "warm", "--recording", folder, *options)
    done = run_text(words, env=environ)
    return done.returncode, [one["result"] for one in json.loads(done.stdout)["outcomes"]]


def test_a_python_without_triton_fails_every_kernel(tmp_path: Path) -> None:
    """Its worker ends before the first."""
    assert _warm(tmp_path, python=_bare(tmp_path)) == (3, ["failed", "failed"])


def test_a_recording_starts_no_other_program(tmp_path: Path) -> None:
    """A path that is not called python is not run, whatever lies there."""
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    code, results = _warm(tmp_path, python=str(trap))
    assert code == 3 and set(results) == {"failed"} and not (tmp_path / "sprung").exists()


def test_a_recording_is_inspected_without_its_python(tmp_path: Path) -> None:
    """Nothing of it is imported."""
    folder = write(tmp_path / "r", kernel(python="/nowhere/python"))
    done = run_text((sys.executable, "-m", "gpucache", "--json", "inspect", "--recording", folder))
    [row] = json.loads(done.stdout)["outcomes"]
    assert (row["program"], row["language"], row["target"]) == ("scale", "triton", "cuda:sm_90")


def _bare(tmp_path: Path) -> str:
    """A Python without packages."""
    (tmp_path / "bin").mkdir()
    bare = tmp_path / "bin" / "python3"
    bare.write_text(f'#!/bin/sh\nexec {getattr(sys, "_base_executable", sys.executable)} -S -E "$@"\n')
    bare.chmod(0o755)
    return str(bare)


@pytest.mark.parametrize("own", [True, False])
def test_the_environments_own_sitecustomize_still_runs(tmp_path: Path, own: bool) -> None:
    """Ours comes first, leaves no place in the path, and then the program has what it had before."""
    if own:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    program = (
        "import sys; print(getattr(sys, 'own', False), sum('kernels/inside' in one for one in sys.path))"
    )
    places = os.pathsep.join((INSIDE, str(tmp_path)))
    done = run_text(
        (sys.executable, "-c", program), env={**os.environ, "PYTHONPATH": places, FOLDER: str(tmp_path)}
    )
    assert done.stdout.split() == [str(own), "0"], done.stderr
