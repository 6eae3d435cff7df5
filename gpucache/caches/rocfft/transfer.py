"""One database made of several: what a build farm or a set of nodes compiled, joined for all of them.

Owns which row wins and in which order rows are written: by kernel name, architecture, HIP version and
generator sum, with timestamp 0 as rocFFT's own export writes it, so that the same rows give the same bytes.
"""

import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpucache.caches.databases import Reader, creating, told
from gpucache.caches.rocfft.checks import row_trouble
from gpucache.caches.rocfft.images import open_source
from gpucache.caches.rocfft.locations import is_file
from gpucache.caches.rocfft.mending import changing
from gpucache.caches.rocfft.publishing import published, require_absent
from gpucache.caches.rocfft.rows import Row, bound, look_again, read_code, read_rows, text
from gpucache.caches.rocfft.schema import CREATE, MATCHES, STORE, TABLE
from gpucache.errors import CacheUnusableError, UsageError

_REASONS, _REASONS_TOLD = 20, 3
_FIND = f"SELECT timestamp FROM {TABLE} WHERE {MATCHES}"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows are taken; an empty set takes all."""

    archs: frozenset[str] = frozenset()
    hip_versions: frozenset[int] = frozenset()
    generator_sums: frozenset[bytes] = frozenset()

    def take(self, row: Row) -> bool:
        """Whether a sound row is taken."""
        return (
            (not self.archs or text(row.arch) in self.archs)
            and (not self.hip_versions or row.hip_version in self.hip_versions)
            and (not self.generator_sums or row.generator_sum in self.generator_sums)
        )


ALL = Filters()


@dataclass(frozen=True, slots=True)
class SourceCount:
    """What one source gave."""

    path: Path
    rows: int
    """All it holds."""
    written: int
    """Those of them that are in the result."""
    filtered: int
    unsound: int
    """Those that no lookup could use, which are never carried on."""
    why: tuple[tuple[str, int], ...] = ()
    """What is wrong with those, with how many of them it is true of, the most first."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What became of the rows of all sources."""

    rows: int
    """Written."""
    sources: tuple[SourceCount, ...]
    older: int = 0
    """Left out for a row with the same key that is as new or newer, in a source or in the result."""
    replaced: int = 0
    """Of the rows written, those that took the place of an older one that was in the result."""

    @property
    def filtered(self) -> int:
        """Rows that the filters left out."""
        return sum(source.filtered for source in self.sources)

    @property
    def unsound(self) -> int:
        """Rows that no lookup could use."""
        return sum(source.unsound for source in self.sources)

    @property
    def why(self) -> tuple[tuple[str, int], ...]:
        """What is wrong with those, with how many of them it is true of, the most first."""
        return _most_first(sum((Counter(dict(source.why)) for source in self.sources), Counter()))


@dataclass(slots=True)
class _Source:
    """One database being read, and what is counted of it."""

    path: Path
    reader: Reader
    rows: int = 0
    filtered: int = 0
    unsound: int = 0
    written: int = 0
    why: Counter[str] = field(default_factory=Counter)

    def taken(self, filters: Filters) -> Iterator[Row]:
        """The rows that are sound and pass the filters, counted."""
        connection = self.reader.connection
        with told(self.path):
            for row in read_rows(connection):
                self.rows += 1
                trouble = row_trouble(connection, row, self.reader.size_bytes)
                if trouble is not None:
                    self.unsound += 1
                    self._note(str(trouble))
                elif not filters.take(row):
                    self.filtered += 1
                else:
                    yield row

    def code(self, row: Row) -> bytes:
        """The code of a row; raises CacheUnusableError where it changed meanwhile."""
        with told(self.path):
            found = look_again(self.reader.connection, row)
            if found is None:
                raise CacheUnusableError(
                    f"{self.path} changes while it is read; try again once its programs have ended"
                )
            return read_code(self.reader.connection, found, self.reader.size_bytes)

    def counts(self) -> SourceCount:
        """What it gave."""
        why = _most_first(self.why)
        return SourceCount(self.path, self.rows, self.written, self.filtered, self.unsound, why)

    def _note(self, reason: str) -> None:
        known = reason in self.why or len(self.why) < _REASONS
        self.why[reason if known else "other reasons"] += 1


class _Candidate(NamedTuple):
    source: _Source
    row: Row

    def beats(self, other: "_Candidate") -> bool:
        """Whether this row is the one to keep, in whichever order the two were met."""
        mine, theirs = _seconds(self.row), _seconds(other.row)
        return mine > theirs or (mine == theirs and self._digest() > other._digest())

    def _digest(self) -> bytes:
        return hashlib.sha256(self.source.code(self.row)).digest()


