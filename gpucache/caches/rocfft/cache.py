"""One of rocFFT's databases as a ``gpucache.caches.interface.Cache``.

Owns when the file is opened anew and how rows become entries. rocFFT writes the time of a store and never
the time of a use: an entry's last use is the moment it was stored, and the least recently used is simply
the oldest. A timestamp of 0, which an export writes, says nothing: such a row is as old as its file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache.caches.interface import Wanted
from gpucache.caches.rocfft import mending, names, reaching, rescuing
from gpucache.caches.rocfft.anatomy import UnreadableError, examine, stamp
from gpucache.caches.rocfft.checks import Trouble, file_troubles, row_notes, row_trouble, scanned_trouble
from gpucache.caches.rocfft.connecting import Reader, open_reader, told
from gpucache.caches.rocfft.places import SYSTEM, real_path
from gpucache.caches.rocfft.rows import Row, look_again, read_code, read_prefix, read_rows, text
from gpucache.caches.rocfft.schema import Table, read_shape
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.model import KeyField
from gpucache.outcomes import (
    CacheEntry,
    Checked,
    EntryReport,
    Finding,
    FindingKind,
    Kept,
    Location,
    Problem,
    Reach,
    Verdict,
)
from gpucache.payload import describe

NAME = "rocfft"
_BELONGS = (
    "the system database belongs to the installation; change it with the package that brought it, or name "
    "another in ROCFFT_RTC_SYS_CACHE_PATH"
)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A database open for reading; ``ours`` tells whether it has rocFFT's table."""

    reader: Reader
    ours: bool


