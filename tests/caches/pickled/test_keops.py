"""KeOps' cache: the pickles that every start writes, next to libraries."""

import pickle
from pathlib import Path

from gpucache.caches.registry import of_others
from tests.caches.opened import opened
from tests.caches.pickled.build import put_formula, put_keops


def test_pickles_that_every_start_writes_tell_nothing_of_a_miss(tmp_path: Path) -> None:
    """Libraries do, which are written once."""
    put_keops(tmp_path, pickle.dumps({"Sum": 1}))
    put_formula(tmp_path)
    found = {entry.artifact_kind: entry.renewed for entry in opened(of_others("keops"), tmp_path).scan()}
    assert found == {"pickle": True, "elf": False}
