"""Recordings of Triton's kernels where there is no Triton: what is answered, and with which exit code."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from gpucache.kernels import FOLDER, INSIDE
from tests.children import run_text
from tests.fleets import gpus
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


def test_a_check_by_a_profile_asks_for_the_gpus_of_that_machine(tmp_path: Path) -> None:
    """And not for the one that was recorded; what no worker can answer fails it."""
    folder = write(tmp_path / "r", kernel(python=_bare(tmp_path)))
    profile = gpus(tmp_path / "far.json", "sm_120", "sm_120", "sm_100")
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), "HOME": str(tmp_path)}
    words = ("warm", "--check", "--recording", folder, "--device-profile", profile)
    done = run_text((sys.executable, "-m", "gpucache", "--json", *words), env=environ)
    rows = json.loads(done.stdout)["outcomes"]
    assert done.returncode == 3
    assert sorted((one["target"], one["result"], len(one["machines"])) for one in rows) == [
        ("cuda:sm_100", "failed", 1),
        ("cuda:sm_120", "failed", 1),
    ]


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


_TRITON = """
class Compilation:
    listener = None
class knobs:
    compilation = Compilation()
"""


@pytest.mark.parametrize(
    "before",
    [
        "import importlib.util; importlib.util.find_spec('triton')",
        "watch = sys.meta_path[0]; watch.find_spec('triton'); watch.find_spec('triton')",
    ],
    ids=["looked for first", "in two threads"],
)
def test_triton_is_recorded_however_it_was_found(tmp_path: Path, before: str) -> None:
    """Only its import adds the recorder, and ends the watch."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(_TRITON)
    program = (
        f"import sys; {before}; import triton; "
        "print(type(vars(triton.Compilation)['listener']).__name__, 'triton' in sys.meta_path[0].wanted)"
    )
    places = os.pathsep.join((INSIDE, str(tmp_path)))
    environ = {**os.environ, "PYTHONPATH": places, FOLDER: str(tmp_path)}
    done = run_text((sys.executable, "-c", program), env=environ)
    listener, wanted = done.stdout.split()
    assert (listener, wanted, done.stderr) == ("_Both", "False", "")


def test_a_module_that_its_program_wrote_is_recorded_with_its_text(tmp_path: Path) -> None:
    """One that an import finds has no text, nor has any with --digests-only."""
    written = tmp_path / "written.py"
    written.write_text("text = 1\n")
    program = (
        f"import json, sys; sys.path.append({INSIDE!r}); import gpucache_triton as ours\n"
        "for name in ('json.decoder', 'written', 'json.written'):\n"
        f"    print(repr(ours.text_of(name, {str(written)!r})))"
    )
    environ = {**os.environ, "GPUCACHE_RECORD_NO_SOURCES": ""}
    words = (sys.executable, "-c", program)
    assert run_text(words, env=environ).stdout.splitlines() == ["''", "'text = 1\\n'", "'text = 1\\n'"]
    refused = run_text(words, env={**environ, "GPUCACHE_RECORD_NO_SOURCES": "1"})
    assert refused.stdout == "''\n" and "no source is recorded" in refused.stderr


def test_workers_of_inductor_find_the_recorder(tmp_path: Path) -> None:
    """Only while they start is its place in the path, which they get."""
    package = tmp_path / "torch" / "_inductor" / "compile_worker"
    package.mkdir(parents=True)
    (package / "subproc_pool.py").write_text(
        "import sys\n"
        "class SubprocPool:\n"
        "    def __init__(self, number, kind):\n"
        "        print(sys.path[0], number, kind)\n"
    )
    program = (
        "import sys; from torch._inductor.compile_worker import subproc_pool; "
        "subproc_pool.SubprocPool(2, kind='fork'); print(sum('kernels/inside' in one for one in sys.path))"
    )
    places = os.pathsep.join((INSIDE, str(tmp_path)))
    environ = {**os.environ, "PYTHONPATH": places, FOLDER: str(tmp_path)}
    done = run_text((sys.executable, "-c", program), env=environ)
    assert done.stdout.split() == [INSIDE, "2", "fork", "0"], done.stderr


def test_python_2_can_read_what_runs_in_every_python() -> None:
    """A command may start one; of what Python 3 added, these are in the rest of our code."""
    tree = ast.parse(Path(INSIDE, "sitecustomize.py").read_text(encoding="ascii"))
    added = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr)
    assert not [one.lineno for one in ast.walk(tree) if isinstance(one, added)]


@pytest.mark.skipif(not shutil.which("python2.7"), reason="there is no Python 2")
def test_python_2_has_its_own_sitecustomize(tmp_path: Path) -> None:
    """Ours does nothing there."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((INSIDE, str(tmp_path))), FOLDER: str(tmp_path)}
    if run_text(("python2.7", "-S", "-c", "")).returncode:
        pytest.skip("python2.7 is a name without a Python")
    done = run_text(("python2.7", "-B", "-c", "import sys; print(sys.own)"), env=environ)
    assert done.stdout.split() == ["True"], done.stderr
