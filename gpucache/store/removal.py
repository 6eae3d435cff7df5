"""Removes entries, each if it is unchanged since the scan, and records that, program by program.

Must not decide which entries to remove.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from gpucache.answers.evict import Kept
from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import records
from gpucache.store.history import History
from gpucache.store.interface import Event, ScannedEntry
from gpucache.store.root_folder import RootFolder
from gpucache.store.scan import identity_of, place_of

_GONE = struct.Struct("<Q32s")
"""The removal time and the key of an entry: all that is kept of it until 100,000 are recorded."""


class Removal:
    """Removes the entries of one root."""

    def __init__(self, root: RootFolder, history: History, is_marked: Callable[[], bool]) -> None:
        self._root = root
        self._history = history
        self._is_marked = cache(is_marked)

    def remove_all(self, going: Iterable[ScannedEntry], why: str) -> Iterator[Kept | None]:
        """Remove one entry after the other, even unreadable ones, after their programs have been recorded."""
        self._history.note_all(why)
        with ExitStack() as stack:
            folders: dict[Path, Folder] = {}
            for scanned in going:
                yield self._removed(scanned, folders, stack)

    def remove(self, going: Iterable[ScannedEntry], why: str) -> Iterator[Kept | None]:
        """Remove one entry after the other, and record those that went at the end, even when stopped early;
        then their rows go, too.

        A file that is an entry only by its name is removed only from a root that is marked as ours.
        """
        gone: dict[tuple[str, str], bytearray] = {}
        try:
            with ExitStack() as stack:
                folders: dict[Path, Folder] = {}
                for scanned in going:
                    damage = scanned.damage
                    unread = Kept(damage.detail) if damage and damage.kind is None else None
                    kept = unread or self._removed(scanned, folders, stack)
                    if kept is None and scanned.head is not None:
                        own = gone.setdefault((scanned.head.program, scanned.head.target), bytearray())
                        own += _GONE.pack(time.time_ns(), bytes.fromhex(scanned.key.hex))
                    yield kept
        finally:
            keys = {key.hex() for own in gone.values() for _, key in _GONE.iter_unpack(own)}
            if keys:
                records.rows(self._root).forget(keys)
            self._history.record_all(
                (program, (_evicted(target, why, *one) for one in _GONE.iter_unpack(own)))
                for (program, target), own in gone.items()
            )

    def _removed(self, scanned: ScannedEntry, folders: dict[Path, Folder], stack: ExitStack) -> Kept | None:
        """Remove one entry; directories stay open until the last entry, as there are 256 at most."""
        if scanned.head is None and not self._is_marked():
            return Kept(
                f"nothing in {self._root.path} shows that it is gpucache's, so its files are not touched"
            )
        try:
            folder = folders.get(scanned.folder)
            if folder is None:
                folder = stack.enter_context(self._root.open(*place_of(self._root, scanned)))
                folders[scanned.folder] = folder
            if identity_of(folder.lstat(scanned.name)) != scanned.identity:
                return Kept()
            folder.unlink(scanned.name)
        except OSError as error:
            return Kept.by(error, self._root.path)
        except CacheUnusableError as error:
            return Kept(str(error))
        return None


def _evicted(target: str, why: str, when_ns: int, key: bytes) -> Event:
    return Event(when_ns, "evicted", key.hex(), target, why)
