"""Caches that real PoCLs made: read, damaged in every way, repaired, and used again with right results."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.answers.why import Served
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.engine.staleness import Origins
from tests.caches.pocl import build
from tests.patience import PATIENCE_S
from tests.pocl import SYSTEM_ICD, need_pypi_pocl

SYSTEM = of_others("pocl")

pytestmark = pytest.mark.slow

pytest.importorskip("pyopencl")

_RIGHT = {"vecadd": True, "twice": True}
_MINUTE = 60 * 10**9


class Pocl:
    """A PoCL of this machine: its version, and where its loader finds it."""

    def __init__(self, version: str, vendors: Path) -> None:
        self.version = version
        self.vendors = vendors

    def run(
        self, root: Path, addend: int = 1, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Build and launch, with the cache at a root."""
        environment = {"OCL_ICD_VENDORS": str(self.vendors), "POCL_CACHE_DIR": str(root), **(more or {})}
        script = Path(__file__).with_name("pocl_process.py")
        return subprocess.run(
            [sys.executable, str(script), self.version, str(addend)],
            env={**os.environ, **environment},
            cwd=root.parent,  # where a process that aborts may leave its core
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def works(self, root: Path) -> None:
        """Fail unless both kernels run and compute what they should."""
        done = self.run(root)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == _RIGHT


@pytest.fixture(scope="session", params=["3.0", "system"])
def pocl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pocl:
    """PoCL from PyPI, which PyOpenCL's loader finds by itself, and the system's where there is one."""
    vendors = tmp_path_factory.mktemp("vendors")
    if request.param == "3.0":
        need_pypi_pocl()
        return Pocl("3.0", vendors)
    if not SYSTEM_ICD.is_file():
        pytest.skip(f"no PoCL of the system: {SYSTEM_ICD} is not there")
    shutil.copy(SYSTEM_ICD, vendors)
    return Pocl("3.1", vendors)


@pytest.fixture(scope="session")
def made(pocl: Pocl, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one program, as PoCL left it."""
    root = tmp_path_factory.mktemp("made") / "kcache"
    done = pocl.run(root)
    if "StopIteration" in done.stderr:
        pytest.skip(f"there is no PoCL {pocl.version}")
    assert json.loads(done.stdout) == _RIGHT, done.stderr
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the cache, to be damaged."""
    return shutil.copytree(made, tmp_path / "kcache")


def _later(root: Path) -> Cache:
    """The cache an hour from now, when nothing in it may be in use."""
    location = Location("pocl", str(root), "test", enabled=True)
    return SYSTEM.open(location, clock=lambda: time.time_ns() + 60 * _MINUTE)


def _kinds(cache: Cache) -> set[FindingKind]:
    found = [cache.check(entry) for entry in cache.scan()]
    return {finding.kind for checked in found for finding in checked.findings}


def _program(root: Path) -> Path:
    [found] = root.glob("*/*/program.bc")
    return found


def _kernel(root: Path, name: str = "vecadd") -> Path:
    return _program(root).parent / name / build.SMALL / f"{name}.so"


def test_a_real_cache_is_sound(pocl: Pocl, made: Path) -> None:
    """A cache that PoCL wrote is recognised, read in full, and sound."""
    cache = _later(made)
    [entry] = cache.scan()
    assert SYSTEM.recognises(made)
    assert cache.check(entry).findings == ()
    assert entry.program == "vecadd and 1 more"
    assert entry.target.startswith("pocl:x86_64-")
    llvm = {"3.0": "14.0.6", "3.1": "15.0.6"}[pocl.version]
    assert ("LLVM", llvm) in entry.fields
    variants = [value for label, value in entry.fields if label == "work-group variant"]
    assert variants == [
        f"{kernel} 16x1x1 (global offset 0, small grids only)" for kernel in ("twice", "vecadd")
    ]
    assert cache.extract(entry) == _program(made).read_bytes()


def test_a_real_launch_is_explained(made: Path) -> None:
    """The local size that was launched is a hit, and no other."""
    wanted = {"kernel": (b"vecadd",), "local-size": (b"16x1x1", b"32x1x1")}
    hit, miss = _later(made).explain(wanted)
    assert (hit.verdict, miss.hit) == (Served.HIT, False)


def test_every_start_leaves_an_empty_file(made: Path) -> None:
    """The leftovers of a real cache are PoCL's empty temporary files and nothing else."""
    found = [one.entry for checked in _later(made).leftovers() for one in checked.findings]
    assert found == ["leftovers"]


def test_a_hit_moves_last_used(pocl: Pocl, root: Path) -> None:
    """PoCL touches its mark when it finds a program built, and not the program."""
    for name in ("program.bc", "last_accessed"):
        os.utime(_program(root).with_name(name), ns=(0, 0))
    pocl.works(root)
    [entry] = _later(root).scan()
    assert entry.created_ns == 0
    assert entry.last_used_ns > 0


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 8 * 4])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garble(path: Path) -> None:
    path.write_bytes(b"garbage!" * 1000)


