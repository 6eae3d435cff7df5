"""The folder for damaged entries: out of the way, kept for people to look at, bounded, and recorded.

A file is called ``<time it was moved, in ns>-<its old name>``, so that names sort by age. Must not decide
what is damaged.
"""

import time
from contextlib import suppress

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.model import CacheKey, EntryHead
from gpucache.store import layout
from gpucache.store.format import EntryFormatError, read_description, read_head
from gpucache.store.history import History
from gpucache.store.interface import UNREADABLE, Event, FileIdentity
from gpucache.store.root_folder import RootFolder
from gpucache.store.scan import identity_of
from gpucache.store.trust import open_trusted

FILE_CAP = 32
BYTES_CAP = 64 << 20


class Quarantine:
    """The quarantine of one root."""

    def __init__(self, root: RootFolder, history: History) -> None:
        self._root = root
        self._history = history

    def take(self, folder: Folder, name: str, identity: FileIdentity, key: CacheKey, why: str) -> bool:
        """Move a file in, if it is still the one that was read; whether it was moved. Raises nothing."""
        now_ns = time.time_ns()
        try:
            if identity_of(folder.lstat(name)) != identity:
                return False
            head = self._head(folder, name)
            with self._root.make(*layout.QUARANTINE) as quarantine:
                # Folders that were moved here hold files of others, and so stay until somebody looks.
                if sum(found.is_dir(follow_symlinks=False) for found in quarantine.entries()) >= FILE_CAP:
                    return False
                folder.move(name, quarantine, f"{now_ns:020d}-{name}")
                _trim(quarantine)
        except (OSError, CacheUnusableError):
            return False
        program, target = (head.program, head.target) if head is not None else (UNREADABLE, "")
        self._history.record(program, Event(now_ns, "quarantined", key.hex, target, why))
        return True

    def _head(self, folder: Folder, name: str) -> EntryHead | None:
        """The head, which names the history to write; without a checksum only of a program we know."""
        with suppress(OSError, EntryFormatError), open_trusted(folder, name) as (fd, status):
            with suppress(EntryFormatError):
                return read_description(fd, status.st_size).head
            head = read_head(fd, status.st_size)[1]
            return head if self._history.events(head.program) else None
        return None


def _trim(quarantine: Folder) -> None:
    """Remove the oldest until both caps hold."""
    found = [entry.name for entry in quarantine.entries()]
    names = sorted(name for name in found if layout.is_beside(layout.QUARANTINE, name))
    kept_bytes = 0
    for rank, name in enumerate(reversed(names)):
        with suppress(OSError):
            kept_bytes += quarantine.lstat(name).st_size
            if rank >= FILE_CAP or kept_bytes > BYTES_CAP:
                quarantine.unlink(name)