class RocfftCache:
    """One database file."""

    name = NAME

    def __init__(self, location: Location) -> None:
        self._location = location
        self._path = real_path(Path(location.root))
        self._opened: _Opened | None = None

    def location(self) -> Location:
        """Where it lies and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """Every row up to the first that cannot be read; raises CacheUnusableError for a locked file."""
        try:
            opened = self._reading()
            if opened is not None:
                with told(self._path):
                    yield from (
                        self._entry(opened.reader, row) for row in read_rows(opened.reader.connection)
                    )
        except (FormatError, UnreadableError):
            return  # what could not be read is a finding of the whole file

    def find(self, prefix: str) -> list[CacheEntry]:
        """Rows whose key begins with some hex digits."""
        return [entry for entry in self.scan() if entry.key.startswith(prefix)]

    def report(self, entry: CacheEntry) -> EntryReport:
        """The key, what the kernel's name says, and what its code is; raises FormatError."""
        fields = (KeyField(label, value) for label, value in _row_of(entry).fields)
        named = (KeyField(label, value) for label, value in names.decode(entry.program))
        return EntryReport(
            entry=entry, key_fields=(*fields, *named), payload=describe(self._code(entry)).pairs
        )

    def extract(self, entry: CacheEntry) -> bytes:
        """The code object; raises FormatError for a row that is not sound."""
        wrong = next((finding for finding in self.check(entry).findings if finding.kind.wrong), None)
        if wrong is not None:
            raise FormatError(f"the entry {entry.key[:12]} is {wrong.kind}: {wrong.detail}")
        return self._code(entry)

    def check(self, entry: CacheEntry) -> Checked:
        """The row's values, its code, and whether that is for the architecture of the row."""
        try:
            with self._row(entry) as (reader, row):
                if row is None:
                    return Checked(entry.key, notes=("it changed while it was being checked",), counts=False)
                found = row_trouble(reader.connection, row, reader.size_bytes)
        except FormatError as error:
            found = (FindingKind.CORRUPT, str(error))
        findings = (Finding(NAME, entry.key, *found, entry.program, entry.target),) if found else ()
        return Checked(entry.key, findings, tuple(row_notes(_row_of(entry))))

    def leftovers(self) -> Iterator[Checked]:
        """What is wrong with the file and beside it; raises CacheUnusableError for a locked file."""
        for trouble in self._troubles():
            yield Checked(trouble.place, (_finding(trouble),), counts=False)

    def _troubles(self) -> Iterator[Trouble]:
        try:
            yield from file_troubles(self._path)
        except UnreadableError as error:
            told = (one for one in self._location.problems if " may not be " in one)  # in the same words
            yield Trouble(FindingKind.UNTRUSTED, str(self._path), next(told, str(error)))

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - rocFFT keeps no history
        """Delete the row if it is as it was at the scan; never from the system's database."""
        return self.remove_together([entry])[0]

    def remove_together(self, entries: Sequence[CacheEntry]) -> Sequence[Kept | None]:
        """The same of several rows, in one transaction."""
        if self._location.role == SYSTEM:
            return [Kept(_BELONGS)] * len(entries)
        return mending.delete(self._path, list(map(_row_of, entries)))

    def settle(self) -> Sequence[str]:
        """Give pages back where a fifth of them is free."""
        if self._location.role == SYSTEM:
            return ()
        self._opened = None
        return mending.give_back(self._path)

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Delete a wrong row; move a damaged file aside; leave write-ahead mode."""
        if self._location.role == SYSTEM:
            return checked
        if entry is None:
            return self._mended(checked)
        wrong = any(finding.kind.wrong for finding in checked.findings)
        if not wrong or self.remove(entry, "verify --repair") is not None:
            return checked
        return _marked(checked, [finding for finding in checked.findings if finding.kind.wrong])

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether lookups would be answered; raises UsageError, CacheUnusableError for a locked file."""
        for one in reaching.asked(wanted):
            yield self._reach(one)

    def _reach(self, one: reaching.Asked) -> Reach:
        if not self._location.enabled:
            detail = next(iter(self._location.problems), "rocFFT is told not to read it")
            return Reach(NAME, str(one), Verdict.NOT_CONSULTED, detail)
        try:
            opened = self._reading()
            if opened is None:
                raise FormatError(self._silent())
            with told(self._path):
                reader = opened.reader
                rows = read_rows(reader.connection)
                return reaching.reach(
                    NAME, one, rows, lambda row: row_trouble(reader.connection, row, reader.size_bytes)
                )
        except UnreadableError as error:
            return Reach(NAME, str(one), Verdict.NOT_CONSULTED, str(error))
        except _EmptyError as empty:
            return Reach(NAME, str(one), Verdict.NEVER_BUILT, str(empty))
        except FormatError as error:
            return Reach(NAME, str(one), Verdict.CORRUPT, f"{error}; run 'gpucache verify --repair'")

    def _silent(self) -> str:
        """Why a file that reads has no rows; raises _EmptyError where that is nobody's fault."""
        wrong = next((one for one in self._troubles() if one.kind.wrong), None)
        if wrong is None:
            raise _EmptyError(f"{self._path} holds no kernel yet, so rocFFT compiles at the first run")
        return f"{self._path}: {wrong.detail}"

    def _reading(self) -> _Opened | None:
        """The database with rocFFT's table as it is now; None where there is none; raises FormatError."""
        anatomy = examine(self._path)
        if anatomy is None or not anatomy.size_bytes:
            self._opened = None
            return None
        if not anatomy.database:
            raise FormatError(f"{self._path} is no SQLite database")
        if self._opened is None or self._opened.reader.stamp != stamp(self._path):
            reader = open_reader(self._path, anatomy)
            with told(self._path):
                self._opened = _Opened(reader, read_shape(reader.connection).table is Table.OURS)
        return self._opened if self._opened.ours else None

    @contextmanager
    def _row(self, entry: CacheEntry) -> "Iterator[tuple[Reader, Row | None]]":
        """An entry's row as it is now, with what reads it; raises FormatError."""
        opened = self._reading()
        if opened is None:
            raise FormatError(f"the entry {entry.key[:12]} is gone; look at the cache again")
        with told(self._path):
            yield opened.reader, look_again(opened.reader.connection, _row_of(entry))

    def _code(self, entry: CacheEntry) -> bytes:
        with self._row(entry) as (reader, row):
            if row is None:
                raise FormatError(f"the entry {entry.key[:12]} changed; look at the cache again")
            return read_code(reader.connection, row, reader.size_bytes)

    def _entry(self, reader: Reader, row: Row) -> CacheEntry:
        prefix = read_prefix(reader.connection, row)
        trouble = scanned_trouble(row, prefix)
        seen = reader.stamp[0]
        stored_ns = row.created_ns or (seen.mtime_ns if seen else 0)
        return CacheEntry(
            cache=NAME,
            key=row.key,
            path=str(self._path),
            size_bytes=row.size_bytes,
            created_ns=stored_ns,
            last_used_ns=stored_ns,
            program=text(row.kernel_name),
            target=f"hip:{text(row.arch)}",
            artifact_kind=describe(prefix).kind.value,
            variant=row.variant,
            fields=row.compared,
            damage=Problem(*trouble) if trouble else None,
            stays=_BELONGS if self._location.role == SYSTEM else "",
            handle=row,
        )

    def _mended(self, checked: Checked) -> Checked:
        """What is wrong with the file taken out of the way, and then looked at anew."""
        self._opened = None
        try:
            done = {one: self._mend(one) for one in checked.findings if one in self._findings()}
            left = self._findings()
        except CacheUnusableError:
            return checked
        told = [
            one if one in left else replace(one, repaired=True, detail=f"{one.detail}{done.get(one, '')}")
            for one in checked.findings
        ]
        return replace(checked, findings=tuple(told))

    def _mend(self, finding: Finding) -> str:
        """Take it out of the way; what became of the file, as a clause."""
        if finding.entry == self._path.name and finding.kind in (FindingKind.CORRUPT, FindingKind.TRUNCATED):
            return "" if mending.reindex(self._path) else rescuing.rescue(self._path)
        if finding.kind in (FindingKind.LEFTOVER, FindingKind.UNSUPPORTED):
            mending.close_log(self._path)
        return ""

    def _findings(self) -> list[Finding]:
        return [_finding(trouble) for trouble in self._troubles()]


class _EmptyError(Exception):
    """There is no row, and nothing is wrong."""


def _row_of(entry: CacheEntry) -> Row:
    if not isinstance(entry.handle, Row):
        raise TypeError("an entry of another cache")
    return entry.handle


def _finding(trouble: Trouble) -> Finding:
    return Finding(NAME, Path(trouble.place).name, trouble.kind, trouble.detail)


def _marked(checked: Checked, gone: Sequence[Finding]) -> Checked:
    marked = tuple(replace(one, repaired=True) if one in gone else one for one in checked.findings)
    return replace(checked, findings=marked)
