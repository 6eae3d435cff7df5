"""A cache warmed by the administrator, used by a user without a home, a name or write permission."""

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpucache
from tests.children import run_text
from tests.patience import PATIENCE_S
from tests.pocl import PLATFORM, name_pocl, need_pocl

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can start programs as another user"
    ),
]

_PROCESS = Path(__file__).with_name("library_process.py")
_STRANGER = 65534
_NAMELESS = 54321
_OPENCL = "kernel void show(global int *out) { out[get_global_id(0)] = 7; }"
_CUDA = 'extern "C" __global__ void show(int *out) { *out = 7; }'

Outcome = dict[str, Any]
AsStranger = Callable[..., Outcome]


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """A directory that every user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="gpucache-test-"))
    folder.chmod(0o755)
    name_pocl(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def interpreter(ground: Path) -> str:
    """A Python that the other user can start and that finds the packages of this one."""
    version = f"python3.{sys.version_info.minor}"
    system = shutil.which(version, path="/usr/bin:/usr/local/bin")
    if _runs(sys.executable):
        return sys.executable
    if system is not None and _runs(borrowed := _environment_of(Path(system), ground / "venv", version)):
        return borrowed
    pytest.skip(f"no {version} here lets uid {_STRANGER} import gpucache: {sys.base_prefix} is closed to it")


def _environment_of(system: Path, folder: Path, version: str) -> str:
    """A virtual environment of another Python of this version, with the packages of this one."""
    packages = folder / "lib" / version / "site-packages"
    packages.parent.mkdir(parents=True)
    packages.symlink_to(sysconfig.get_path("purelib"))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(system)
    (folder / "pyvenv.cfg").write_text(f"home = {system.parent}\n", encoding="utf-8")
    return str(folder / "bin" / "python")


def _runs(interpreter: str) -> bool:
    try:
        done = subprocess.run(
            [interpreter, "-c", "import gpucache.cuda, gpucache.opencl"],
            env=_environment(),
            user=_STRANGER,
            group=_STRANGER,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _environment(**settings: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "PYTHONPATH")
    }
    package = str(Path(gpucache.__file__).parents[1])
    return {**inherited, "PYTHONPATH": package, "GPUCACHE_MEMORY_BYTES": "0", **settings}


@pytest.fixture
def as_stranger(interpreter: str, ground: Path) -> AsStranger:
    """The outcome of one job of a program that runs as another user without a home."""
    pocl = ground / "pocl"
    pocl.mkdir(exist_ok=True)
    pocl.chmod(0o777)
    process = ground / "process.py"  # the tests themselves may be where no other user may read
    shutil.copyfile(_PROCESS, process)
    process.chmod(0o644)

    def run(language: str, job: dict[str, Any], uid: int = _STRANGER, **settings: str) -> Outcome:
        done = run_text(
            [interpreter, process, language],
            input=json.dumps([job]),
            env=_environment(OCL_ICD_VENDORS=str(ground), POCL_CACHE_DIR=str(pocl), **settings),
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
        )
        assert done.returncode == 0, done.stderr
        (outcome,) = json.loads(done.stdout.removeprefix("ready\n"))
        return dict(outcome)

    return run


_JOBS: dict[str, dict[str, Any]] = {
    "opencl": {
        "source": _OPENCL,
        "platform": PLATFORM,
        "arguments": {"local_sizes": [[64]]},
        "launches": [[64, 64], [131072, 64]],
    },
    "cuda": {"source": _CUDA, "arguments": {"target": "sm_90"}},
}


@pytest.fixture(scope="module")
def shared(ground: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root warmed for every user, for PoCL and for NVRTC."""
    need_pocl()
    root, sources = ground / "shared", tmp_path_factory.mktemp("sources")
    (sources / "show.cl").write_text(_OPENCL, encoding="ascii")
    (sources / "show.cu").write_text(_CUDA, encoding="ascii")
    wanted = ("--target", "cuda:sm_90", "--target", "opencl:pocl", "--local-size", "64")
    done = run_text(
        [sys.executable, "-m", "gpucache", "--root", str(root), "warm", "--shared", str(sources), *wanted],
        env={**os.environ, "OCL_ICD_VENDORS": str(ground)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def _seen(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file and directory."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in [root, *root.rglob("*")]}


def test_a_shared_cache_serves_another_user(as_stranger: AsStranger, ground: Path, shared: Path) -> None:
    """Root's entries, warmed with --shared, are hits for a uid without a home, in both languages."""
    before = _seen(shared)
    own = ground / "own"  # PyOpenCL makes no kernel without a place for its own cache
    own.mkdir()
    own.chmod(0o777)
    settings = {
        "GPUCACHE_SYSTEM_DIRS": str(shared),
        "GPUCACHE_REQUIRE": "1",
        "GPUCACHE_DIR": str(own / "gpucache"),
        "XDG_CACHE_HOME": str(own),
    }
    outcomes = {
        language: as_stranger(language, {**job, "compiling": False}, **settings)
        for language, job in _JOBS.items()
    }
    assert {language: outcome["error"] for language, outcome in outcomes.items()} == dict.fromkeys(_JOBS)
    assert outcomes["opencl"]["values"] == [[7], [7]]
    assert len(set(outcomes["opencl"]["shared_objects"])) == 1
    assert _seen(shared) == before
    assert not list((own / "gpucache").rglob("*.gpc"))


def _modes(paths: Iterable[Path]) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.lstat().st_mode)) for path in paths}


