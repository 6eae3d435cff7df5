"""Promises of every store, on disk and in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Absent, Found
from gpucache.store.memory import MemoryStore
from tests.faults.conftest import build_entry

Store = DirectoryStore | MemoryStore

_STORES: dict[str, Callable[[Path], Store]] = {
    "directory": lambda path: DirectoryStore(path / "cache", writable=True),
    "memory": lambda _: MemoryStore(1 << 20),
}


@pytest.fixture(params=_STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return _STORES[request.param](tmp_path)


def test_unknown_key_is_absent(store: Store) -> None:
    """A key nothing was published under is absent, without a reason."""
    assert store.get(build_entry("a", b"").key) == Absent()


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 300])
def test_published_entry_is_found(store: Store, payload: bytes) -> None:
    """A published entry comes back with key, head and payload, and its size is reported."""
    entry = build_entry("a", payload)
    assert store.publish(entry) >= len(payload)
    found = store.get(entry.key)
    assert isinstance(found, Found)
    assert (found.key, found.head, found.payload) == (entry.key, entry.head, payload)


def test_last_published_wins(store: Store) -> None:
    """Publishing under an existing key replaces the entry."""
    store.publish(build_entry("a", b"first"))
    store.publish(build_entry("a", b"second"))
    found = store.get(build_entry("a", b"").key)
    assert isinstance(found, Found) and found.payload == b"second"


def test_keys_are_apart(store: Store) -> None:
    """Entries under different keys do not touch each other."""
    store.publish(build_entry("a", b"of a"))
    store.publish(build_entry("b", b"of b"))
    results = [store.get(build_entry(seed, b"").key) for seed in "ab"]
    assert [found.payload for found in results if isinstance(found, Found)] == [b"of a", b"of b"]