@dataclass(slots=True)
class _Choice:
    """The winners so far, by primary key."""

    best: dict[tuple[object, ...], _Candidate] = field(default_factory=dict)
    older: int = 0

    def meet(self, one: _Candidate) -> None:
        """Take a row, or leave it for a newer one."""
        rival = self.best.get(one.row.primary)
        if rival is not None:
            self.older += 1
        if rival is None or one.beats(rival):
            self.best[one.row.primary] = one

    def ordered(self) -> "list[_Candidate]":
        """The winners in the order in which they are written."""
        return sorted(self.best.values(), key=lambda one: bound(one.row))


def merge(
    sources: Sequence[Path],
    out: Path,
    *,
    filters: Filters = ALL,
    keep_times: bool = False,
    into_existing: bool = False,
) -> MergeResult:
    """Make a database of the rows of others, or with ``into_existing`` add them to one that is there.

    Of rows with the same key the newest is kept. Raises UsageError for sources or a place that cannot be
    meant and where a new database would have no row, FormatError for a source that does not read,
    CacheUnusableError for a place or a locked file.
    """
    _require_meant(sources, out, into_existing=into_existing)
    with ExitStack() as stack:
        opened = []
        for path in sources:
            reader = open_source(path)
            stack.callback(reader.close)
            opened.append(_Source(path, reader))
        choice = _Choice()
        for source in opened:
            for row in source.taken(filters):
                choice.meet(_Candidate(source, row))
        winners = choice.ordered()
        if not winners and not into_existing:
            raise UsageError(_nothing(out, opened))
        written, replaced = (_add if into_existing else _make)(out, winners, keep_times)
        older = choice.older + len(winners) - written
        return MergeResult(written, tuple(source.counts() for source in opened), older, replaced)


def _require_meant(sources: Sequence[Path], out: Path, *, into_existing: bool) -> None:
    if not sources:
        raise UsageError("there is nothing to merge; name databases or images of them")
    real = [os.path.realpath(path) for path in sources]
    if len(set(real)) < len(real):
        raise UsageError("a source is named twice; name each once")
    if os.path.realpath(out) in real or any(_same(path, out) for path in sources):
        raise UsageError(f"{out} is one of the sources; name another place")
    if not into_existing:
        require_absent(out)
    elif not is_file(out):
        raise UsageError(f"{out} is no file that could be added to; leave --into out")


def _nothing(out: Path, sources: Iterable[_Source]) -> str:
    """Why a new database would be empty, and what to do."""
    counts = [source.counts() for source in sources]
    rows, filtered = sum(one.rows for one in counts), sum(one.filtered for one in counts)
    told = [f"{filtered} are left out by the filters"] if filtered else []
    reasons: Counter[str] = sum((Counter(dict(one.why)) for one in counts), Counter())
    told += [f"{count} are {reason}" for reason, count in _most_first(reasons)[:_REASONS_TOLD]]
    found = f"of {rows} rows {'; '.join(told)}" if rows else "the sources hold no rows"
    remedy = "choose others with the filters" if filtered else "name other sources"
    return f"{out} is not made, as it would be empty: {found}; {remedy}"


def _most_first(reasons: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(reasons.items(), key=lambda one: (-one[1], one[0])))


def _same(path: Path, out: Path) -> bool:
    try:
        return path.samefile(out)
    except OSError:
        return False


def _make(out: Path, winners: Sequence[_Candidate], keep_times: bool) -> tuple[int, int]:
    with published(out) as temporary, creating(temporary) as connection:
        connection.execute("BEGIN")
        connection.execute(CREATE)
        for one in winners:
            _store(connection, one, keep_times)
        connection.execute("COMMIT")
    return len(winners), 0


def _add(out: Path, winners: Iterable[_Candidate], keep_times: bool) -> tuple[int, int]:
    written = replaced = 0
    with changing(Path(os.path.realpath(out))) as connection:
        for one in winners:
            held = connection.execute(_FIND, bound(one.row)).fetchone()
            if held is not None and isinstance(held[0], int) and held[0] >= _seconds(one.row):
                continue
            _store(connection, one, keep_times)
            written += 1
            replaced += held is not None
    return written, replaced


def _store(connection: sqlite3.Connection, one: _Candidate, keep_times: bool) -> None:
    seconds = _seconds(one.row) if keep_times else 0
    connection.execute(STORE, (*bound(one.row), one.source.code(one.row), seconds))
    one.source.written += 1


def _seconds(row: Row) -> int:
    return row.timestamp if isinstance(row.timestamp, int) else 0
