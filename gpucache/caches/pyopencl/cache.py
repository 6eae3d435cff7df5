"""One Python's folder, or those of all Pythons, as a ``gpucache.caches.interface.Cache``."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpucache import payload
from gpucache.caches import files
from gpucache.caches.interface import Wanted
from gpucache.caches.pyopencl import asking, checks, entries, explaining, headers, locking, names, removing
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Kept, Location, Reach
from gpucache.units import format_size


class PyOpenclCache:
    """A folder with entries, or one with such folders by the versions of Python."""

    name = names.NAME

    def __init__(self, location: Location, clock: locking.Clock = time.time_ns) -> None:
        self._location = location
        self._root = Path(location.root)
        self._clock = clock

    def location(self) -> Location:
        """Where it lives and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """Every entry, one by one; raises CacheUnusableError where a folder cannot be read."""
        for folder in self._folders():
            for key in list(entries.keys(folder)):
                entry = entries.look_at(folder, key)
                if entry is not None:
                    yield entry

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits."""
        found = (
            entries.look_at(folder, key)
            for folder in self._folders()
            for key in list(entries.keys(folder))
            if key.startswith(prefix)
        )
        return [entry for entry in found if entry is not None]

    def report(self, entry: CacheEntry) -> EntryReport:
        """Source, headers with what became of them, binary and log; raises FormatError."""
        with _opened(entry) as inner:
            info = entries.info_of(inner)
            data = entries.read_binary(inner)
            source = entries.read_source(inner)
        compared = headers.compare_all(info.dependencies)
        options = entries.logged_options(info.log)
        return EntryReport(
            entry=entry,
            key_fields=(
                KeyField("source", digest(source)),
                KeyField("size of the source", format_size(len(source))),
                *([KeyField("options", options)] if options is not None else []),
                *(KeyField(f"header {one.path}", _header(one)) for one in compared),
            ),
            payload=(*payload.describe(data).pairs, ("SHA-256", digest(data))),
            build_log=info.log,
        )

    def extract(self, entry: CacheEntry) -> bytes:
        """The binary; raises FormatError where it is not sound."""
        with _opened(entry) as inner:
            data = entries.read_binary(inner)
        problem = payload.describe(data).problem
        if problem:
            raise FormatError(f"the binary of {entry.key[:12]} is broken: {problem}; run 'gpucache verify'")
        return data

    def check(self, entry: CacheEntry) -> Checked:
        """All three files, whom they belong to, and the headers; leaves its last use alone."""
        seen = removing.seen_of(entry)
        try:
            with names.open_cache(self._root, seen.root) as root:
                return checks.check(root, entry, seen, self._clock)
        except OSError as error:
            note = f"{entry.key[:12]} cannot be read ({error.strerror})"
            return Checked(entry.key, notes=(note,), counts=False)

    def leftovers(self) -> Iterator[Checked]:
        """A lock left behind, folders of other Pythons, and what lies among the entries."""
        if names.is_foreign(self._root):
            yield checks.foreign(self._root)
            return
        yield from checks.beside(self._root)
        for path in self._folder_paths():
            yield from self._unread(path)
        for folder in self._folders():
            python = names.python_of(folder.path.name)
            with suppress(OSError):
                yield from checks.leftovers(
                    folder, clock=self._clock, python=python, own_python=names.own_python()
                )

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - nothing records it
        """Remove an entry under PyOpenCL's lock if unchanged since the scan."""
        if entry.stays:
            return Kept(entry.stays)
        return removing.remove(self._root, removing.seen_of(entry), self._clock)

    def settle(self) -> Sequence[str]:
        """Remove the folders of other Pythons that are empty now; PyOpenCL keeps no totals."""
        folders = list(self._folder_paths())
        return tuple(
            f"{folder} is empty and was removed" for folder in folders if removing.remove_empty(folder)
        )

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Remove an entry with broken parts, which PyOpenCL builds again, and a lock left behind."""
        if entry is None:
            return removing.repair_loose(self._root, checked, self._clock)
        if entry.stays:
            return checked
        return removing.repair(self._root, checked, removing.seen_of(entry), self._clock)

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether PyOpenCL would serve a build; raises UsageError."""
        question = asking.read_question(wanted, os.environ, _here())
        return explaining.explain(question, self._location, list(self._folder_paths()), self._clock)

    def _unread(self, path: Path) -> Iterator[Checked]:
        """A folder that may not be read, in the words of its location where those tell it."""
        try:
            files.open_folder(path).close()
        except PermissionError as error:
            told = (one for one in self._location.problems if "may not be read" in one or "looked at" in one)
            why = f"{path} cannot be read ({error.strerror}), so what it holds is not known; {names.MOVE}"
            yield checks.unread(path, next(told, why))
        except OSError:
            return

    def _folders(self) -> Iterator[Folder]:
        """The folders with entries, open one at a time; one that is missing is passed over."""
        for path in self._folder_paths():
            try:
                with names.open_cache(self._root, path) as folder:
                    yield folder
            except (FileNotFoundError, PermissionError):  # the second is told as a problem and a leftover
                continue
            except OSError as error:
                raise CacheUnusableError(
                    f"{path} cannot be read ({error.strerror}); mend its rights or {names.MOVE}"
                ) from error

    def _folder_paths(self) -> Iterator[Path]:
        return names.cache_folders(self._root)


def _here() -> Path:
    """The current directory; a relative one where it is gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path(os.curdir)


@contextmanager
def _opened(entry: CacheEntry) -> Iterator[Folder]:
    """The folder of an entry; every failure to read it is a FormatError."""
    seen = removing.seen_of(entry)
    try:
        with files.open_folder(seen.root, seen.key) as inner:
            yield inner
    except FileNotFoundError as error:
        missing = Path(error.filename or entry.path).name
        raise FormatError(
            f"{entry.path} cannot be read: {missing} is missing; run 'gpucache verify'"
        ) from error
    except OSError as error:
        raise FormatError(f"{entry.path} cannot be read: {error.strerror}") from error


def _header(one: headers.Compared) -> str:
    return f"{one.dependency.md5}, {one.state.value}"
