"""The sum of sizes and the lock of Intel's compiler cache."""

from pathlib import Path

import pytest

from gpucache.caches.registry import of_others
from tests.caches.intel_neo.build import BINARY, key, put
from tests.caches.opened import opened

SYSTEM = of_others("intel-neo")


def test_a_repair_takes_the_size_of_what_it_removes_from_the_sum(tmp_path: Path) -> None:
    """The driver evicts by that sum, which a removal by hand would make wrong."""
    put(tmp_path, 1), put(tmp_path, data=b"garbage")
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(key(0))
    assert cache.repair(cache.check(entry), entry).findings[0].repaired
    assert int.from_bytes((tmp_path / "config.file").read_bytes(), "little") == len(BINARY)


def test_a_held_lock_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the driver holds its lock no entry is removed, and only the first removal waits."""
    fcntl = pytest.importorskip("fcntl")
    paths = [put(tmp_path, number) for number in range(2)]
    pauses: list[float] = []
    monkeypatch.setattr("gpucache.caches.files.time.sleep", pauses.append)
    cache = opened(SYSTEM, tmp_path)
    first, second = cache.scan()
    with (tmp_path / "config.file").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = cache.remove(first, "test")
        waited = len(pauses)
        assert kept is not None and "lock is held" in kept.reason and waited
        assert cache.remove(second, "test") is not None and len(pauses) == waited
    assert all(path.exists() for path in paths)
