"""rocFFT's cache of kernels compiled at run time: SQLite files with one table, a row for each kernel.

Source: rocFFT, ``rtc_cache.cpp``. ``schema`` owns the table, ``rows`` what is read of it, ``checks`` what can
be wrong, ``mending`` every write to it, ``explaining`` explanations, ``transfer`` and ``images`` databases
made of others, ``locations`` where the files lie; the file around the table is ``sqlite_file``'s beside this
folder, and how it is opened without leaving a trace ``databases``'. A foreign file is data: no view, trigger
or virtual table in it is ever used, and its kernels are never loaded.

rocFFT writes the time of a store and never the time of a use: an entry's last use is the moment it was
stored, and the least recently used is simply the oldest. A timestamp of 0, which an export writes, says
nothing: such a row is as old as its file.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked, Finding
from gpucache.answers.why import Reach
from gpucache.caches.databases import Reader, open_reader, peek, told
from gpucache.caches.format import Clock, Format, Item, Look
from gpucache.caches.interface import Wanted
from gpucache.caches.rocfft import explaining, locations, mending, names, rescuing
from gpucache.caches.rocfft.checks import (
    Trouble,
    file_troubles,
    row_notes,
    row_trouble,
    scanned_trouble,
)
from gpucache.caches.rocfft.locations import SYSTEM, RocfftPlaces
from gpucache.caches.rocfft.rows import Row, look_again, read_code, read_prefix, read_rows, text
from gpucache.caches.rocfft.schema import Table, read_shape
from gpucache.caches.sqlite_file import UnreadableError, examine, sides, stamp
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError
from gpucache.model import KeyField
from gpucache.payload import describe

_TABLES = (Table.OURS, Table.OLD, Table.ODD)
_BELONGS = (
    "the system database belongs to the installation; change it with the package that brought it, or name "
    "another in ROCFFT_RTC_SYS_CACHE_PATH"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of a database, as an ``Item`` of ``gpucache.caches.format``."""

    row: Row
    path: Path
    written_ns: int
    owned: bool = True
    """Rows have no owner; whoever may write the file may mend them."""

    @property
    def key(self) -> str:
        """The row's."""
        return self.row.key

    @property
    def size_bytes(self) -> int:
        """What rocFFT's own trimming counts of a row."""
        return self.row.size_bytes


@dataclass(frozen=True, slots=True)
class _Opened:
    """A database open for reading; ``ours`` tells whether it has rocFFT's table."""

    reader: Reader
    ours: bool


