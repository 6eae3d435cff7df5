"""The locks that FlashInfer holds while it builds."""

import fcntl
from pathlib import Path

from gpucache.caches.registry import of_others
from tests.caches.flashinfer.build import put
from tests.caches.opened import only, opened


def test_a_module_that_is_being_built_stays(tmp_path: Path) -> None:
    """FlashInfer holds a lock of its own for each."""
    folder = put(tmp_path)
    place = folder.parent / "tmp" / f"{folder.name}.lock"
    place.parent.mkdir()
    cache = opened(of_others("flashinfer"), tmp_path)
    entry = only(cache)
    with place.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = cache.remove(entry, "test")
        assert kept is not None and "FlashInfer is building it" in kept.reason and folder.exists()
    assert cache.remove(entry, "test") is None and not folder.exists()