@pytest.mark.parametrize("damage", [_halve, _empty, _garble])
def test_a_damaged_program_is_repaired(pocl: Pocl, root: Path, damage: Callable[[Path], None]) -> None:
    """PoCL fails with a damaged program.bc at every start; a repair makes it build the program again."""
    damage(_program(root))
    for _ in range(2):
        assert pocl.run(root).returncode != 0
    cache = _later(root)
    assert _kinds(cache) & {FindingKind.TRUNCATED, FindingKind.CORRUPT}
    [entry] = cache.scan()
    assert entry.damage
    assert all(one.repaired for one in cache.repair(cache.check(entry), entry).findings)
    pocl.works(root)
    assert _kinds(_later(root)) == set()


def _swap(path: Path) -> None:
    twice = path.parents[2] / "twice" / build.SMALL / "twice.so"
    moved = path.read_bytes()
    path.write_bytes(twice.read_bytes())
    twice.write_bytes(moved)


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (_halve, {FindingKind.TRUNCATED}),
        (_empty, {FindingKind.TRUNCATED}),
        (_garble, {FindingKind.CORRUPT}),
        (_swap, {FindingKind.MISLABELLED}),
    ],
)
def test_a_damaged_kernel_is_repaired(
    pocl: Pocl, root: Path, damage: Callable[[Path], None], kinds: set[FindingKind]
) -> None:
    """PoCL dies of a wrong kernel at every start; a repair removes that one, and PoCL makes it again."""
    damage(_kernel(root))
    for _ in range(2):
        assert pocl.run(root).returncode != 0
    cache = _later(root)
    assert _kinds(cache) == kinds
    [entry] = cache.scan()
    before = _program(root).read_bytes()
    assert all(one.repaired for one in cache.repair(cache.check(entry), entry).findings)
    pocl.works(root)
    assert _program(root).read_bytes() == before
    assert _kernel(root).exists()
    assert _kinds(_later(root)) == set()


def test_a_kernel_of_another_program_is_beyond_what_can_be_told(pocl: Pocl, root: Path) -> None:
    """PoCL runs a sound kernel of the same name with a wrong result, and nothing on disk contradicts it."""
    other = root.parent / "other"
    assert pocl.run(other, addend=5).returncode == 0
    shutil.copy(_kernel(other), _kernel(root))
    assert json.loads(pocl.run(root).stdout) == {"vecadd": False, "twice": True}
    assert _kinds(_later(root)) == set()


def test_leftovers_and_failed_builds_are_removed(pocl: Pocl, root: Path) -> None:
    """A repair removes PoCL's leftovers and keeps programs and other files, and PoCL still works."""
    failed = root / "AB" / ("C" * 37)
    failed.mkdir(parents=True)
    (failed / "build.log").write_text("error")
    (root / "stray.txt").write_text("mine")
    cache = _later(root)
    for checked in list(cache.leftovers()):
        cache.repair(checked, None)
    assert sorted(path.name for path in root.iterdir()) == sorted(
        [_program(root).parent.parent.name, "stray.txt"]
    )
    pocl.works(root)


def test_a_removed_program_is_built_again(pocl: Pocl, root: Path) -> None:
    """An eviction costs a build and nothing else."""
    cache = _later(root)
    [entry] = cache.scan()
    assert cache.remove(entry, "test") is None
    cache.finish_removals()
    assert list(cache.scan()) == []
    pocl.works(root)
    [again] = cache.scan()
    assert again.key == entry.key


def test_a_program_just_used_is_kept(pocl: Pocl, root: Path) -> None:
    """Right after a run the program may still be in use, and is kept with the reason."""
    pocl.works(root)
    [entry] = _later(root).scan()
    now = SYSTEM.open(Location("pocl", str(root), "test", enabled=True), clock=lambda: entry.last_used_ns + 1)
    kept = now.remove(entry, "test")
    assert kept is not None
    assert "last minute" in kept.reason


def test_isolation_and_tracing_are_obeyed(pocl: Pocl, made: Path, tmp_path: Path) -> None:
    """PoCL keeps its cache where isolation says, and tells hits where tracing asks for them."""
    environ = {**dict(SYSTEM.isolation(tmp_path).environment), **SYSTEM.tracing}
    for words in ("Built a specialized WG function", "Using a cached WG function"):
        done = pocl.run(made, more=environ)
        assert json.loads(done.stdout.strip().splitlines()[-1]) == _RIGHT
        assert words in done.stderr
    [entry] = _later(tmp_path / "pocl").scan()
    assert entry.program == "vecadd and 1 more"


def test_an_older_llvm_that_is_gone_is_told(tmp_path: Path, made: Path, pocl: Pocl) -> None:
    """Programs of a real LLVM are distinguished from those of another one that came later."""
    root = tmp_path / "kcache"
    used = max(entry.last_used_ns for entry in build.cache(made).scan())
    build.program(root, digest=bytes([0xEE] * 20), llvm="LLVM99.0.1", at_ns=used + _MINUTE)
    used += 10**9  # a use after it was made
    copied = shutil.copytree(made, tmp_path / "copied")
    for file in copied.rglob("last_accessed"):
        os.utime(file, ns=(used, used))
    shutil.copytree(copied, root, dirs_exist_ok=True)
    origins, entries = Origins(), list(build.cache(root).scan())
    assert list(origins.of(entries)) == entries
    assert origins.stale((), used + 30 * build.DAY) == {}
    found = origins.stale((), used + 31 * build.DAY)
    llvm = {"3.0": "14.0.6", "3.1": "15.0.6"}[pocl.version]
    assert [one.producer for one in found] == [f"LLVM {llvm}"]
