"""A hit in a cache's directory: an entry opened without a lock, with every byte checked.

A program loads no more of a store as long as everything hits. Must not know the content of a payload.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.errors import CacheUnusableError
from gpucache.host import os_errors
from gpucache.model import CacheKey, FindingKind
from gpucache.store import layout
from gpucache.store.format import EntryFormatError, read_sound
from gpucache.store.interface import Absent, Damaged, Found
from gpucache.store.root_folder import UNUSABLE, RootFolder, note_use
from gpucache.store.trust import UntrustedFileError, open_trusted

if TYPE_CHECKING:
    from gpucache.store.bounded_log import Journal
    from gpucache.store.records import Memos


class EntryReader(ABC):
    """The part of a ``DirectoryStore`` that a hit needs."""

    def __init__(self, root: Path, *, writable: bool, shared: bool = False) -> None:
        self._root = RootFolder(root, shared=shared, writable=writable)
        self._writable = writable

    @property
    def root(self) -> Path:
        return self._root.path

    @property
    def writable(self) -> bool:
        """Whether publishing, removing and recording are allowed."""
        return self._writable

    def get(self, key: CacheKey, *, use: bool = True) -> Found | Absent | Damaged:
        """The entry of a key, with every byte verified; a damaged one is moved to quarantine.

        An entry of a newer format counts as absent, not as damaged. Unless this is a ``use`` of the entry,
        its last use stays. Raises nothing.
        """
        try:
            return self._get(key, use=use and self._writable)
        except FileNotFoundError:
            return Absent()
        except CacheUnusableError as error:
            return Absent(str(error))
        except UntrustedFileError as error:
            return Damaged(FindingKind.UNTRUSTED, str(error.strerror), quarantined=False)
        except (OSError, MemoryError) as error:
            return Absent(unreadable(error))

    def recall(self, name: str) -> bytes | None:
        """The data kept under a name; None if it is missing or damaged."""
        return self.memos.recall(name, use=self._writable)

    def journal(self, record: Mapping[str, object]) -> None:
        """Append one line to the journal; losing it is not an error."""
        self._journal.append(record)

    @contextmanager
    def single_flight(self, key: CacheKey, timeout_s: float) -> Iterator[bool]:
        """Take this key's lock while compiling; yields False if it was not available in time."""
        from gpucache.store import lock  # a hit needs no lock

        try:
            folder = self._root.make(*layout.LOCKS)
        except UNUSABLE:
            yield False
            return
        with folder, lock.single_flight(folder, layout.lock_name(key), timeout_s) as holding:
            yield holding

    @cached_property
    def _journal(self) -> "Journal":
        from gpucache.store.bounded_log import Journal  # a process counts its hits when it ends

        return Journal(self._root)

    @cached_property
    def memos(self) -> "Memos":
        from gpucache.store.records import Memos  # not every program has memos

        return Memos(self._root)

    def _get(self, key: CacheKey, *, use: bool) -> Found | Absent | Damaged:
        place, name = layout.entry_folder(key), layout.entry_name(key)
        with self._root.open() as root, open_trusted(root, *place, name) as (fd, status):
            try:
                description, payload = read_sound(fd, status.st_size, key)
            except EntryFormatError as error:
                if error.damage is FindingKind.UNSUPPORTED:
                    return Absent(f"the entry is not for this version: {error}")
                why = f"{error.damage}: {error}"
                moved = self._writable and self._take(place, name, status, key, why)
                return Damaged(error.damage, error.detail, moved)
            if use:
                note_use(fd, status, description.head.created_ns)
        return Found(key, description.head, payload, self.root)

    @abstractmethod
    def _take(
        self, place: tuple[str, ...], name: str, status: os.stat_result, key: CacheKey, why: str
    ) -> bool:
        """Move a file of a directory to ``quarantine/`` if it is still the one that was read."""


def unreadable(error: OSError | MemoryError) -> str:
    """Why an entry could not be read, with the remedy."""
    if isinstance(error, MemoryError):
        return "the entry could not be read: not enough memory"
    return f"the entry could not be read: {os_errors.reason(error)}; {os_errors.remedy(error)}"
