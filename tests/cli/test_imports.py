"""The modules that each verb loads: a GPU stack, numpy and the like cost start-up and can crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.caches.registry import EXPORTERS, SYSTEMS, module_of
from tests.children import run_text
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Filled

GPU_STACK = ("pyopencl", "cuda.bindings", "cuda.core", "cuda.pathfinder", "numpy")
# Help and completion answer at once: nothing that reads caches, draws tables or starts workers.
BEFORE_ANY_WORK = (*GPU_STACK, "rich", "multiprocessing")
# A cache of somebody else's has nothing to do with our own store, with compilers or with the other systems.
OF_OURS = tuple(
    f"gpucache.{name}"
    for name in (
        "assembly",
        "backends",
        "bench",
        "engine.warm",
        "probe.ask",
        "sources",
        "store",
        "caches.pocl",
    )
)
# To show our own cache through a pipe, nothing is needed that builds, explains, draws or knows other systems;
# making dataclasses takes as long as the rest of the start, so these modules use named tuples.
OWN_ALONE = (
    *GPU_STACK,
    "click.shell_completion",
    "dataclasses",
    "gpucache.backends",
    "gpucache.bench",
    "gpucache.caches.known_caches",
    "gpucache.caches.systems",
    "gpucache.engine.explain",
    "gpucache.engine.lookup",
    "gpucache.keys",
    "gpucache.manifest",
    "gpucache.payload",
    "gpucache.probe",
    "gpucache.sources",
    "hashlib",
    "msgspec",
    "multiprocessing",
    "rich",
)
FORBIDDEN: Mapping[str, tuple[str, ...]] = {
    "--help": (*BEFORE_ANY_WORK, "xxhash", "platformdirs", "gpucache.assembly"),
    "warm --help": (*BEFORE_ANY_WORK, "xxhash", "platformdirs", "gpucache.assembly"),
    "export layer --help": (*BEFORE_ANY_WORK, "sqlite3", *EXPORTERS.values()),
    "--version": (*BEFORE_ANY_WORK, "xxhash", "platformdirs", "gpucache.assembly"),
    "inspect --cache gpucache": OWN_ALONE,
    "inspect --cache sycl:{foreign}": (*GPU_STACK, *OF_OURS),
    "verify --cache sycl:{foreign}": (*GPU_STACK, *OF_OURS),
    "evict --cache sycl:{foreign} --all --dry-run": (*GPU_STACK, *OF_OURS),
    # Several verbs in one process: modules that none of them loads are missing at its end.
    "inspect | inspect --list | inspect cuda:sm_90 | inspect --misses": GPU_STACK,
    "verify | evict --dry-run --max-size 1G": GPU_STACK,
    "verify --strict --repair | evict --dry-run --stale | devices": GPU_STACK,
    "warm --check {sources}/twice.cu --target cuda:sm_90": (
        *GPU_STACK,
        "multiprocessing",
        "distributed",
        "mpi4py",
    ),
}
COMPLETED = ("gpucache ", "gpucache warm --target ", "gpucache inspect tw", "gpucache evict --program ")
_CHILD = """
import atexit, sys
def tell():
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\\n".join(sys.modules))
atexit.register(tell)
from gpucache.cli import main
for command in " ".join(sys.argv[2:]).split(" | "):
    if code := main(command.split()):
        break
sys.exit(code)
"""


def _modules(file: Path, arguments: list[str], environment: Mapping[str, str]) -> tuple[int, set[str]]:
    """Exit code and loaded modules of the process of a command."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(file), *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return done.returncode, set(file.read_text(encoding="utf-8").splitlines())


