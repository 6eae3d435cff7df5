"""Real caches of libsycl, damaged, repaired, and used again by the program that made them.

The program is a few lines of dpnp, run by this interpreter where dpnp is installed, or by the one that
the environment variable GPUCACHE_TEST_SYCL_PYTHON names; without either these tests are skipped. It
runs on Intel's CPU runtime below that interpreter's prefix.
"""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry, Location
from gpucache.answers.verify import Checked
from gpucache.answers.why import Served
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.children import run_text
from tests.peers.sycl_damage import DAMAGES, Damage, copies

SYSTEM = of_others("sycl")

_PROGRAM = """
import dpnp
x = dpnp.arange(16, dtype="float32")
assert float(dpnp.sum(x)) == 120.0 and float(dpnp.sqrt(x + 3)[1]) == 2.0
"""
_VARIABLE = "GPUCACHE_TEST_SYCL_PYTHON"
# Eviction is on but has no cause: so the cache keeps its size and renews its times.
_SETTINGS = {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_TRACE": "1", "SYCL_CACHE_MAX_SIZE": "1000000000"}
_PYTHON = os.environ.get(_VARIABLE) or sys.executable

pytestmark = pytest.mark.skipif(
    _VARIABLE not in os.environ and importlib.util.find_spec("dpnp") is None,
    reason=f"dpnp is not installed, and {_VARIABLE} names no other interpreter that has it",
)


@dataclass(frozen=True, slots=True)
class Traced:
    """The report of a run of the program: the ``.bin`` files that it used, and those that it added."""

    used: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The program, and the environment it needs."""

    environment: dict[str, str]

    def run(self, root: Path) -> Traced:
        done = run_text([_PYTHON, "-c", _PROGRAM], env={**self.environment, "SYCL_CACHE_DIR": str(root)})
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-2000:]
        return Traced(_named(said, "using cached device binary: "), _named(said, "has been cached: "))


def _named(said: str, words: str) -> tuple[str, ...]:
    return tuple(line.partition(words)[2].rstrip("; ") for line in said.splitlines() if words in line)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    library = Path(_PYTHON).parent.parent / "lib" / "libintelocl.so"
    if not library.is_file():
        pytest.skip(f"Intel's CPU runtime is not installed: there is no {library}")
    vendors = tmp_path_factory.mktemp("vendors")
    (vendors / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
    unset = ("SYCL_", "PYTHONPATH", "OCL_ICD_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return Program({**clean, **_SETTINGS, "OCL_ICD_VENDORS": str(vendors)})


@pytest.fixture(scope="module")
def made(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "libsycl_cache"
    traced = program.run(root)
    assert len(traced.added) >= 2 and not traced.used
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "libsycl_cache"
    shutil.copytree(made, copy)
    return copy


def _open(root: Path) -> Cache:
    return SYSTEM.open(Location("sycl", str(root), "--cache", enabled=True))


def _verify(cache: Cache) -> list[tuple[Checked, CacheEntry | None]]:
    entries = [(cache.check(entry), entry) for entry in cache.scan()]
    return [*entries, *((leftover, None) for leftover in cache.leftovers())]


def _findings(root: Path) -> list[tuple[str, str]]:
    return [(one.kind.value, one.detail) for checked, _ in _verify(_open(root)) for one in checked.findings]


def _repair(root: Path) -> list[Checked]:
    cache = _open(root)
    return [cache.repair(checked, entry) for checked, entry in _verify(cache) if checked.findings]


def _group(root: Path) -> Path:
    return min(root.glob("*/*/*/*/0.bin")).parent


def _entries(root: Path) -> int:
    return len(list(root.rglob("*.bin")))


def test_a_cache_just_made_has_no_findings(root: Path) -> None:
    """libsycl's own files are sound: directories have our hashes as names, and every file is known."""
    checked = _verify(_open(root))

    assert [one.counts for one, _ in checked] == [True] * _entries(root)
    assert all(not one.findings and not one.notes for one, _ in checked)


def test_what_was_made_is_explained_as_a_hit(root: Path) -> None:
    """The four stored fields, asked for, are found again."""
    source = (_group(root) / "0.src").read_bytes()
    values = []
    while source:
        length = int.from_bytes(source[:8], "little")
        values.append(source[8 : 8 + length])
        source = source[8 + length :]
    wanted = {
        name: (value,) for name, value in zip(("device", "options", "spec", "image"), values, strict=True)
    }

    (reach,) = _open(root).explain(wanted)

    assert reach.verdict is Served.HIT


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.do.__name__)
def test_a_damaged_cache_is_told_and_repaired(
    damage: Damage, root: Path, program: Program, made: Path
) -> None:
    """The damage is a finding; after a repair there is none, and the program adds only the lost entries."""
    damage.do(_group(root), root)

    assert any(kind == damage.kind for kind, _ in _findings(root))
    assert all(finding.repaired for checked in _repair(root) for finding in checked.findings)
    assert _findings(root) == []
    left = _entries(root)
    first, second = program.run(root), program.run(root)
    assert (len(first.used), len(first.added)) == (left, _entries(made) - left)
    assert (len(second.used), second.added) == (_entries(made), ())
    assert _findings(root) == []


def test_what_is_evicted_alone_is_missed(root: Path, program: Program) -> None:
    """After the removal of one entry, with its copies, the program compiles that one and finds all others."""
    copies(_group(root), root)
    cache = _open(root)
    entries = list(cache.scan())
    gone = next(entry for entry in entries if entry.path == str(_group(root)))

    assert cache.remove(gone, "a test") is None
    traced = program.run(root)

    assert (traced.added, len(traced.used)) == ((f"{gone.path}/0.bin",), len(entries) - 1)
    assert _findings(root) == []
