"""Owners' files next to their entries that a removal must respect: a lock, and the sum of all sizes.

Owns the waiting for such a lock and the correction of such a sum. A format whose owner has one names it and
derives from its class. Must not know any system.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import ClassVar

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.files import Files, open_folder, overwrite, read_part, take_lock
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.portable import PortableEntry
from gpucache.errors import FormatError

_PATIENCE_S = 10
_SUM_BYTES = 8


class LockedFormat(FilesFormat):
    """A format whose owner's programs lock a file, if one of them has created it."""

    lock_name: ClassVar[str]
    lock_is_record: ClassVar[bool] = False
    """Whether they take it with fcntl(2) instead of flock(2)."""
    _was_held = False

    def lock_place(self, item: Files) -> tuple[str, ...]:  # noqa: ARG002 - most have one for all
        """The names of the directories from the root to the directory of an entry's lock."""
        return ()

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """Take the lock if it exists; only the first entry waits long, as a thousand would wait for hours."""

        def take(fd: int) -> str:
            if take_lock(fd, 0 if self._was_held else _PATIENCE_S, record=self.lock_is_record):
                return ""
            self._was_held = True
            return f"{self.owner}'s lock is held; try again once the program that has it is done"

        flags = os.O_RDWR if self.lock_is_record else 0
        return self.holding(*self.lock_place(item), self.lock_name, take=take, flags=flags)


class SummedFormat(FilesFormat):
    """A file begins with the sum of all sizes as u64, by which the owner evicts."""

    sum_name: ClassVar[str]
    sum_is_alone: ClassVar[bool]
    """Whether the file contains nothing else."""
    without_sum: ClassVar[str]
    """The owner's reaction to an unreadable sum; a clause."""
    _uncorrected = ""

    def summed(self, item: Files) -> int:
        """The size of an entry in the sum: its size on disk."""
        return item.size_bytes

    def whole(self) -> Iterator[Checked]:
        """An unreadable sum."""
        try:
            with open_folder(self.root) as folder:
                size = len(read_part(folder, self.sum_name, 0, _SUM_BYTES + 1))
        except FileNotFoundError:
            return
        except FormatError as error:
            if (self.root / self.sum_name).is_dir():  # reported with all other files that are not entries
                return
            why = str(error)
        else:
            if size == _SUM_BYTES or (size > _SUM_BYTES and not self.sum_is_alone):
                return
            why = f"it has not the {_SUM_BYTES} bytes of one"
        detail = f"it has the sum of all sizes and cannot be parsed ({why}), so {self.without_sum}"
        yield self.told(self.root / self.sum_name, Problem(FindingKind.CORRUPT, detail))

    def remove(self, item: Files) -> Kept | None:
        """Remove the entry, and subtract its size from the sum."""
        kept = super().remove(item)
        if kept is None:
            self._correct(-self.summed(item))
        return kept

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """The entry, and then its size in the sum."""
        done = move()
        if done:
            for item in [one for one in self.items(entry.key) if one.key == entry.key]:
                self._correct(self.summed(item))
        return done

    def _correct(self, change: int) -> None:
        """Add a change to the sum, if a sum exists."""
        try:
            with suppress(FileNotFoundError), open_folder(self.root) as folder:
                old = read_part(folder, self.sum_name, 0, _SUM_BYTES)
                if len(old) == _SUM_BYTES:
                    new = max(0, int.from_bytes(old, sys.byteorder) + change)
                    overwrite(folder, self.sum_name, new.to_bytes(_SUM_BYTES, sys.byteorder), whole=False)
        except FormatError as error:
            self._uncorrected = f"{self.root}: {error}: the sum of sizes in it is out of date"

    def finish_removals(self) -> Sequence[str]:
        """The report that the sum could not be corrected."""
        return tuple(filter(None, (*super().finish_removals(), self._uncorrected)))
