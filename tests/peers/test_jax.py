"""Compilation caches that JAX makes on this machine's processor, and its behaviour with damage in them.

Each run is its own process, as JAX reads a cache once. JAX bounds its cache with ``filelock``.
The environment variable GPUCACHE_TEST_JAX_0_4_30_PYTHON names an interpreter with JAX 0.4.30.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.children import run_text

SYSTEM = of_others("jax")

_PROGRAM = """
import sys
import jax
number = int(sys.argv[1])
jax.jit(lambda x: x * number + 1)(1.0)
"""
_FOUND = [importlib.util.find_spec(name) for name in ("jax", "filelock")]

_VARIABLE = "GPUCACHE_TEST_JAX_0_4_30_PYTHON"
_OLD_PYTHON = os.environ.get(_VARIABLE, "")

pytestmark = pytest.mark.slow
with_jax = pytest.mark.skipif(None in _FOUND, reason="jax and filelock are not installed")


def _environ(root: Path, **more: str) -> dict[str, str]:
    """The environment of a program that keeps all its compiles below a directory."""
    isolation = SYSTEM.isolation(root)
    variables = dict((*isolation.environment, *isolation.turn_on))
    return {**os.environ, **variables, "JAX_PLATFORMS": "cpu", **SYSTEM.tracing, **more}


def _run(environ: dict[str, str], number: int = 2, python: str = sys.executable) -> str:
    """The messages of a program that compiles, or hits."""
    done = run_text([python, "-c", _PROGRAM, number], env=environ, check=True)  # fmt: skip
    return done.stderr


def _opened(environ: dict[str, str]) -> Cache:
    (location,) = SYSTEM.locations(environ)
    return SYSTEM.open(location)


def _entry(cache: Cache) -> CacheEntry:
    (entry,) = (one for one in cache.scan() if "lambda" in one.program)
    return entry


@with_jax
def test_a_cache_as_jax_makes_it_is_sound(tmp_path: Path) -> None:
    """Its executables can be extracted, and the next run finds all of them, by the keys that JAX logs."""
    environ = _environ(tmp_path)
    said = _run(environ)
    cache = _opened(environ)
    entries = list(cache.scan())
    assert entries and all(not cache.check(entry).findings for entry in entries)
    assert not list(cache.leftovers()) and all(cache.extract(entry) for entry in entries)
    assert all(f"{entry.program}-{entry.key}" in said for entry in entries)
    assert "CACHE MISS for 'jit" not in _run(environ)
    assert SYSTEM.recognises(Path(cache.location().root))


@with_jax
def test_jax_never_replaces_a_damaged_entry_and_a_repair_has_it_do_so(tmp_path: Path) -> None:
    """JAX's behaviour is as in the finding."""
    environ = _environ(tmp_path)
    _run(environ)
    path = Path(_entry(_opened(environ)).path)
    os.truncate(path, path.stat().st_size - 10)
    os.utime(path, (1, 1))
    for _ in range(2):
        assert "Error reading persistent compilation cache entry" in _run(environ)
    cache = _opened(environ)
    entry = _entry(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED]
    assert cache.repair(checked, entry).findings[0].repaired
    _run(environ)
    assert "Error" not in _run(environ) and not cache.check(_entry(cache)).findings


@with_jax
def test_an_entry_without_its_last_use_stops_jax_from_writing_others(tmp_path: Path) -> None:
    """If the cache has a limit; once it is removed, JAX writes again."""
    environ = _environ(tmp_path, JAX_COMPILATION_CACHE_MAX_SIZE="100000000")
    _run(environ)
    cache = _opened(environ)
    entry = _entry(cache)
    assert not cache.check(entry).findings
    Path(entry.path.removesuffix("-cache") + "-atime").unlink()
    entry = _entry(cache)
    assert kinds(cache.check(entry)) == [FindingKind.ORPHAN]
    assert "FileNotFoundError" in _run(environ, 3)
    assert cache.remove(entry, "--all") is None
    assert "FileNotFoundError" not in _run(environ, 4)


@with_jax
def test_what_was_warmed_is_hit_at_another_place(tmp_path: Path) -> None:
    """The variables that move a cache leave its place out of the keys."""
    _run(_environ(tmp_path / "there"))
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    shutil.rmtree(tmp_path / "there")
    assert "CACHE MISS for 'jit" not in _run(_environ(tmp_path / "here"))


@pytest.mark.skipif(not _OLD_PYTHON, reason=f"{_VARIABLE} names no interpreter with JAX 0.4.30")
def test_the_cache_of_jax_0_4_30_is_known_and_repaired(tmp_path: Path) -> None:
    """Its files have no suffix; bytes after the data do no harm, and damage stays until a repair."""
    environ, python = _environ(tmp_path), _OLD_PYTHON
    _run(environ, python=python)
    cache = _opened(environ)
    entry = _entry(cache)
    assert SYSTEM.recognises(Path(cache.location().root)) and entry.producer == "JAX 0.4.20-0.4.30"
    assert not [one for other in cache.scan() for one in cache.check(other).findings]
    path = Path(entry.path)
    path.write_bytes(path.read_bytes() + b"garbage")
    assert "Error" not in _run(environ, python=python) and not cache.check(_entry(cache)).findings
    os.truncate(path, 100)
    assert "Error reading persistent compilation cache" in _run(environ, python=python)
    os.utime(path, (1, 1))  # a use renews it, and a young one may be incomplete
    entry = _entry(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED]
    assert cache.repair(checked, entry).findings[0].repaired
    _run(environ, python=python)
    assert "Error" not in _run(environ, python=python) and not cache.check(_entry(cache)).findings
