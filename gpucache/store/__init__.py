"""Our own cache: entries on disk and in memory. Knows bytes, files, locks and history, but not GPUs.

The module of a name is imported when that name is first used: a hit needs few of them.
"""

TYPE_CHECKING = False  # typing's, which type checkers recognize by its name

if TYPE_CHECKING:
    from gpucache.store.directory import DirectoryStore
    from gpucache.store.format import EntryFormatError
    from gpucache.store.interface import (
        Absent,
        Damaged,
        Event,
        FileIdentity,
        Found,
        Leftover,
        RefusedRoot,
        ScannedEntry,
    )
    from gpucache.store.memory import MemoryStore
    from gpucache.store.system_root import refused_root
    from gpucache.store.trust import Root, RootRefused, RootState, root_state

_HOMES = {
    "DirectoryStore": "directory",
    "EntryFormatError": "format",
    "MemoryStore": "memory",
    "refused_root": "system_root",
    **dict.fromkeys(("Root", "RootRefused", "RootState", "root_state"), "trust"),
}
"""The modules of the names that are not in ``interface``."""
__all__ = [
    "Absent",
    "Damaged",
    "DirectoryStore",
    "EntryFormatError",
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
    "refused_root",
    "root_state",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpucache.store' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"gpucache.store.{_HOMES.get(name, 'interface')}"), name)
    return found
