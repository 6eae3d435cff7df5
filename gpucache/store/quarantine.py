"""The directory for damaged entries: moved out of the way, kept for inspection, bounded, and recorded.

A file is named ``<time it was moved, in ns>-<its old name>``, so that names sort by age. Must not decide
which entries are damaged.
"""

import time
from contextlib import suppress

from gpucache.folders import Folder
from gpucache.model import CacheKey, EntryHead
from gpucache.store import layout
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.format import EntryFormatError, read_description, read_head
from gpucache.store.history import History
from gpucache.store.interface import UNREADABLE, Event, FileIdentity
from gpucache.store.root_folder import UNUSABLE, RootFolder
from gpucache.store.scan import identity_of
from gpucache.store.trust import open_trusted

FILE_CAP = 32
BYTES_CAP = 64 << 20
_INSTANT_DIGITS = 20


class Quarantine(BoundedFolder):
    """The quarantine of one root."""

    def __init__(self, root: RootFolder, history: History) -> None:
        bounds = Bounds(FILE_CAP, BYTES_CAP, BYTES_CAP, age=lambda name, _: int(name[:_INSTANT_DIGITS]))
        super().__init__(root, layout.QUARANTINE, layout.ENTRY_SUFFIX, bounds)
        self._history = history

    def take(
        self, place: tuple[str, ...], name: str, identity: FileIdentity, key: CacheKey, why: str
    ) -> bool:
        """Move a file of a directory in, if it is still the one that was read; returns whether it moved."""
        now_ns = time.time_ns()
        try:
            with self._root.open(*place) as folder:
                if identity_of(folder.lstat(name)) != identity:
                    return False
                head = self._head(folder, name)
                with self._root.make(*layout.QUARANTINE) as quarantine:
                    # Directories that were moved here contain foreign files, and so stay for inspection.
                    if sum(found.is_dir(follow_symlinks=False) for found in quarantine.entries()) >= FILE_CAP:
                        return False
                    folder.move(name, quarantine, f"{now_ns:0{_INSTANT_DIGITS}d}-{name}")
                    self.trim(quarantine)
        except UNUSABLE:
            return False
        program, target = (head.program, head.target) if head is not None else (UNREADABLE, "")
        self._history.record(program, Event(now_ns, "quarantined", key.hex, target, why))
        return True

    def _head(self, folder: Folder, name: str) -> EntryHead | None:
        """The head, which names the history to write; it has no checksum, so only known programs count."""
        with suppress(OSError, EntryFormatError), open_trusted(folder, name) as (fd, status):
            with suppress(EntryFormatError):
                return read_description(fd, status.st_size).head
            head = read_head(fd, status.st_size)[1]
            return head if self._history.events(head.program) else None
        return None
