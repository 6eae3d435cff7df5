"""Caches of older versions of their owners: known, found damaged where they are, and mended by a repair.

``GPUCACHE_TEST_OLDER_PYTHONS`` names interpreters that have Warp or pytools in some version, separated as in
PATH; without it these tests are skipped.
"""

import os
import subprocess
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others

_PYTHONS = [one for one in os.environ.get("GPUCACHE_TEST_OLDER_PYTHONS", "").split(os.pathsep) if one]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _PYTHONS, reason="GPUCACHE_TEST_OLDER_PYTHONS names no interpreter"),
]

_WARP = """
import warp as wp
wp.init()

@wp.kernel
def scale(x: wp.array(dtype=float), factor: float):
    i = wp.tid()
    x[i] = x[i] * factor

x = wp.array([1.0, 2.0], dtype=float, device="cpu")
wp.launch(scale, dim=2, inputs=[x, 3.0], device="cpu")
assert x.numpy().tolist() == [3.0, 6.0]
"""

_PYTOOLS = """
from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict

known = WriteOncePersistentDict("older-v1")
try:
    assert known["key"] == "code"
except NoSuchEntryError:
    known["key"] = "code"
"""


def _run(python: str, program: Path, home: Path) -> bool:
    """Whether a program succeeds whose cache is below a folder."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(home), "WARP_CACHE_PATH": str(home / "warp")}
    done = subprocess.run([python, program], env=environ, capture_output=True, timeout=300, check=False)
    return done.returncode == 0


def _kinds(cache: Cache) -> list[str]:
    checks = [*map(cache.check, cache.scan()), *cache.leftovers()]
    return [finding.kind for checked in checks for finding in checked.findings]


@pytest.mark.parametrize(("owner", "text"), [("warp", _WARP), ("pytools", _PYTOOLS)])
@pytest.mark.parametrize("python", _PYTHONS)
def test_a_cache_of_an_older_version_is_checked_and_mended(
    python: str, owner: str, text: str, tmp_path: Path
) -> None:
    """What it wrote is sound, a binary that is cut is found, and after a repair the program runs."""
    if subprocess.run([python, "-c", f"import {owner}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no {owner}")
    program, home = tmp_path / "program.py", tmp_path / "home"
    program.write_text(text, encoding="ascii")
    assert _run(python, program, home)
    cache = of_others(owner).open(Location(owner, str(home / owner), "--cache", enabled=True))
    assert list(cache.scan()) and not _kinds(cache)
    path = next(one for one in home.rglob("*") if one.name == "contents" or one.suffix in (".o", ".sqlite"))
    os.truncate(path, path.stat().st_size // 2)
    assert set(_kinds(cache)) <= {"truncated", "corrupt"} and _kinds(cache)
    for entry in cache.scan():
        if (checked := cache.check(entry)).findings:
            assert cache.repair(checked, entry).findings[0].repaired
    assert not _kinds(cache) and _run(python, program, home) and not _kinds(cache)