# These ask the drivers, each in a child.
_SLOW = "verify --strict --repair"


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=[pytest.mark.slow] if one.startswith(_SLOW) else []) for one in FORBIDDEN],
)
def test_a_verb_loads_no_gpu_stack(mixed: Filled, vendors: Path, tmp_path: Path, command: str) -> None:
    """A verb that compiles nothing loads nothing of the GPU stack into its own process."""
    environment = {"OCL_ICD_VENDORS": str(vendors), "GPUCACHE_DIR": str(mixed.root)}
    foreign = tmp_path / "libsycl_cache"
    foreign.mkdir()
    arguments = command.format(sources=mixed.sources, foreign=foreign).split()
    code, modules = _modules(tmp_path / "modules", arguments, environment)
    assert (code, modules & {*FORBIDDEN[command]}) == (0, set())


def test_a_system_without_a_cache_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the places of a system are checked until one of them exists."""
    named = ("GPUCACHE_DIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "SYCL_CACHE_DIR")
    for name in (*named, "ROCM_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    environment = {name: str(tmp_path / place) for name, place in (("HOME", "home"), ("TMPDIR", "tmp"))}
    (tmp_path / "home/.cache").mkdir(parents=True)  # else OpenCV's default is a place of all users
    (tmp_path / "tmp").mkdir()  # else Inductor's, too
    formats = set(map(module_of, SYSTEMS))
    code, modules = _modules(tmp_path / "modules", ["inspect"], environment)
    assert (code, modules & formats) == (0, set())
    (tmp_path / "home/.cache/pocl/kcache").mkdir(parents=True)
    code, modules = _modules(tmp_path / "modules", ["inspect"], environment)
    assert (code, modules & formats) == (0, {"gpucache.caches.pocl"})


def test_the_way_in_imports_nothing() -> None:
    """Until it is ready for Ctrl-C the command line reads its own two files alone."""
    child = "import sys; known = {*sys.modules}; import gpucache.cli; print(*{*sys.modules} - known)"
    done = run_text([sys.executable, "-c", child], check=True)
    assert {*done.stdout.split()} == {"gpucache", "gpucache.cli"}


def test_the_version_waits_for_nothing_but_click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without our variables not even settings are read, and no class is made for them."""
    for name in [name for name in os.environ if name.startswith("GPUCACHE_")]:
        monkeypatch.delenv(name)
    code, modules = _modules(tmp_path / "modules", ["--version"], {})
    slow = {"click.shell_completion", "dataclasses", "gpucache.settings", "pathlib", "shutil"}
    assert (code, modules & slow) == (0, set())


def test_no_garbage_is_looked_for_at_the_end() -> None:
    """The command's objects end with its process: Python's last collection finds nothing to read."""
    child = "import atexit, gc, gpucache.cli as it; atexit.register(lambda: print(len(gc.get_objects())))"
    command = [sys.executable, "-c", f"{child}; it.main()", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert int(done.stdout.splitlines()[-1]) < 1000


@pytest.mark.parametrize("line", COMPLETED)
def test_completion_loads_no_gpu_stack(mixed: Filled, tmp_path: Path, line: str) -> None:
    """A key press neither probes nor loads the modules that tables and workers need."""
    environment = {"_GPUCACHE_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORDBREAKS": " ="}
    environment["GPUCACHE_DIR"] = str(mixed.root)
    code, modules = _modules(tmp_path / "modules", [""], environment)
    assert (code, modules & {*BEFORE_ANY_WORK, "gpucache.assembly"}) == (0, set())


def test_a_program_loads_nothing_of_the_verbs() -> None:
    """The library loads no pool, no table and nothing that explains: programs that hit would wait for it."""
    command = [
        sys.executable,
        "-c",
        "import sys, gpucache.engine.hits, gpucache.library.process; print(*sys.modules)",
    ]
    modules = {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}
    assert not modules & {*BEFORE_ANY_WORK, "click", "asyncio", "statistics", "importlib.metadata"}
    assert not modules & {"gpucache.bench", "gpucache.engine.explain", "gpucache.engine.warm"}
    assert not modules & {"dataclasses", "platformdirs", "shlex", "subprocess"}
    assert not modules & {"gpucache.engine.lookup", "gpucache.sources.closure", "gpucache.store.directory"}
