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

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach, Served
from gpucache.caches.databases import (
    Reader,
    UnreadableError,
    creating,
    examine,
    open_reader,
    peek,
    sides,
    stamp,
    told,
)
from gpucache.caches.format import SECOND_NS, Check, Clock, Format, HeldError, Item, UnjudgedError
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Whose
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile, Restored, Start
from gpucache.caches.rocfft import database, locations
from gpucache.caches.rocfft.database import Row, Table, judged, read_shape, row_problem, text
from gpucache.caches.rocfft.locations import SYSTEM, RocfftPlaces
from gpucache.caches.why import Field, Near, TextsAlike, nearest
from gpucache.errors import CacheUnusableError, FormatError, GpucacheError, UsageError
from gpucache.folders import give
from gpucache.model import KeyField
from gpucache.payload import describe

FIELDS = {
    "kernel_name": "the name of the kernel's function, as rocFFT's log has it",
    "arch": "the architecture, such as gfx90a; the part after a colon is not compared",
    "hip_version": "the HIP version rocFFT was built with: 6.2.41133, or the integer 60241133",
    "generator_sum": "the SHA-256 of rocFFT's kernel generator, as hex",
}
"""The fields that an explanation compares; omitted fields are not compared."""
_WHY = {
    "arch": "it was compiled for another GPU",
    "hip_version": "every other HIP version compiles all kernels anew",
    "generator_sum": "every other build of rocFFT compiles all kernels anew",
}
_ALIKE = 0.6
_NAME_CHARS = 300
_TABLES = (Table.OURS, Table.OLD, Table.ODD)
_BELONGS = (
    "the system database belongs to the installation; change it with the package that brought it, or name "
    "another in ROCFFT_RTC_SYS_CACHE_PATH"
)

_CODE, _ROW, _MODE = "code", "row.json", 0o644
"""The files of a row on its way, and the mode of a new database."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of a database, as an ``Item`` of ``gpucache.caches.format``."""

    row: Row
    path: Path
    written_ns: int
    owned: bool = True
    """Rows have no owner; any user who may write the file may repair them."""

    @property
    def key(self) -> str:
        """The row's key."""
        return self.row.key

    @property
    def used_ns(self) -> int:
        """When it was stored, as rocFFT notes no use."""
        return self.written_ns

    @property
    def size_bytes(self) -> int:
        """The row's size as rocFFT's own trimming counts it."""
        return self.row.size_bytes


