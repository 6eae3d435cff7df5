"""One cuda.core program cache as a ``gpucache.caches.interface.Cache``."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gpucache import payload as payloads
from gpucache.caches import files
from gpucache.caches.cuda_core import checks, contents, entries, explaining, layout
from gpucache.caches.cuda_core.entries import Seen
from gpucache.caches.files import Identity
from gpucache.caches.interface import Wanted
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Kept, Location, Reach

_LOOKED_AT = 1000


class CudaCoreCache:
    """The entries below one root. There is no lock: a reader that finds a file gone compiles anew."""

    name = layout.NAME

    def __init__(self, location: Location, clock: checks.Clock = time.time_ns) -> None:
        self._location = location
        self._root = Path(location.root)
        self._clock = clock
        self._shown: bool | None = None

    def location(self) -> Location:
        """Where it lives and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """Every file that cuda.core counts; raises CacheUnusableError where the root cannot be read."""
        return self._scan("")

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits."""
        return list(self._scan(prefix))

    def report(self, entry: CacheEntry) -> EntryReport:
        """Its key and what the payload is; raises FormatError where it does not read."""
        info = payloads.describe(self._read(entry))
        fields = (KeyField("key", entry.key), KeyField("inputs of the key", "not stored by cuda.core"))
        return EntryReport(entry, fields, info.pairs)

    def extract(self, entry: CacheEntry) -> bytes:
        """The binary; raises FormatError where it is not sound."""
        data = self._read(entry)
        problem = contents.tell(data, whole=True).problem
        if problem is not None:
            raise FormatError(f"{entry.path} is {problem[0]}: {problem[1]}")
        return data

    def check(self, entry: CacheEntry) -> Checked:
        """A file checked whole, leaving its last use alone."""
        seen = _seen(entry)
        try:
            with self._folder(seen) as folder:
                return checks.check(folder, entry, seen)
        except OSError as error:
            note = f"{entry.key[:12]} cannot be read ({error.strerror})"
            return Checked(entry.key, notes=(note,), counts=False)

    def leftovers(self) -> Iterator[Checked]:
        """Files of writers that died, what cuda.core did not put there, folders that others may write to."""
        return checks.leftovers(self._root, self._clock)

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - nothing records it
        """Remove a file if it is unchanged since the scan, as cuda.core's own eviction does."""
        seen = _seen(entry)
        if entry.stays:
            return Kept(entry.stays)
        try:
            with self._folder(seen) as folder:
                if Identity.of(folder.lstat(seen.name)) != seen.identity:
                    return Kept()
                folder.unlink(seen.name)
        except OSError as error:
            return Kept.by(error, self._root)
        return None

    def settle(self) -> Sequence[str]:
        """Nothing: empty folders stay, as a program that is about to write into one would fail."""
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Remove an entry that is wrong and one's own, so that it is built anew; or a dead writer's file."""
        if entry is None:
            return checked.mended() if self._remove_stale(Path(checked.entry)) else checked
        if not _seen(entry).owned or not any(finding.kind.wrong for finding in checked.findings):
            return checked
        return checked.mended() if self.remove(entry, "repair") is None else checked

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether it would answer keys; raises UsageError."""
        return explaining.explain(wanted, self.find, self.check)

    def _scan(self, prefix: str) -> Iterator[CacheEntry]:
        if checks.is_foreign(self._root):
            return
        try:
            for entry in entries.scan(self._root, prefix):
                own = entry.stays or _seen(entry).telling or self._is_shown()
                yield entry if own else replace(entry, stays=entries.UNPROVEN)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # a folder of entries that is a link, or may not be read, is told by leftovers
        except OSError as error:
            if os.path.islink(self._root / layout.ENTRIES):  # noqa: PTH114 - it raises nothing
                return
            raise CacheUnusableError(
                f"{self._root} cannot be read ({error.strerror}); mend its rights or name another folder"
            ) from error

    def _is_shown(self) -> bool:
        """Whether its place or an entry shows whose it is; others, too, name files by a SHA-256."""
        if self._shown is None:
            looked = islice(entries.scan(self._root), _LOOKED_AT)
            default = self._root.parts[-len(layout.BELOW) :] == layout.BELOW
            self._shown = default or any(one.size_bytes and _seen(one).telling for one in looked)
        return self._shown

    def _folder(self, seen: Seen) -> Folder:
        return files.open_folder(self._root, layout.ENTRIES, seen.group)

    def _read(self, entry: CacheEntry) -> bytes:
        seen = _seen(entry)
        try:
            with self._folder(seen) as folder:
                return files.read(folder, seen.name, checks.LARGEST_BYTES)
        except OSError as error:
            raise FormatError(f"{entry.path} cannot be read ({error.strerror})") from error

    def _remove_stale(self, path: Path) -> bool:
        if path.parent != self._root / layout.TMP:
            return False
        with suppress(OSError), files.open_folder(self._root, layout.TMP) as folder:
            if checks.is_stale(folder, path.name, folder.lstat(path.name), self._clock()):
                folder.unlink(path.name)
                return True
        return False


def _seen(entry: CacheEntry) -> Seen:
    if not isinstance(entry.handle, Seen):
        raise TypeError("an entry of another cache")
    return entry.handle
