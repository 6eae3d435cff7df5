"""The entries of one process in memory, bounded by bytes: the least recently used are dropped.

Safe between threads and across fork. Must not know the origin of entries.
"""

import os
import threading
import weakref
from collections import OrderedDict
from pathlib import Path

from gpucache.model import CacheKey, Entry
from gpucache.store.interface import Absent, Found

ENTRY_OVERHEAD_BYTES = 1024
"""Added to the payload's size, so that tiny entries are also bounded."""
MEMORY_ROOT = Path("memory")
"""``Found.root`` of an entry from memory; this directory does not exist."""

_stores: "weakref.WeakSet[MemoryStore]" = weakref.WeakSet()


class MemoryStore:
    """A ``Store`` of at most ``limit_bytes``; 0 disables it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._found: OrderedDict[CacheKey, Found] = OrderedDict()
        self._lock = threading.Lock()
        _stores.add(self)

    def get(self, key: CacheKey) -> Found | Absent:
        """The entry of a key, which becomes the most recently used."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return Absent()
            self._found.move_to_end(key)
            return found

    def all(self) -> list[Found]:
        with self._lock:
            return [*self._found.values()]

    def __contains__(self, key: CacheKey) -> bool:
        return key in self._found

    def publish(self, entry: Entry) -> int:
        """Keep an entry unless it alone exceeds the limit; returns its size in bytes as counted here."""
        found = Found(entry.key, entry.head, entry.payload, MEMORY_ROOT, entry.detail.build_log)
        size_bytes = _size_bytes(found)
        if size_bytes <= self._limit_bytes:
            with self._lock:
                self._drop(entry.key)
                self._found[entry.key] = found
                self._used_bytes += size_bytes
                while self._used_bytes > self._limit_bytes:
                    self._drop(next(iter(self._found)))
        return size_bytes

    def _drop(self, key: CacheKey) -> None:
        found = self._found.pop(key, None)
        if found is not None:
            self._used_bytes -= _size_bytes(found)

    def _after_fork(self) -> None:
        # Another thread of the parent may have held the lock while it was counting.
        self._lock = threading.Lock()
        self._used_bytes = sum(_size_bytes(found) for found in self._found.values())


def _size_bytes(found: Found) -> int:
    return ENTRY_OVERHEAD_BYTES + len(found.payload) + len(found.log)


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
