"""One cache file, or all of a folder, as a ``gpucache.caches.interface.Cache``."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.futhark import checks, entries, explaining, header
from gpucache.caches.futhark.asking import read_question
from gpucache.caches.futhark.entries import Seen
from gpucache.caches.futhark.keys import COMPARED_BYTES
from gpucache.caches.futhark.names import is_partial
from gpucache.caches.interface import Wanted
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Finding, FindingKind, Kept, Location, Reach
from gpucache.payload import describe

_UNREAD = "it is a link, no file, or may not be read, so it is left alone; keep it elsewhere"
_SHORT = "it is too short to tell whether it is Futhark's, so it is left alone; keep it elsewhere"
_FOREIGN = "it does not begin as Futhark's files do, so it is left alone; keep it elsewhere"
_BAD_PAYLOAD = (FindingKind.CORRUPT, FindingKind.MISLABELLED)
_MENDED = (FindingKind.TRUNCATED, *_BAD_PAYLOAD)
_CHANGED = "it changed since the scan, so it is left alone"


class FutharkCache:
    """A location that is a file: that file is the one entry. A folder: every cache file directly in it."""

    name = entries.NAME

    def __init__(self, location: Location, clock: checks.Clock = time.time_ns) -> None:
        self._location = location
        self._root = Path(location.root)
        self._clock = clock

    def location(self) -> Location:
        """Where it lives and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """Every cache file, one by one; raises CacheUnusableError where the folder cannot be read."""
        try:
            with files.open_folder(self._folder) as folder:
                for name in self._names(folder):
                    entry = entries.look_at(folder, name)
                    if entry is not None:
                        yield entry
        except (FileNotFoundError, PermissionError):  # the second is told as a problem and a leftover
            return
        except OSError as error:
            raise self._unusable(error) from error

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits."""
        return [entry for entry in self.scan() if entry.key.startswith(prefix)]

    def report(self, entry: CacheEntry) -> EntryReport:
        """The header's fields and what the payload is; raises FormatError where the header does not read."""
        data = self._read(entry)
        head = header.read_header(data)
        if head is None:
            raise FormatError(f"{entry.path} cannot be read: {entry.damage}; run 'gpucache verify'")
        fields = (
            KeyField("magic", header.MAGIC.decode().replace("\0", "\\0")),
            KeyField("declared size in bytes", str(head.declared_bytes)),
            KeyField("real size in bytes", str(len(data))),
            KeyField("key", head.key.hex()),
            KeyField("all of the key that Futhark compares", head.key[:COMPARED_BYTES].hex()),
        )
        return EntryReport(entry, fields, describe(data[header.HEADER_BYTES :]).pairs)

    def extract(self, entry: CacheEntry) -> bytes:
        """The payload; raises FormatError where the header or the payload is not sound."""
        data = self._read(entry)
        damage = header.damage(data, len(data))
        if damage is not None:
            raise FormatError(f"{entry.path} is {damage.kind}: {damage.detail}")
        payload = data[header.HEADER_BYTES :]
        problem = describe(payload).problem
        if problem:
            raise FormatError(f"the payload of {entry.path} is broken: {problem}; run 'gpucache verify'")
        return payload

    def check(self, entry: CacheEntry) -> Checked:
        """A file checked whole, leaving its last use alone."""
        seen = _seen(entry)
        try:
            with files.open_folder(seen.folder) as folder:
                return checks.check(folder, entry, seen)
        except OSError as error:
            note = f"{entry.path} cannot be read ({error.strerror})"
            return Checked(entry.key, notes=(note,), counts=False)

    def leftovers(self) -> Iterator[Checked]:
        """Files that our own writer did not finish."""
        try:
            with files.open_folder(self._folder) as folder, suppress(OSError):
                yield from checks.leftovers(folder, self._clock)
        except PermissionError as error:
            why = f"{self._folder} cannot be read ({error.strerror}), so what it holds is not known"
            told = (one for one in self._location.problems if "may not be read" in one or "looked at" in one)
            finding = Finding(entries.NAME, self._root.name, FindingKind.UNTRUSTED, next(told, why))
            yield Checked(str(self._root), (finding,), counts=False)
        except OSError:
            return

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - nothing records it
        """Remove a file if it is Futhark's and unchanged since the scan."""
        seen = _seen(entry)
        if not seen.ours:
            return Kept(_foreign(seen))
        try:
            with files.open_folder(seen.folder) as folder:
                if not checks.unchanged(folder, seen):
                    return Kept()
                folder.unlink(seen.name)
        except OSError as error:
            return Kept.by(error, seen.folder)
        return None

    def settle(self) -> Sequence[str]:
        """Nothing: a removal leaves nothing behind."""
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Remove a truncated, corrupt or mislabelled file, which the next start makes anew; or a leftover."""
        if entry is None:
            return checked.mended() if self._remove_partial(Path(checked.entry)) else checked
        if not any(finding.kind in _MENDED for finding in checked.findings):
            return checked
        kept = self.remove(entry, "repair")
        if kept is None:
            return checked.mended()
        return checks.unrepaired(checked, _MENDED, _CHANGED if kept == Kept() else kept.reason)

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether Futhark would restore each file for a program; raises UsageError."""
        question = read_question(wanted)
        return explaining.explain(question, [self._candidate(entry) for entry in self.scan()])

    @property
    def _folder(self) -> Path:
        return entries.folder_of(self._root)

    def _names(self, folder: Folder) -> Iterator[str]:
        if folder.path == self._root:
            yield from entries.cache_files(folder)
        else:
            yield self._root.name

    def _candidate(self, entry: CacheEntry) -> explaining.Candidate:
        def problem() -> str:
            found = (finding for finding in self.check(entry).findings if finding.kind in _BAD_PAYLOAD)
            return next((finding.detail for finding in found), "")

        seen = _seen(entry)
        return explaining.Candidate(
            name=seen.name,
            key=seen.key,
            entry=entry.key,
            backend=entry.target.partition(":")[0],
            damage=entry.damage.detail if entry.damage else "",
            readable=seen.readable,
            payload_problem=problem,
        )

    def _read(self, entry: CacheEntry) -> bytes:
        seen = _seen(entry)
        try:
            with files.open_folder(seen.folder) as folder:
                return files.read(folder, seen.name, checks.LARGEST_BYTES)
        except OSError as error:
            raise FormatError(f"{entry.path} cannot be read ({error.strerror})") from error

    def _remove_partial(self, path: Path) -> bool:
        if path.parent != self._folder or not is_partial(path.name):
            return False
        with suppress(OSError), files.open_folder(path.parent) as folder:
            age_ns = self._clock() - folder.lstat(path.name).st_ctime_ns
            if age_ns > checks.MINIMUM_AGE_NS:
                folder.unlink(path.name)
                return True
        return False

    def _unusable(self, error: OSError) -> CacheUnusableError:
        return CacheUnusableError(
            f"{self._folder} cannot be read ({error.strerror}); mend its rights or name another place"
        )


def _foreign(seen: Seen) -> str:
    """Why a file is not removed that is not known to be Futhark's."""
    if not seen.readable:
        return _UNREAD
    return _SHORT if seen.identity.size_bytes < len(header.MAGIC) else _FOREIGN


def _seen(entry: CacheEntry) -> Seen:
    if not isinstance(entry.handle, Seen):
        raise TypeError("an entry of another cache")
    return entry.handle
