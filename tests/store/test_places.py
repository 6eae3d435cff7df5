"""Roots in places where no directory can be made."""

from pathlib import Path

import pytest

from gpucache.errors import CacheUnusableError
from gpucache.model import CacheKey
from gpucache.store.directory import DirectoryStore


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc, where nobody can make a folder")
def test_a_place_that_takes_no_folder_is_refused_and_harms_nobody() -> None:
    """A file system that returns 'no such file' for every new directory ends in a sentence, not in a loop."""
    store = DirectoryStore(Path("/proc/none/root"), writable=True)
    with pytest.raises(CacheUnusableError, match="/proc/none/root cannot be written"):
        store.prepare()
    store.journal({"kind": "miss"})
    with store.single_flight(CacheKey("0" * 64), 0.0) as held:
        assert held is False
