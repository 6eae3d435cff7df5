"""rocFFT's cache of kernels compiled at run time: SQLite files with one table, a row for each kernel.

``database`` owns the reading of such a file, its problems and every change of it, ``export``
databases made of others, ``locations`` where the files are; how a database is opened unseen
is for ``databases``. A foreign file is data: no view, trigger or virtual table in it is ever
used, and its kernels are never loaded.

rocFFT writes the time of a store and never the time of a use: an entry's last use is the moment it was
stored, and the least recently used is simply the oldest. A timestamp of 0, which an export writes, says
nothing: such a row is as old as its file. A lookup is a select by kernel name, architecture up to the first
colon, HIP version and generator sum. Source: rocFFT, ``rtc_cache.cpp``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches.comparison import Field, TextsAlike
from gpucache.caches.databases import (
    OpenDatabase,
    UnreadableError,
    examine,
    open_reader,
    peek,
    sides,
    stamp,
    told,
)
from gpucache.caches.files import Files
from gpucache.caches.format import Clock, Format
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.portable import Moving
from gpucache.caches.rocfft import database, locations
from gpucache.caches.rocfft.database import KernelRow, judged, read_shape, row_problem
from gpucache.caches.rocfft.locations import SYSTEM, RocfftPlaces
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError
from gpucache.payload import describe

_ALIKE = 0.6
_BELONGS = (
    "the system database belongs to the installation; change it with the package that brought it, or name "
    "another in ROCFFT_RTC_SYS_CACHE_PATH"
)


class Rocfft(RocfftPlaces, Format):
    """One database file of rocFFT."""

    layout = Layout(())
    leaves_to_owner = False  # rows have no owner, and who may write the file may repair them
    together = 500  # programs of rocFFT wait for its commit
    moving = Moving(
        "no rocFFT was seen to hit a row of another machine; copy the database with 'export rocfft'"
    )
    wanted = {
        "kernel_name": "the name of the kernel's function, as rocFFT's log has it",
        "arch": "the architecture, such as gfx90a; the part after a colon is not compared",
        "hip_version": "the HIP version rocFFT was built with, such as 6.2.41133",
        "generator_sum": "the SHA-256 of rocFFT's kernel generator, as hex",
    }
    compared = {
        "kernel_name": Field(8, TextsAlike(_ALIKE), _ALIKE),
        "arch": Field(4),
        "generator_sum": Field(2),
        "hip_version": Field(),
    }
    serves_others = True

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self.root = locations.real_path(self.root)
        self._opened: OpenDatabase | None = None
        self._ours = False

    @classmethod
    def opened(cls, location: Location) -> Location:
        """Open the database read-only if it is the system's, which no user writes to."""
        found = location.problems or locations.place_problems(Path(location.root), location.role)
        return location._replace(problems=found)

    @classmethod
    def require(cls, root: Path) -> None:
        """Require nothing: a file that is not a database is a finding."""

    @classmethod
    def whose(cls, path: Path) -> Whose:
        with suppress(GpucacheError, RuntimeError):
            if path.is_file() and (fnmatch(path.name, database.NAMED) or _has_table(path.resolve())):
                return Whose.OWN
        return Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        """Every row up to the first that cannot be read; raises CacheUnusableError for a locked file."""
        try:
            opened = self._reading()
            if opened is None:
                return
            seen = opened.stamp[0]
            with told(self.root):
                there = {self.root.name: self.root.stat()}
                for row in database.read_rows(opened.connection, self.root, seen.mtime_ns if seen else 0):
                    if row.key.startswith(prefix):
                        yield Files(self.root.parent, (), row.key, there, detail=row)
        except (FormatError, UnreadableError):
            return  # an unreadable rest is a finding of the whole file

    def entry(self, item: Files) -> CacheEntry:
        row: KernelRow = item.detail
        at = row.written_ns
        return super().entry(item)._replace(size_bytes=row.size_bytes, created_ns=at, last_used_ns=at)

    def trust(self, item: Files) -> Iterator[Problem]:
        """Nothing: that of the file is reported once."""
        yield from ()

    def look(self, item: Files) -> CacheEntry:
        row: KernelRow = item.detail
        assert self._opened is not None
        with told(self.root):
            prefix = database.read_prefix(self._opened.connection, row)
        fields = row.fields
        return self.entry(item)._replace(
            program=fields["kernel_name"],
            target=f"hip:{fields['arch']}",
            artifact_kind=describe(prefix).kind.value,
            variant=f"HIP {fields['hip_version']}, generator {fields['generator_sum'][:12]}",
            # People know the version as its integer, too.
            fields=(("hip_version", str(row.hip_version)), *fields.items()),
            damage=judged(row, prefix),
            unique=False,
        )

    def stays(self, item: Files) -> str:
        return _BELONGS if self.location.role == SYSTEM else ""

    def check(self, item: Files) -> Iterator[Problem]:
        try:
            with self._row(item) as (reader, row):
                if row is None:
                    yield Problem(None, "it changed since the scan")
                elif (found := row_problem(reader.connection, row, reader.size_bytes)) is not None:
                    yield found
        except FormatError as error:
            yield Problem(FindingKind.CORRUPT, str(error))

    def payload(self, item: Files) -> bytes:
        with self._row(item) as (reader, row):
            if row is None:
                raise FormatError(f"the entry {item.key[:12]} changed; look at the cache again")
            return database.read_code(reader.connection, row, reader.size_bytes)

    def unchanged(self, item: Files) -> bool:
        try:
            with self._row(item) as (_, row):
                return row is not None
        except FormatError:  # problems of the file are reported on it
            return True

    def remove(self, item: Files) -> Kept | None:
        return database.delete(self.root, [item.detail])[0]

    def remove_together(self, items: Sequence[Files]) -> Sequence[Kept | None]:
        return database.delete(self.root, [one.detail for one in items])

    def finish_removals(self) -> Sequence[str]:
        """Give pages back if a fifth of them is free."""
        if self.location.role == SYSTEM:
            return ()
        self._opened = None
        return database.give_back(self.root)

    def closed(self) -> str:
        return ""

    def beside(self) -> Iterator[Checked]:
        return (self.told(path, problem) for path, problem in self._problems())

    def clear(self, checked: Checked) -> Checked:
        if self.location.role == SYSTEM:
            return checked
        self._opened = None
        found = {self.told(*one).findings[0]: one for one in self._problems()}
        try:
            done = {one: self._fix(*found[one]) for one in checked.findings if one in found}
            left = {self.told(*one).findings[0] for one in self._problems()}
        except CacheUnusableError:
            return checked
        marked = [
            one if one in left else one._replace(repaired=True, detail=f"{one.detail}{done.get(one, '')}")
            for one in checked.findings
        ]
        return checked._replace(findings=tuple(marked))

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        for found in super().answer(wanted) or ():
            empty = found.verdict is Verdict.NEVER_BUILT
            problems = (one for _, one in self._problems() if one.kind and one.kind.wrong) if empty else ()
            wrong = next(iter(problems), None)
            yield found._replace(verdict=Verdict.CORRUPT, detail=wrong.detail) if wrong else found

    def asked(self, wanted: Wanted) -> Mapping[str, str]:
        """The fields as a row has them; rocFFT looks up an architecture up to the first colon."""
        asked = super().asked(wanted).items()
        return {label: value.partition(":")[0] if label == "arch" else value for label, value in asked}

    def _problems(self) -> Iterator[tuple[Path, Problem]]:
        try:
            yield from database.file_problems(self.root)
        except UnreadableError as error:
            yield self.root, Problem(FindingKind.UNTRUSTED, str(error))

    def _fix(self, path: Path, problem: Problem) -> str:
        """Move a damaged database out of the way; returns what became of it, as a clause."""
        if path == self.root and problem.kind in (FindingKind.CORRUPT, FindingKind.TRUNCATED):
            aside = database.move_aside(path)
            made = "and rocFFT makes a new one and compiles its kernels anew"
            return f"; it is {aside} now, {made}" if aside else ""
        if problem.kind in (FindingKind.LEFTOVER, FindingKind.UNSUPPORTED):
            database.close_log(self.root)
        return ""

    def _reading(self) -> OpenDatabase | None:
        """The database with rocFFT's table as it is now; None if there is none; raises FormatError."""
        file = examine(self.root)
        if file is None or not file.size_bytes:
            self._opened = None
            return None
        if not file.database:
            raise FormatError(f"{self.root} is not an SQLite database")
        if self._opened is None or self._opened.stamp != stamp(self.root):
            reader = open_reader(self.root, file)
            with told(self.root):
                ours = read_shape(reader.connection).ours
            self._opened, self._ours = reader, ours
        return self._opened if self._ours else None

    @contextmanager
    def _row(self, item: Files) -> "Iterator[tuple[OpenDatabase, KernelRow | None]]":
        """An entry's row as it is now, with its reader; raises FormatError."""
        opened = self._reading()
        if opened is None:
            raise FormatError(f"the entry {item.key[:12]} is gone; look at the cache again")
        with told(self.root):
            yield opened, database.look_again(opened.connection, item.detail)


def _has_table(path: Path) -> bool:
    """Whether a database has the table; its log is read only if the file itself has none."""
    file = examine(path)
    if file is None or not file.header:
        return False
    with told(path), closing(peek(path, file)) as connection:
        if (found := read_shape(connection)).ours or found.damage:
            return True
    if not sides(path).get("-wal"):
        return False
    with told(path), closing(open_reader(path, file)) as reader:
        found = read_shape(reader.connection)
        return found.ours or bool(found.damage)
