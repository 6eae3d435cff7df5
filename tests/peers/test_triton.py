"""Triton's own cache, made ahead of time for absent GPUs, and Triton's behaviour after a repair.

The environment variables GPUCACHE_TEST_TRITON_3_0_PYTHON and GPUCACHE_TEST_TRITON_3_2_PYTHON name
interpreters with these versions.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.children import run_text
from tests.patience import PATIENCE_S
from tests.peers.owners import TRITON_KERNEL

SYSTEM = of_others("triton")

_VARIABLES = {
    version: f"GPUCACHE_TEST_TRITON_{version.replace('.', '_')}_PYTHON" for version in ("3.0", "3.2")
}
_PYTHONS = {version: os.environ.get(variable) for version, variable in _VARIABLES.items()}
_INSTALLED = importlib.util.find_spec("triton") is not None

pytestmark = pytest.mark.slow

_PROGRAM = (
    TRITON_KERNEL
    + """
hits = []
triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
for target in (GPUTarget("cuda", 80, 32), GPUTarget("hip", "gfx942", 64)):
    types = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    triton.compile(ASTSource(scale, types, constexprs={"BLOCK": 128}), target=target)
print(*hits)
"""
)
_OLD_PROGRAM = (
    TRITON_KERNEL
    + """
types = {"x": "*fp32", "n": "i32"}
source = ASTSource(scale, types, constants={"BLOCK": 128})
print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).name)
"""
)


def _run(root: Path) -> str:
    """Which of its two compiles Triton's cache answered."""
    program = root.parent / "program.py"
    program.write_text(_PROGRAM, encoding="ascii")
    environ = {**os.environ, "TRITON_CACHE_DIR": str(root)}
    done = run_text([sys.executable, program], env=environ, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a kernel for two targets."""
    if not _INSTALLED:
        pytest.skip("Triton is not installed")
    root = tmp_path_factory.mktemp("triton") / "cache"
    assert _run(root) == "False False"
    return root


@pytest.fixture
def root(made: Path) -> Path:
    """The same, which a test may damage: at the place that the cache has in its files."""
    kept = made.with_name("kept")
    if not kept.exists():
        shutil.copytree(made, kept)
    shutil.rmtree(made)
    shutil.copytree(kept, made)
    return made


def test_what_triton_writes_is_sound_and_says_what_it_is(root: Path) -> None:
    """Kernel, target and binary of both; Triton hits both."""
    cache = SYSTEM.open(Location("triton", str(root), "--cache", enabled=True))
    found = sorted((entry.program, entry.target, entry.artifact_kind) for entry in cache.scan())
    assert found == [("scale", "cuda:sm_80", "cubin"), ("scale", "hip:gfx942", "amdgpu")]
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    assert not list(cache.leftovers()) and _run(root) == "True True"


def test_kernels_without_what_only_compilers_read_are_found(root: Path) -> None:
    """Kernels of both targets; the list in the group names the rest, or Triton would compile again."""
    cache = SYSTEM.open(Location("triton", str(root), "--cache", enabled=True))
    assert [cache.strip(entry) for entry in cache.scan() if entry.spare_bytes] == [None, None]
    assert not list(root.glob("*/*.ttgir")) and _run(root) == "True True"


def _stage_other(folder: Path) -> None:
    next(folder.glob("*.ttir")).write_bytes(b"other text")


def _stage_undecodable(folder: Path) -> None:
    next(folder.glob("*.llir")).write_bytes(b"\xff")


def _binary_gone(folder: Path) -> None:
    next(folder.glob("*.cubin")).unlink()


def _binary_cut(folder: Path) -> None:
    path = next(folder.glob("*.cubin"))
    path.write_bytes(path.read_bytes()[:200])


def _list_cut(folder: Path) -> None:
    path = next(folder.glob("__grp__*"))
    path.write_bytes(path.read_bytes()[:-5])


def _stage_gone(folder: Path) -> None:
    next(folder.glob("*.ttir")).unlink()


@pytest.mark.parametrize(
    ("damage", "kind", "served"),
    [
        (_binary_cut, FindingKind.CORRUPT, True),
        (_list_cut, FindingKind.CORRUPT, False),
        (_stage_gone, FindingKind.TRUNCATED, False),
    ],
)
def test_damage_is_found_and_after_a_repair_triton_compiles_that_kernel_alone(
    damage: Callable[[Path], None], kind: FindingKind, served: bool, root: Path
) -> None:
    """Triton itself takes a broken binary for a hit, and silently misses the rest, as in the findings."""
    folder = next(root.glob("*/*.cubin")).parent
    damage(folder)
    cache = SYSTEM.open(Location("triton", str(root), "--cache", enabled=True))
    (entry,) = (entry for entry in cache.scan() if Path(entry.path).parent == folder)
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    if served:
        assert _run(root) == "True True"
    assert cache.repair(checked, entry).findings[0].repaired
    assert _run(root) == "False True" and _run(root) == "True True"


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_stage_gone, None),
        (_stage_other, None),
        (_stage_undecodable, FindingKind.CORRUPT),
        (_binary_gone, FindingKind.TRUNCATED),
        (_list_cut, FindingKind.CORRUPT),
    ],
)
@pytest.mark.parametrize("version", _PYTHONS)
def test_the_caches_of_older_versions_are_known_and_repaired(
    version: str, damage: Callable[[Path], None], kind: FindingKind | None, tmp_path: Path
) -> None:
    """These versions fail where newer ones miss, and serve a kernel without its intermediate stages."""
    python = _PYTHONS[version]
    if not python:
        pytest.skip(f"{_VARIABLES[version]} names no interpreter")
    root, program = tmp_path / "cache", tmp_path / "program.py"
    program.write_text(_OLD_PROGRAM, encoding="ascii")

    def runs() -> bool:
        environ = {**os.environ, "TRITON_CACHE_DIR": str(root), "PYTHONPATH": ""}
        done = subprocess.run(
            [python, program], env=environ, capture_output=True, timeout=PATIENCE_S, check=False
        )
        return done.stdout == b"scale\n"

    assert runs() and SYSTEM.recognises(root)
    cache = SYSTEM.open(Location("triton", str(root), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert not cache.check(entry).findings and entry.producer.startswith(
        f"Triton {version.replace('_', '.')}"
    )
    damage(Path(entry.path).parent)
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == ([] if kind is None else [kind]) and runs() is (kind is None)
    assert all(one.repaired for one in cache.repair(checked, entry).findings)
    assert runs() and runs()