def test_a_shared_cache_may_be_read_and_archived(shared: Path) -> None:
    """All its directories are 0755, all its files 0644, and no tag makes archivers leave it out."""
    assert _modes([shared, *shared.rglob("*")]) == {(True, 0o755), (False, 0o644)}
    assert len([*shared.rglob("*.gpc"), *shared.glob("v1/log.jsonl")]) == 3
    assert not (shared / "CACHEDIR.TAG").exists()


def test_a_private_cache_is_not_another_users(as_stranger: AsStranger, ground: Path) -> None:
    """A root of the administrator that cannot be read costs a compile and a line, not the program."""
    root = ground / "private"
    root.mkdir(mode=0o700)
    outcome = as_stranger("cuda", _JOBS["cuda"], GPUCACHE_DIR=str(root))
    assert (outcome["error"], outcome["compiled"]) == (None, 1)
    assert outcome["log"][0].startswith("WARNING: programs are compiled uncached: ")


def test_a_root_that_may_only_be_read_keeps_nothing(as_stranger: AsStranger, ground: Path) -> None:
    """A readable root of another owner is used, and misses are compiled but not kept."""
    root = ground / "readable"
    root.mkdir(mode=0o755)
    outcome = as_stranger("cuda", _JOBS["cuda"], GPUCACHE_DIR=str(root))
    assert (outcome["error"], outcome["compiled"]) == (None, 1)
    assert outcome["log"][-1].startswith("WARNING: programs are compiled uncached: nothing could be kept in ")
    assert list(root.iterdir()) == []


def test_without_a_home_a_hit_is_still_a_hit(as_stranger: AsStranger, shared: Path) -> None:
    """A uid without name, home or root hits warmed entries."""
    job = {**_JOBS["cuda"], "compiling": False}
    outcome = as_stranger("cuda", job, _NAMELESS, GPUCACHE_SYSTEM_DIRS=str(shared))
    assert outcome["error"] is None
    assert [line.partition(" ")[0] for line in outcome["log"]] == ["INFO:"]


def test_without_a_home_a_program_runs_uncached(as_stranger: AsStranger) -> None:
    """A uid without name, home or configured root gets its program, and the line names the remedy."""
    outcome = as_stranger("cuda", _JOBS["cuda"], _NAMELESS)
    assert (outcome["error"], outcome["compiled"]) == (None, 1)
    assert outcome["log"][0].startswith("WARNING: programs are compiled uncached: this user has no home")
    assert "set GPUCACHE_DIR" in outcome["log"][0]


def test_a_shared_cache_that_is_closed_is_told(as_stranger: AsStranger, ground: Path) -> None:
    """A system root that cannot be read is logged once, and named by the verdict and the error."""
    root = ground / "closed"
    root.mkdir(mode=0o700)
    settings = {"GPUCACHE_SYSTEM_DIRS": str(root), "GPUCACHE_DIR": str(ground / "none")}
    told = f"the system root {root} is not used, as it is closed to this user (mode 0700, of uid 0); "
    outcome = as_stranger("cuda", _JOBS["cuda"], **settings)
    assert [line.startswith(f"WARNING: {told}") for line in outcome["log"]].count(True) == 1
    assert any(line.startswith("INFO: miss") and f"not-consulted: {told}" in line for line in outcome["log"])
    required = as_stranger("cuda", _JOBS["cuda"], GPUCACHE_REQUIRE="1", **settings)
    assert told in required["error"]
