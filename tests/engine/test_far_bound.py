"""A size limit far above the cache's size costs next to nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Built
from gpucache.assembly import open_stores
from gpucache.engine.lookup import get_or_build
from gpucache.engine.prepare import Prepared
from gpucache.settings import Settings
from gpucache.store.directory import DirectoryStore


@pytest.fixture
def trimmed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bounds for which entries were read one by one, to choose which go."""
    limits: list[int] = []

    def trim(_cache: object, limit: int, _now_ns: int) -> int:
        limits.append(limit)
        return 0

    monkeypatch.setattr("gpucache.engine.evict.trim", trim)
    return limits


@pytest.mark.parametrize(("limit", "calls"), [(1 << 40, 0), (1, 1)])
def test_entries_are_read_only_above_the_bound(
    tmp_path: Path,
    ready: Callable[..., Prepared],
    compiler: Any,
    tree: Any,
    trimmed: list[int],
    limit: int,
    calls: int,
) -> None:
    """Publishing below the limit reads no entry; above it entries are chosen for eviction."""
    stores = open_stores(Settings(root=tmp_path / "cache", root_origin="--root", max_size_bytes=limit))
    assert isinstance(get_or_build(stores, ready(include_dirs=[tree("include")]), compiler()), Built)
    assert trimmed == [limit] * calls


def test_the_size_is_that_of_all_entries(
    store: DirectoryStore, ready: Callable[..., Prepared], compiler: Any, tree: Any, tmp_path: Path
) -> None:
    """The size reported without reading an entry equals that of a full scan, with damaged entries."""
    stores = open_stores(Settings(root=store.root, root_origin="--root"))
    folder = tree("include")
    assert store.allocated_bytes() == 0
    for number in range(12):
        prepared = ready(include_dirs=[folder], options=[f"-DN={number}"])
        get_or_build(stores, prepared, compiler(remark="x" * (1000 * number)))
    next(store.root.rglob("*.gpc")).write_bytes(b"")
    scanned = list(store.scan())
    assert len(scanned) == 12
    assert store.allocated_bytes() == sum(entry.allocated_bytes for entry in scanned) > 0
