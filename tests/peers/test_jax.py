"""Compilation caches that JAX makes itself on this machine's processor, and what it makes of damage in them.

Each run is a process of its own, as JAX reads a cache once. ``filelock`` is what JAX bounds its cache with.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.patience import PATIENCE_S

SYSTEM = of_others("jax")

_PROGRAM = """
import sys
import jax
number = int(sys.argv[1])
jax.jit(lambda x: x * number + 1)(1.0)
"""
_FOUND = [importlib.util.find_spec(name) for name in ("jax", "filelock")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(None in _FOUND, reason="jax and filelock are not installed"),
]


def _environ(root: Path, **more: str) -> dict[str, str]:
    """The environment of a program that keeps all it compiles below a folder."""
    isolation = SYSTEM.isolation(root)
    variables = dict((*isolation.environment, *isolation.turn_on))
    return {**os.environ, **variables, "JAX_PLATFORMS": "cpu", **SYSTEM.tracing, **more}


def _run(environ: dict[str, str], number: int = 2) -> str:
    """What a program says that compiles something, or finds it."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(number)],
        env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    return done.stderr


def _opened(environ: dict[str, str]) -> Cache:
    (location,) = SYSTEM.locations(environ)
    return SYSTEM.open(location)


def _entry(cache: Cache) -> CacheEntry:
    (entry,) = (one for one in cache.scan() if "lambda" in one.program)
    return entry


def test_a_cache_as_jax_makes_it_is_sound(tmp_path: Path) -> None:
    """Its executables are given out, and the next run finds all of them, by the keys that JAX logs."""
    environ = _environ(tmp_path)
    said = _run(environ)
    cache = _opened(environ)
    entries = list(cache.scan())
    assert entries and all(not cache.check(entry).findings for entry in entries)
    assert not list(cache.leftovers()) and all(cache.extract(entry) for entry in entries)
    assert all(f"{entry.program}-{entry.key}" in said for entry in entries)
    assert "CACHE MISS for 'jit" not in _run(environ)
    assert SYSTEM.recognises(Path(cache.location().root))


def test_jax_never_replaces_a_damaged_entry_and_a_repair_has_it_do_so(tmp_path: Path) -> None:
    """As the finding says."""
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


def test_an_entry_without_its_last_use_stops_jax_from_writing_others(tmp_path: Path) -> None:
    """Where the cache has a limit; once it is removed, JAX writes again."""
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
