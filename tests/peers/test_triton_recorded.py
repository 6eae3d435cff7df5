"""Kernels of Triton, recorded and warmed for GPUs that are not here; Triton's own listener tells hits.

The variables GPUCACHE_TEST_TRITON_3_4_PYTHON and GPUCACHE_TEST_TRITON_3_9_PYTHON name interpreters
with these versions; without them Triton of this one is used.
"""

import importlib.util
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_text
from tests.fleets import gpus

pytestmark = pytest.mark.slow

_PROGRAMS = Path(__file__).with_name("triton_programs")
_PYTHONS = {
    version: found
    for version in ("3.4", "3.9")
    if (found := os.environ.get(f"GPUCACHE_TEST_TRITON_{version.replace('.', '_')}_PYTHON"))
}
if not _PYTHONS and importlib.util.find_spec("triton") is not None:
    _PYTHONS = {"here": sys.executable}
if not _PYTHONS:
    pytest.skip("Triton is not installed", allow_module_level=True)


@dataclass(frozen=True)
class _Desk:
    """A copy of the programs, a recording and a cache."""

    place: Path
    python: str

    def run(self, *words: object, **more: str | None) -> tuple[int, str, str]:
        environ = {
            **os.environ,
            "TRITON_CACHE_DIR": str(self.place / "cache"),
            "GPUCACHE_DIR": str(self.place / "root"),
            "TRITON_DEFAULT_FP_FUSION": "1",
            **more,
        }
        given = {name: value for name, value in environ.items() if value is not None}
        done = run_text(words, cwd=self.place, env=given)
        return done.returncode, done.stdout, done.stderr

    def start(self, program: str = "app.py", **more: str | None) -> tuple[int, int]:
        """The compiles and the hits that a start of a program heard of."""
        code, out, err = self.run(self.python, program, **more)
        assert code == 0, err
        compiles, hits = map(int, out.splitlines()[-1].split())
        return compiles, hits

    def record(self, *words: str, **more: str | None) -> str:
        code, _, err = self.run(
            sys.executable, "-m", "gpucache", "record", "-o", "recording", "--", self.python, *words, **more
        )
        assert code == 0, err
        return err

    def warm(self, *options: str, **more: str | None) -> tuple[int, list[dict[str, Any]]]:
        words = (sys.executable, "-m", "gpucache", "--json", "warm", "--recording", "recording")
        code, out, err = self.run(*words, *options, **more)
        assert out, err
        return code, json.loads(out)["outcomes"]

    def binaries(self) -> int:
        return sum(1 for _ in (self.place / "cache").glob("*/*.cubin"))


