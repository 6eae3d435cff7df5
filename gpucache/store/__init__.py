"""Our own cache: entries on disk and in memory. Knows bytes, files, locks and history; nothing of GPUs."""

from gpucache.store.directory import DirectoryStore
from gpucache.store.format import EntryFormatError
from gpucache.store.interface import (
    Absent,
    Damage,
    Damaged,
    EntryStore,
    Event,
    FileIdentity,
    Found,
    Leftover,
    RefusedRoot,
    ScannedEntry,
    Store,
)
from gpucache.store.memory import MemoryStore
from gpucache.store.system_root import refused_root
from gpucache.store.trust import Root, RootRefused, RootState, root_state

__all__ = [
    "Absent",
    "Damage",
    "Damaged",
    "DirectoryStore",
    "EntryFormatError",
    "EntryStore",
    "Event",
    "FileIdentity",
    "Found",
    "Leftover",
    "MemoryStore",
    "RefusedRoot",
    "Root",
    "RootRefused",
    "RootState",
    "ScannedEntry",
    "Store",
    "refused_root",
    "root_state",
]