class Rocfft(RocfftPlaces, Format[Stored]):
    """One database file of rocFFT."""

    item = Stored
    wanted = explaining.FIELDS

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self.root = locations.real_path(self.root)
        self._opened: _Opened | None = None

    @classmethod
    def opened(cls, location: Location) -> Location:
        """The system's database is nobody's to write."""
        found = location.problems or locations.place_problems(Path(location.root), location.role)
        return location._replace(problems=found)

    @classmethod
    def require(cls, root: Path) -> None:
        """Nothing: what is no database is a finding."""

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a file is a database with rocFFT's table, or is called like one."""
        try:
            return path.is_file() and (fnmatch(path.name, mending.NAMED) or _has_table(path.resolve()))
        except (GpucacheError, RuntimeError):
            return False

    def items(self, prefix: str) -> Iterator[Stored]:
        """Every row up to the first that cannot be read; raises CacheUnusableError for a locked file."""
        try:
            opened = self._reading()
            if opened is None:
                return
            seen = opened.reader.stamp[0]
            changed_ns = seen.mtime_ns if seen else 0
            with told(self.root):
                for row in read_rows(opened.reader.connection):
                    if row.key.startswith(prefix):
                        yield Stored(row, self.root, row.created_ns or changed_ns)
        except (FormatError, UnreadableError):
            return  # what could not be read is a finding of the whole file

    def look(self, item: Stored) -> Look:
        """Its key, and what the beginning of its code says."""
        row, opened = item.row, self._opened
        assert opened is not None
        with told(self.root):
            prefix = read_prefix(opened.reader.connection, row)
        trouble = scanned_trouble(row, prefix)
        return Look(
            program=text(row.kernel_name),
            target=f"hip:{text(row.arch)}",
            kind=describe(prefix).kind.value,
            variant=row.variant,
            fields=row.compared,
            problem=trouble,
            unique=False,
        )

    def stays(self, item: Stored) -> str:  # noqa: ARG002 - it holds of all of a database
        """It belongs to the installation."""
        return _BELONGS if self.location.role == SYSTEM else ""

    def check(self, item: Stored) -> Iterator[Problem]:
        """The row's values, its code, and whether that is for the architecture of the row."""
        try:
            with self._row(item) as (reader, row):
                if row is None:
                    yield Problem(None, "it changed since the scan")
                elif (found := row_trouble(reader.connection, row, reader.size_bytes)) is not None:
                    yield found
        except FormatError as error:
            yield Problem(FindingKind.CORRUPT, str(error))

    def notes(self, item: Stored) -> Iterator[str]:
        """What is odd about its times."""
        return row_notes(item.row)

    def payload(self, item: Stored) -> bytes:
        """The code object."""
        with self._row(item) as (reader, row):
            if row is None:
                raise FormatError(f"the entry {item.key[:12]} changed; look at the cache again")
            return read_code(reader.connection, row, reader.size_bytes)

    def report(self, item: Stored, entry: CacheEntry) -> EntryReport:
        """The key, what the kernel's name says, and what its code is."""
        fields = (KeyField(label, value) for label, value in item.row.fields)
        named = (KeyField(label, value) for label, value in names.decode(entry.program))
        return EntryReport(entry, (*fields, *named), describe(self.payload(item)).pairs)

    def unchanged(self, item: Stored) -> bool:
        """The row is there with the values that the scan saw."""
        try:
            with self._row(item) as (_, row):
                return row is not None
        except FormatError:  # what is wrong with the file is told of it
            return True

    def remove(self, item: Stored) -> Kept | None:
        """Delete the row if it is as it was at the scan."""
        return mending.delete(self.root, [item.row])[0]

    def remove_together(self, items: Sequence[Item]) -> Sequence[Kept | None]:
        """The same of several rows, in one transaction."""
        return mending.delete(self.root, [one.row for one in items if isinstance(one, Stored)])

    def finish_removals(self) -> Sequence[str]:
        """Give pages back where a fifth of them is free."""
        if self.location.role == SYSTEM:
            return ()
        self._opened = None
        return mending.give_back(self.root)

    def closed(self) -> str:
        """Nothing: it is told by what is found in its place."""
        return ""

    def beside(self) -> Iterator[Checked]:
        """What is wrong with the file and beside it; raises CacheUnusableError for a locked file."""
        for trouble in self._troubles():
            yield Checked(trouble.place, (self._finding(trouble),), counts=False)

    def clear(self, checked: Checked) -> Checked:
        """Move a damaged file aside, leave write-ahead mode, and look at it anew."""
        if self.location.role == SYSTEM:
            return checked
        self._opened = None
        try:
            done = {one: self._mend(one) for one in checked.findings if one in self._findings()}
            left = self._findings()
        except CacheUnusableError:
            return checked
        marked = [
            one if one in left else one._replace(repaired=True, detail=f"{one.detail}{done.get(one, '')}")
            for one in checked.findings
        ]
        return checked._replace(findings=tuple(marked))

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether lookups would be answered; raises UsageError, CacheUnusableError for a locked file."""
        return map(self._reach, explaining.asked(wanted))

    def _reach(self, one: explaining.Asked) -> Reach:
        try:
            opened = self._reading()
            if opened is None:
                return self._silent(one)
            with told(self.root):
                reader = opened.reader
                rows = read_rows(reader.connection)
                return explaining.reach(
                    self.name, one, rows, lambda row: row_trouble(reader.connection, row, reader.size_bytes)
                )
        except UnreadableError as error:
            return Reach(self.name, str(one), Verdict.NOT_CONSULTED, str(error))
        except FormatError as error:
            return Reach(self.name, str(one), Verdict.CORRUPT, f"{error}; run 'gpucache verify --repair'")

    def _silent(self, one: explaining.Asked) -> Reach:
        """Why a file that reads has no rows."""
        wrong = next((trouble for trouble in self._troubles() if trouble.kind.wrong), None)
        if wrong is not None:
            raise FormatError(f"{self.root}: {wrong.detail}")
        detail = f"{self.root} holds no kernel yet, so rocFFT compiles at the first run"
        return Reach(self.name, str(one), Verdict.NEVER_BUILT, detail)

    def _troubles(self) -> Iterator[Trouble]:
        try:
            yield from file_troubles(self.root)
        except UnreadableError as error:
            yield Trouble(FindingKind.UNTRUSTED, str(self.root), str(error))

    def _findings(self) -> list[Finding]:
        return list(map(self._finding, self._troubles()))

    def _finding(self, trouble: Trouble) -> Finding:
        return Finding(self.name, Path(trouble.place).name, trouble.kind, trouble.detail)

    def _mend(self, finding: Finding) -> str:
        """Take it out of the way; what became of the file, as a clause."""
        if finding.entry == self.root.name and finding.kind in (FindingKind.CORRUPT, FindingKind.TRUNCATED):
            return "" if mending.reindex(self.root) else rescuing.rescue(self.root)
        if finding.kind in (FindingKind.LEFTOVER, FindingKind.UNSUPPORTED):
            mending.close_log(self.root)
        return ""

    def _reading(self) -> _Opened | None:
        """The database with rocFFT's table as it is now; None where there is none; raises FormatError."""
        file = examine(self.root)
        if file is None or not file.size_bytes:
            self._opened = None
            return None
        if not file.database:
            raise FormatError(f"{self.root} is no SQLite database")
        if self._opened is None or self._opened.reader.stamp != stamp(self.root):
            reader = open_reader(self.root, file)
            with told(self.root):
                self._opened = _Opened(reader, read_shape(reader.connection).table is Table.OURS)
        return self._opened if self._opened.ours else None

    @contextmanager
    def _row(self, item: Stored) -> "Iterator[tuple[Reader, Row | None]]":
        """An entry's row as it is now, with what reads it; raises FormatError."""
        opened = self._reading()
        if opened is None:
            raise FormatError(f"the entry {item.key[:12]} is gone; look at the cache again")
        with told(self.root):
            yield opened.reader, look_again(opened.reader.connection, item.row)


def _has_table(path: Path) -> bool:
    """Whether a database has the table; its log is asked only where the file itself has none."""
    file = examine(path)
    if file is None or not file.header:
        return False
    with told(path), closing(peek(path, file)) as connection:
        if read_shape(connection).table in _TABLES:
            return True
    if not sides(path).get("-wal"):
        return False
    reader = open_reader(path, file)
    with told(path), closing(reader):
        return read_shape(reader.connection).table in _TABLES


FORMAT = Rocfft