@pytest.fixture(scope="module", params=_PYTHONS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Desk:
    place = tmp_path_factory.mktemp("recorded") / "app"
    shutil.copytree(_PROGRAMS, place, ignore=shutil.ignore_patterns("__pycache__"))
    desk = _Desk(place, _PYTHONS[request.param])
    desk.record("app.py")
    return desk


@pytest.fixture
def desk(recorded: _Desk, tmp_path: Path) -> _Desk:
    """The same with an empty cache. The program stays in its place, which is in the recording."""
    for name in ("cache", "root"):
        shutil.rmtree(recorded.place / name, ignore_errors=True)
    return recorded


def _results(outcomes: list[dict[str, Any]]) -> set[str]:
    return {one["result"] for one in outcomes}


@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_100", "hip:gfx942"])
def test_the_next_start_hits_every_recorded_kernel(desk: _Desk, target: str) -> None:
    """Also for GPUs that it was not recorded for, with those that autotuning alone launches."""
    if target.startswith("hip") and "3.4" in str(_PYTHONS) and desk.python == _PYTHONS.get("3.4"):
        pytest.skip("Triton 3.4 links kernels for AMD with ROCm's own linker")
    code, outcomes = desk.warm("--target", target)
    assert code == 0 and _results(outcomes) <= {"built", "hit"}, outcomes
    compiles, hits = desk.start(TARGET=target)
    assert compiles == 0 and hits >= 11


def test_the_same_binary_is_made(desk: _Desk) -> None:
    """Byte for byte, under the same names."""

    def made() -> dict[str, bytes]:
        cubins = (desk.place / "cache").glob("*/*.cubin")
        return {str(one.relative_to(desk.place)): one.read_bytes() for one in cubins}

    desk.warm()
    warmed = made()
    shutil.rmtree(desk.place / "cache")
    desk.start()
    assert warmed and warmed == made()


def test_a_check_compiles_nothing(desk: _Desk) -> None:
    """It exits with 3 before, and with 0 when all is warmed."""
    code, outcomes = desk.warm("--check")
    assert (code, _results(outcomes), desk.binaries()) == (3, {"missing"}, 0)
    desk.warm()
    code, outcomes = desk.warm("--check")
    assert (code, _results(outcomes)) == (0, {"hit"})


def test_a_check_by_a_profile_is_for_the_gpus_of_that_machine(desk: _Desk) -> None:
    """Each of its architectures once, with the command that compiles what is missing."""
    profile = gpus(desk.place / "far.json", "sm_100")
    wanted = ("--check", "--device-profile", str(profile))
    code, outcomes = desk.warm(*wanted)
    assert (code, desk.binaries()) == (3, 0)
    assert {(one["result"], one["target"], len(one["machines"])) for one in outcomes} == {
        ("missing", "cuda:sm_100", 1)
    }
    desk.warm("--target", "cuda:sm_100")
    code, outcomes = desk.warm(*wanted)
    assert code == 0 and _results(outcomes) == {"hit"}


def test_a_kernel_that_would_read_another_value_is_refused(desk: _Desk) -> None:
    """A module's attribute is not in Triton's key: the binary would be wrong under the right name."""
    code, outcomes = desk.warm(HIDDEN="4")
    refused = [one["program"] for one in outcomes if one["result"] == "failed"]
    assert code == 3 and refused == ["reads_hidden"]
    compiles, _ = desk.start()
    assert compiles == 1


def test_a_kernel_whose_source_changed_is_refused(desk: _Desk) -> None:
    """The others are compiled."""
    source = desk.place / "kernels_of_app.py"
    before = source.read_text()
    try:
        source.write_text(before.replace("maximum(v, 0.0)", "maximum(v, 1.0)"))
        code, outcomes = desk.warm()
    finally:
        source.write_text(before)
    refused = {one["program"] for one in outcomes if one["result"] == "failed"}
    assert code == 3 and refused == {"general"}


def test_kernels_above_the_line_at_which_a_program_fails_are_warmed(desk: _Desk) -> None:
    """A program that a worker imports may want a GPU there; those below the line say how to launch."""
    source = desk.place / "app.py"
    before = source.read_text()
    fails = "if __name__ != '__main__':\n    raise RuntimeError('no GPU')\n\n\n"
    told = []
    try:
        for line in ("@triton.jit", "def main()"):
            source.write_text(before.replace(line, f"{fails}{line}", 1))
            _, outcomes = desk.warm()
            told += [(one["result"], one["reason"]) for one in outcomes if one["program"] == "of_main"]
    finally:
        source.write_text(before)
    (below, why), (above, _) = told
    assert (below, above) == ("failed", "built")
    assert "no GPU" in why and 'below if __name__ == "__main__" only' in why


def test_a_worker_that_dies_costs_one_kernel(desk: _Desk) -> None:
    """The next worker compiles the rest."""
    source = desk.place / "hidden_value.py"
    before = source.read_text()
    once = desk.place / "died"
    try:
        died = f"open({str(once)!r}, 'x').close()\n    os.kill(os.getpid(), 9)\n"
        source.write_text(f"{before}\nif not os.path.exists({str(once)!r}):\n    {died}")
        code, outcomes = desk.warm("--jobs", "1")
    finally:
        source.write_text(before)
        once.unlink()
    assert code == 3 and [one["result"] for one in outcomes].count("failed") == 1


def test_a_function_that_the_program_makes_is_left_out(desk: _Desk, tmp_path: Path) -> None:
    """It is a closure over a value of the running program."""
    made = _Desk(tmp_path / "app", desk.python)
    shutil.copytree(desk.place, made.place, ignore=shutil.ignore_patterns("recording"))
    made.record("app.py", CLOSURE="1")
    _, outcomes = made.warm()
    assert [one["result"] for one in outcomes if one["program"] == "closure"] == ["skipped"]


def test_a_python_that_is_not_reached_is_told(desk: _Desk, tmp_path: Path) -> None:
    """With -E no variable reaches it; the program still runs."""
    other = _Desk(tmp_path / "app", desk.python)
    shutil.copytree(desk.place, other.place, ignore=shutil.ignore_patterns("recording"))
    err = other.record("-E", "app.py")
    assert "not recorded" in err


def test_kernels_of_liger_hit(desk: _Desk, tmp_path: Path) -> None:
    """Real kernels of a package, through PyTorch."""
    if desk.run(desk.python, "-c", "import torch, liger_kernel")[0]:
        pytest.skip("liger-kernel is not installed with this Triton")
    other = _Desk(tmp_path / "app", desk.python)
    shutil.copytree(desk.place, other.place, ignore=shutil.ignore_patterns("recording"))
    other.record("liger.py")
    code, outcomes = other.warm("--target", "cuda:sm_100")
    assert code == 0 and _results(outcomes) <= {"built", "hit"}
    compiles, hits = other.start("liger.py", TARGET="cuda:sm_100")
    assert compiles == 0 and hits > 20


@pytest.mark.parametrize(
    ("program", "threads", "module"),
    [("inductor.py", "1", "torch"), ("inductor.py", "2", "torch"), ("helion_kernels.py", "1", "helion")],
    ids=["Inductor in its process", "Inductor in its workers", "Helion"],
)
def test_kernels_of_modules_that_a_program_writes_hit(
    desk: _Desk, tmp_path: Path, program: str, threads: str, module: str
) -> None:
    """Their text is in the recording, and they have a cache of their own."""
    answer = desk.run(desk.python, "-c", f"import torch, {module}; print(torch.__version__)")
    if answer[0]:
        pytest.skip(f"{module} is not installed with this Triton")
    if threads != "1" and answer[1].startswith("2.8"):
        pytest.skip("the workers of PyTorch 2.8 need a GPU")
    other = _Desk(tmp_path / "app", desk.python)
    shutil.copytree(desk.place, other.place, ignore=shutil.ignore_patterns("recording"))
    place = other.place / "written"
    more = {
        "TRITON_CACHE_DIR": None,
        "TORCHINDUCTOR_CACHE_DIR": str(place),
        "TORCHINDUCTOR_COMPILE_THREADS": threads,
    }
    other.record(program, **more)
    code, outcomes = other.warm("--target", "cuda:sm_100", **more)
    assert code == 0 and [one["result"] for one in outcomes] == ["built", "built"]
    warmed = set(place.rglob("*.cubin"))
    compiles, hits = other.start(program, TARGET="cuda:sm_100", **more)
    assert (compiles, hits) == (0, 2 if threads == "1" else 0)  # its listener is not in the workers
    assert len(warmed) == 2 and warmed == set(place.rglob("*.cubin"))
