"""Where OptiX keeps its database, how large that may grow, and what of it is an entry."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.caches.registry import of_others, system_at
from tests.caches.opened import only, opened

SYSTEM = of_others("nvidia-optix")


def test_it_lies_among_temporary_files_that_a_boot_keeps() -> None:
    """A folder for each user, wherever TMPDIR points."""
    (location,) = SYSTEM.locations({"USER": "alice", "TMPDIR": "/elsewhere"})
    assert (location.root, location.decided_by) == ("/var/tmp/OptixCache_alice", "default")


@pytest.mark.parametrize(
    ("environ", "limit", "off"),
    [
        ({}, None, False),
        ({"OPTIX_CACHE_MAXSIZE": "1000000"}, 1_000_000, False),
        ({"OPTIX_CACHE_MAXSIZE": "0"}, 0, True),
    ],
)
def test_a_variable_bounds_it_or_turns_it_off(
    environ: Mapping[str, str], limit: int | None, off: bool, tmp_path: Path
) -> None:
    """With 0 nothing is kept."""
    (location,) = SYSTEM.locations({"OPTIX_CACHE_PATH": str(tmp_path), **environ})
    assert (location.root, location.limit_bytes, location.enabled) == (str(tmp_path), limit, not off)
    assert any("turns the cache off" in one for one in location.problems) is off


def test_the_database_alone_is_an_entry(tmp_path: Path) -> None:
    """What SQLite keeps beside it for those that have it open is none."""
    for ending in ("", "-wal", "-shm"):
        (tmp_path / f"optix7cache.db{ending}").write_bytes(b"SQLite format 3\0")
    assert system_at(tmp_path) is SYSTEM
    assert only(opened(SYSTEM, tmp_path)).program == "optix7cache.db"