class Rocfft(RocfftPlaces, Format[Stored]):
    """One database file of rocFFT."""

    item = Stored
    together = 500  # programs of rocFFT wait for its commit
    moving = Moving()
    wanted = FIELDS

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self.root = locations.real_path(self.root)
        self._opened: Reader | None = None
        self._ours = False
        """Whether the open database has rocFFT's table."""

    @classmethod
    def opened(cls, location: Location) -> Location:
        """No user writes to the system's database."""
        found = location.problems or locations.place_problems(Path(location.root), location.role)
        return location._replace(problems=found)

    @classmethod
    def require(cls, root: Path) -> None:
        """Nothing: a file that is not a database is a finding."""

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """rocFFT's if a file is a database with its table, or has the name of one."""
        with suppress(GpucacheError, RuntimeError):
            if path.is_file() and (fnmatch(path.name, database.NAMED) or _has_table(path.resolve())):
                return Whose.OWN
        return Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Stored]:
        """Every row up to the first that cannot be read; raises CacheUnusableError for a locked file."""
        try:
            opened = self._reading()
            if opened is None:
                return
            seen = opened.stamp[0]
            changed_ns = seen.mtime_ns if seen else 0
            with told(self.root):
                for row in database.read_rows(opened.connection):
                    if row.key.startswith(prefix):
                        yield Stored(row, self.root, row.created_ns or changed_ns)
        except (FormatError, UnreadableError):
            return  # an unreadable rest is a finding of the whole file

    def look(self, item: Stored) -> CacheEntry:
        """Its key, and the facts from the beginning of its code."""
        row, opened = item.row, self._opened
        assert opened is not None
        with told(self.root):
            prefix = database.read_prefix(opened.connection, row)
        fields = row.fields
        # People know the version as its integer, too.
        number = (("hip_version", str(row.hip_version)),) if isinstance(row.hip_version, int) else ()
        return self.entry(item)._replace(
            program=fields["kernel_name"],
            target=f"hip:{fields['arch']}",
            artifact_kind=describe(prefix).kind.value,
            variant=f"HIP {fields['hip_version']}, generator {fields['generator_sum'][:12]}",
            fields=(*number, *fields.items()),
            damage=judged(row, prefix),
            unique=False,
        )

    def stays(self, item: Stored) -> str:
        """That it belongs to the installation."""
        return _BELONGS if self.location.role == SYSTEM else ""

    def check(self, item: Stored) -> Iterator[Problem]:
        """Check the row's values, its code, and whether the code fits the row's architecture."""
        try:
            with self._row(item) as (reader, row):
                if row is None:
                    yield Problem(None, "it changed since the scan")
                elif (found := row_problem(reader.connection, row, reader.size_bytes)) is not None:
                    yield found
        except FormatError as error:
            yield Problem(FindingKind.CORRUPT, str(error))

    def notes(self, item: Stored) -> Iterator[str]:
        """The oddities of its times."""
        return database.row_notes(item.row)

    def payload(self, item: Stored) -> bytes:
        """The code object."""
        with self._row(item) as (reader, row):
            if row is None:
                raise FormatError(f"the entry {item.key[:12]} changed; look at the cache again")
            return database.read_code(reader.connection, row, reader.size_bytes)

    def report(self, item: Stored, entry: CacheEntry) -> EntryReport:
        """The key, the facts in the kernel's name, and the kind of its code."""
        told = {**item.row.fields, **decode(entry.program)}
        fields = tuple(KeyField(label, value) for label, value in told.items())
        return EntryReport(entry, fields, describe(self.payload(item)).pairs)

    def unchanged(self, item: Stored) -> bool:
        """Whether the row exists with the values that the scan saw."""
        try:
            with self._row(item) as (_, row):
                return row is not None
        except FormatError:  # problems of the file are reported on it
            return True

    def remove(self, item: Stored) -> Kept | None:
        """Delete the row if it is unchanged since the scan."""
        return database.delete(self.root, [item.row])[0]

    def remove_together(self, items: Sequence[Item]) -> Sequence[Kept | None]:
        """Delete several rows like ``remove``, in one transaction."""
        return database.delete(self.root, [one.row for one in items if isinstance(one, Stored)])

    def facts(self, item: Stored, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """Everything that rocFFT looks a kernel up by besides its name."""
        told = item.row.fields
        yield Fact.ARCHITECTURE, told["arch"]
        yield "HIP", told["hip_version"]
        yield "rocFFT's generator", told["generator_sum"]

    def files_to_move(self, item: Stored) -> Sequence[PortableFile]:
        """The code, and the row's key as JSON."""
        key = json.dumps(item.row.fields, sort_keys=True).encode()
        return [
            PortableFile(f"{item.key}/{_CODE}", self.payload(item), _MODE),
            PortableFile(f"{item.key}/{_ROW}", key, _MODE),
        ]

    @contextmanager
    def restoring(self, check: Check) -> Iterator[Start]:
        """Inserts rows below SQLite's own lock; a database that is missing is made first."""
        from gpucache.caches.restoring import make_folder, staging  # only pull needs them

        if self.location.role == SYSTEM:
            raise UnjudgedError("the database belongs to the installation; name another with --cache")
        make_folder(self.root.parent)
        with staging(self.root.parent) as below:
            new = below / self.root.name
            new.touch(_MODE)
            give(new)
            with creating(new) as connection:
                connection.execute(database.CREATE)

            def restore(entry: PortableEntry) -> Restored:
                try:
                    return self._restore(entry, check, new)
                except CacheUnusableError as error:  # a program has it locked
                    raise HeldError(str(error)) from error

            yield lambda entry: partial(restore, entry)

    def _restore(self, entry: PortableEntry, check: Check, new: Path) -> Restored:
        values = _values(entry)
        old = next(iter([one for one in self.items(entry.key) if one.key == entry.key]), None)
        if old is not None and check(self, old) is None:
            return Restored(done=False, present=True)
        if not os.path.lexists(self.root):
            with suppress(FileExistsError):
                os.link(new, self.root)
        if old is not None and (kept := self.discard(old)) is not None and not kept.gone:
            return Restored(done=False, reason=f"the entry there is damaged and stays: {kept.reason}")
        with database.changing(self.root) as connection:
            done = connection.execute(database.STORE_NEW, (*values, self.now_ns() // SECOND_NS)).rowcount
        return Restored(done=bool(done), present=not done)

    def finish_removals(self) -> Sequence[str]:
        """Give pages back if a fifth of them is free."""
        if self.location.role == SYSTEM:
            return ()
        self._opened = None
        return database.give_back(self.root)

    def closed(self) -> str:
        """Nothing: the findings about its content report it."""
        return ""

    def beside(self) -> Iterator[Checked]:
        """The problems of the file and the files next to it; raises CacheUnusableError if it is locked."""
        return (self.told(path, problem) for path, problem in self._problems())

    def clear(self, checked: Checked) -> Checked:
        """Move a damaged file aside, leave write-ahead mode, and look at it anew."""
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
        """Whether lookups would hit; raises UsageError, CacheUnusableError for a locked file."""
        if not any(wanted.values()):
            raise UsageError(f"no field is given; give one of {', '.join(FIELDS)}")
        for name, values in wanted.items():
            if name != "kernel_name" and len(values) > 1:
                raise UsageError(f"rocfft looks a kernel up by one {name}; give {name} once")
        given = {name: text(values[0]) for name, values in wanted.items() if values}
        kernels = wanted.get("kernel_name") or (None,)
        return (self._reach(given if one is None else {**given, "kernel_name": text(one)}) for one in kernels)

    def _reach(self, given: Mapping[str, str]) -> Reach:
        asked = _asked(given)
        words = ", ".join(f"{label} {value}" for label, value in asked.items())
        try:
            reader = self._reading()
            if reader is None:
                return Reach(self.name, words, Verdict.NEVER_BUILT, self._silent())

            def stored(row: Row) -> Mapping[str, str]:
                whole = given.get("arch") == row.fields["arch"]  # as in a row that keeps the features
                return {**row.fields, "arch": asked["arch"]} if whole else row.fields

            known = {
                "kernel_name": Field(8, TextsAlike(_ALIKE), _ALIKE),
                "arch": Field(4),
                "generator_sum": Field(2),
            }
            with told(self.root):
                near = nearest(
                    database.read_rows(reader.connection),
                    asked,
                    stored,
                    known,
                    lambda row: row_problem(reader.connection, row, reader.size_bytes),
                )
        except UnreadableError as error:
            return Reach(self.name, words, Verdict.NOT_CONSULTED, str(error))
        except FormatError as error:
            return Reach(self.name, words, Verdict.CORRUPT, f"{error}; run 'gpucache verify --repair'")
        verdict, detail = _answer(near, asked)
        features = given.get("arch", "").removeprefix(asked.get("arch", ""))
        note = f"; rocFFT leaves {features} out of {given['arch']}" if features else ""
        differences = near.differences(asked) if near else ()
        return Reach(self.name, words, verdict, detail + note, differences, near.item.key if near else "")

    def _silent(self) -> str:
        """Why a valid file has no rows; raises FormatError if that is damage."""
        wrong = next(
            (problem for _, problem in self._problems() if problem.kind and problem.kind.wrong), None
        )
        if wrong is not None:
            raise FormatError(f"{self.root}: {wrong.detail}")
        return f"{self.root} has no kernel yet, so rocFFT compiles at the first run"

    def _problems(self) -> Iterator[tuple[Path, Problem]]:
        try:
            yield from database.file_problems(self.root)
        except UnreadableError as error:
            yield self.root, Problem(FindingKind.UNTRUSTED, str(error))

    def _fix(self, path: Path, problem: Problem) -> str:
        """Move it out of the way; the fate of the file, as a clause."""
        if path == self.root and problem.kind in (FindingKind.CORRUPT, FindingKind.TRUNCATED):
            aside = database.move_aside(path)
            made = "and rocFFT makes a new one and compiles its kernels anew"
            return f"; it is {aside} now, {made}" if aside else ""
        if problem.kind in (FindingKind.LEFTOVER, FindingKind.UNSUPPORTED):
            database.close_log(self.root)
        return ""

    def _reading(self) -> Reader | None:
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
                ours = read_shape(reader.connection).table is Table.OURS
            self._opened, self._ours = reader, ours
        return self._opened if self._ours else None

    @contextmanager
    def _row(self, item: Stored) -> "Iterator[tuple[Reader, Row | None]]":
        """An entry's row as it is now, with its reader; raises FormatError."""
        opened = self._reading()
        if opened is None:
            raise FormatError(f"the entry {item.key[:12]} is gone; look at the cache again")
        with told(self.root):
            yield opened, database.look_again(opened.connection, item.row)


def _values(entry: PortableEntry) -> tuple[str, str, int, bytes, bytes]:
    """The columns of a row from elsewhere but its time; raises FormatError for one that is not sound."""
    names = [one.name for one in entry.files]
    if names != [f"{entry.key}/{_CODE}", f"{entry.key}/{_ROW}"] or {one.mode for one in entry.files} != {
        _MODE
    }:
        raise FormatError("its files are no row of rocFFT's")
    code = entry.files[0].data
    try:
        told = json.loads(entry.files[1].data)
        name, arch = str(told["kernel_name"]), str(told["arch"])
        version, total = database.parse_hip(told["hip_version"]), bytes.fromhex(told["generator_sum"])
    except (ValueError, KeyError, TypeError, RecursionError, UsageError) as error:
        raise FormatError(f"its row cannot be parsed ({error})") from None
    texts = name.encode("utf-8", "surrogateescape"), arch.encode("utf-8", "surrogateescape")
    lengths = (*map(len, texts), len(total), len(code))
    row = Row(0, *texts, version, total, 0, tuple(database.COLUMNS.values()), lengths)
    if row.key != entry.key:
        raise FormatError("its row has another key")
    if problem := judged(row, code):
        raise FormatError(f"it is {problem.kind}: {problem.detail}")
    return name, arch, version, total, code


def _has_table(path: Path) -> bool:
    """Whether a database has the table; its log is read only if the file itself has none."""
    file = examine(path)
    if file is None or not file.header:
        return False
    with told(path), closing(peek(path, file)) as connection:
        if read_shape(connection).table in _TABLES:
            return True
    if not sides(path).get("-wal"):
        return False
    with told(path), closing(open_reader(path, file)) as reader:
        return read_shape(reader.connection).table in _TABLES


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    """The fields that a lookup compares, as people read them; raises UsageError for impossible values."""
    asked = {name: given[name] for name in FIELDS if name in given}
    if "arch" in asked:
        asked["arch"] = asked["arch"].partition(":")[0]
    if "hip_version" in asked:
        asked["hip_version"] = database.format_hip(database.parse_hip(asked["hip_version"]))
    if "generator_sum" in asked:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", total := asked["generator_sum"]):
            raise UsageError(f"{total[:80]!r} is not a generator sum; give SHA-256 as 64 hex digits")
        asked["generator_sum"] = total.lower()
    return asked


def _answer(near: Near[Row] | None, asked: Mapping[str, str]) -> tuple[Served | Verdict, str]:
    """The verdict on a lookup, from the row that is nearest to it."""
    if near is None:
        detail = "no row is like it, so rocFFT compiles it at the first run that may write to it"
        return Verdict.NEVER_BUILT, detail
    if near.wrong is not None:
        served = near.wrong.kind is FindingKind.MISLABELLED
        detail = f"the row that matches it all is {near.wrong}; run 'gpucache verify --repair'"
        return Served.FALSE_HIT if served else Verdict.CORRUPT, detail
    if not near.differing:
        return Served.HIT, "a row matches all given fields"
    if "kernel_name" in near.differing:
        like = near.stored["kernel_name"][:_NAME_CHARS]
        return Verdict.KEY_CHANGED, f"no row has that kernel; the likest is {like}"
    why = "; ".join(_WHY[label] for label in near.differing)
    what = "the kernel is stored" if "kernel_name" in asked else "the nearest row is"
    return Verdict.KEY_CHANGED, f"{what} with another {' and '.join(near.differing)}: {why}"


_PARTS = tuple(
    (re.compile(rf"_(?:{pattern})(?=_|\Z)"), label, form)
    for pattern, label, form in (
        (r"factors[^_]*((?:_\d+)*)", "factors", "{}"),
        (r"wgs_(\d+)", "work-group size", "{}"),
        (r"tpt_(\d+)", "threads per transform", "{}"),
        (r"ip((?:_[^_]+)?)", "placement", "in place {}"),
        (r"op((?:_[^_]+){0,2})", "placement", "out of place {}"),
        (r"len(\d+(?:x\d+)*)", "length", "{}"),
        (r"dim(\d+)", "dimensions", "{}"),
        (r"(sb[rc]{2}[^_]*)", "scheme", "{}"),
        (r"(sp)", "precision", "single"),
        (r"(dp)", "precision", "double"),
        (r"(half)", "precision", "half"),
        (r"(unitstride)", "strides", "unit"),
        (r"([^_]*)", "other parts", "{}"),
    )
)
"""The parts of rocFFT's Stockham kernels' names, as ``rtc_stockham_gen.cpp`` composes them."""
_DIRECTIONS = {"fwd": "forward", "back": "backward", "inv": "backward"}
_LONGEST = 2048


def decode(name: str) -> Mapping[str, str]:
    """The facts in a kernel's name, by label, for people; empty for a name that is not a Stockham kernel's.

    The cache compares the whole name: an unknown part is shown unchanged.
    """
    begin = re.match(r"fft_rtc_(fwd|back|inv)(?=_)", name[:_LONGEST])
    if begin is None:
        return {}
    shown: dict[str, list[str]] = {"direction": [_DIRECTIONS[begin[1]]]}
    place = begin.end()
    while place < min(len(name), _LONGEST):
        found = ((one.match(name, place, _LONGEST), label, form) for one, label, form in _PARTS)
        match, label, form = next(part for part in found if part[0])
        assert match is not None
        words = match[1].strip("_").replace("_", "x" if label == "factors" else " ")
        shown.setdefault(label, []).append(form.format(words))
        place = match.end()
    return {label: " ".join(values) for label, values in shown.items()}
