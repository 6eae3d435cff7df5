"""What can be wrong with a database file as a whole, and with one row of it.

Owns the findings and what each costs rocFFT's users. Changes nothing. Source of the consequences: rocFFT,
``rtc_cache.cpp`` and ``auxiliary.cpp`` of 2024 and 2026.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.databases import Reader, Way, open_reader, told, words
from gpucache.caches.places import distrust
from gpucache.caches.rocfft.locations import MOVE
from gpucache.caches.rocfft.rows import Row, damage, read_code, text
from gpucache.caches.rocfft.schema import OLD_TABLE, TABLE, UTF8, Shape, Table, read_shape
from gpucache.caches.sqlite_file import WAL, SqliteFile, examine, sides, stranger
from gpucache.errors import FormatError
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_instant, format_size

_WHOLE_CHECK_BYTES = 256 << 20
"""Up to which size indexes are held against rows, too."""
_FAULTS_READ = 3
_NS = 1_000_000_000
_DIES = (
    "rocfft_setup ends the program with an uncaught exception (2024), or fails and a second call runs "
    "without any cache (2026)"
)
_SPIRV_ARCH = "amdgcnspirv"
_CONSEQUENCE = "hipModuleLoad fails, and rocFFT never compiles the kernel anew"
_MISSES = "every lookup misses and every store fails, so all kernels are compiled at every run"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something about a file; ``place`` is the file it is in."""

    kind: FindingKind
    place: str
    detail: str


def file_troubles(path: Path) -> Iterator[Trouble]:
    """What is wrong with a database and beside it; raises CacheUnusableError where it cannot be looked at."""
    place = str(path)
    try:
        file = examine(path)
    except FormatError as error:
        yield Trouble(
            FindingKind.MISPLACED, place, f"{error}, so rocFFT cannot keep its kernels there; {MOVE}"
        )
        return
    beside = sides(path)
    if file is None:
        yield from _orphans(path, beside)
        return
    found = [Trouble(kind, place, detail) for kind, detail in _outside(file, beside)]
    yield from found
    if file.size_bytes and not any(one.kind in (_TRUNCATED, _CORRUPT) for one in found):
        yield from _beside(path, beside)
        yield from _inside(path, file)


_TRUNCATED, _CORRUPT = FindingKind.TRUNCATED, FindingKind.CORRUPT


def _outside(file: SqliteFile, beside: Mapping[str, int]) -> Iterator[tuple[FindingKind, str]]:
    """What header, size and mode say."""
    if distrusted := distrust(file.status, move=MOVE):
        yield FindingKind.UNTRUSTED, f"{distrusted}; whoever may write it gives your GPU code to run"
    if not file.size_bytes:
        return
    if not file.database:
        yield _CORRUPT, f"it is no SQLite database: {_DIES}; move it away"
    elif not file.header:
        yield _TRUNCATED, f"it ends inside its header: {_DIES}; move it away"
    elif not file.page_bytes:
        yield _CORRUPT, f"its header has no page size that SQLite knows: {_DIES}; move it away"
    else:
        yield from _length(file, beside)
        if max(file.versions) > WAL:
            yield FindingKind.UNSUPPORTED, "it was written by a newer SQLite than this one"
        elif file.wal:
            yield (
                FindingKind.UNSUPPORTED,
                "it is in write-ahead mode: rocFFT cannot deserialise an image taken of it "
                "('unable to open database file'), and it needs its side files wherever it is copied; run "
                "'gpucache verify --cache rocfft --repair' once its programs have ended",
            )


def _length(file: SqliteFile, beside: Mapping[str, int]) -> Iterator[tuple[FindingKind, str]]:
    """The file's size against the pages it claims; a log or journal may hold what is missing."""
    claimed = file.pages * file.page_bytes
    if beside.get("-wal") or beside.get("-journal"):
        return
    if file.size_bytes < max(claimed, file.page_bytes):
        yield (
            _TRUNCATED,
            f"it has {file.size_bytes} bytes and claims {max(claimed, file.page_bytes)}: {_MISSES}",
        )
    elif claimed and file.size_bytes > claimed:
        extra = format_size(file.size_bytes - claimed)
        yield FindingKind.LEFTOVER, f"{extra} lie behind its last page, which SQLite does not read"


def _orphans(path: Path, beside: Mapping[str, int]) -> Iterator[Trouble]:
    for suffix in beside:
        yield Trouble(FindingKind.ORPHAN, f"{path}{suffix}", "its database is gone; remove it")


def _beside(path: Path, beside: Mapping[str, int]) -> Iterator[Trouble]:
    strange = stranger(path)
    if strange:
        detail = "it is no file of SQLite, which would remove it: nothing is changed here; move it elsewhere"
        yield Trouble(FindingKind.LEFTOVER, str(path.with_name(strange)), detail)
        return
    log = beside.get("-wal", 0)
    if log:
        detail = (
            f"{format_size(log)} of changes are not in the database yet: a program has it open or died with "
            "it; never copy one without the other"
        )
        yield Trouble(FindingKind.LEFTOVER, f"{path}-wal", detail)
    elif "-shm" in beside:
        detail = "a program has the database open, or died with it and left this"
        yield Trouble(FindingKind.LEFTOVER, f"{path}-shm", detail)


def _inside(path: Path, file: SqliteFile) -> Iterator[Trouble]:
    """What SQLite says of the pages."""
    try:
        reader = open_reader(path, file)
    except FormatError as error:
        yield Trouble(_CORRUPT, str(path), f"{error}: {_MISSES}")
        return
    try:
        if reader.way is Way.ROLLED_BACK:
            detail = (
                "a writer died while it changed the database; the next program that may write "
                "rolls it back, and one that may only read cannot use it"
            )
            yield Trouble(FindingKind.LEFTOVER, f"{path}-journal", detail)
        with told(path):
            shape = read_shape(reader.connection)
            yield from _misshapen(path, shape)
            if shape.table is Table.OURS:
                yield from _faults(path, reader, shape)
    except FormatError as error:
        yield Trouble(_CORRUPT, str(path), f"{error}: {_MISSES}")
    finally:
        reader.close()


def _misshapen(path: Path, shape: Shape) -> Iterator[Trouble]:
    place = str(path)
    if shape.table is Table.OLD:
        text = f"it holds the table {OLD_TABLE} of a pre-release, which rocFFT no longer reads"
        yield Trouble(FindingKind.UNSUPPORTED, place, text)
    elif shape.table is Table.OTHER:
        text = f"it is the database of another program, to which rocFFT adds its table {TABLE}; {MOVE}"
        yield Trouble(FindingKind.UNSUPPORTED, place, text)
    elif shape.table is Table.ODD:
        yield Trouble(_CORRUPT, place, f"{words(shape.detail)}: {_DIES}")
    elif shape.table is Table.UNREAD:
        yield Trouble(FindingKind.UNSUPPORTED, place, f"{shape.detail}, so its kernels are not told")
    elif shape.triggers:
        text = "it holds triggers, which rocFFT does not make: a store or removal would run them"
        yield Trouble(_CORRUPT, place, text)
    elif shape.table is Table.OURS and not (shape.exact and shape.alone):
        what = (
            "its table was not made by rocFFT's own text"
            if not shape.exact
            else "it holds more than rocFFT's table"
        )
        yield Trouble(FindingKind.UNSUPPORTED, place, f"{what}; rocFFT reads it all the same")
    if shape.encoding != UTF8:
        text = f"its texts are {shape.encoding}, which rocFFT does not choose; rocFFT reads it all the same"
        yield Trouble(FindingKind.UNSUPPORTED, place, text)


def _faults(path: Path, reader: Reader, shape: Shape) -> Iterator[Trouble]:
    check = "integrity_check" if reader.size_bytes <= _WHOLE_CHECK_BYTES else "quick_check"
    what = _FAULTS_READ if shape.alone else TABLE
    said = [
        str(row[0]) for row in reader.connection.execute(f"PRAGMA {check}({what})").fetchmany(_FAULTS_READ)
    ]
    if said != ["ok"]:
        shown = words("; ".join(said))
        yield Trouble(
            _CORRUPT, str(path), f"its pages contradict each other ({shown}): lookups may miss or fail"
        )


def row_trouble(connection: sqlite3.Connection, row: Row, limit_bytes: int) -> Problem | None:
    """What is wrong with a row and its code; raises sqlite3.Error, FormatError."""
    if damaged := damage(row):
        return Problem(_CORRUPT, damaged)
    return misfit(describe(read_code(connection, row, limit_bytes)), text(row.arch))


def scanned_trouble(row: Row, prefix: bytes) -> Problem | None:
    """The same as far as the beginning of the code tells: whether it is broken only where that is all."""
    if damaged := damage(row):
        return Problem(_CORRUPT, damaged)
    code = describe(prefix)
    whole = len(prefix) == row.code_bytes
    return misfit(code if whole else replace(code, problem=None), text(row.arch))


def misfit(code: PayloadInfo, arch: str) -> Problem | None:
    """What is wrong with the code of a row for an architecture; None where nothing is.

    rocFFT stores what hiprtc gave it: an ELF file for an AMD GPU, or a clang offload bundle.
    """
    portable = code.kind in (PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE) and arch.startswith(_SPIRV_ARCH)
    if portable or code.kind is PayloadKind.OFFLOAD_BUNDLE:
        return None
    if code.kind is not PayloadKind.AMDGPU:
        detail = f"its code is {code.kind} and not for an AMD GPU: {_CONSEQUENCE}"
        return Problem(FindingKind.MISLABELLED, detail)
    wanted = arch.partition(":")[0]
    if code.architecture not in (None, wanted):
        detail = f"its code is for {code.architecture} and its row says {wanted}: {_CONSEQUENCE}"
        return Problem(FindingKind.MISLABELLED, detail)
    if code.problem:
        return Problem(_CORRUPT, f"its code is damaged ({code.problem}): {_CONSEQUENCE}")
    return None


def row_notes(row: Row) -> Iterator[str]:
    """What is odd about a row and does no harm; 0 is what rocFFT's own export writes."""
    seconds = row.timestamp if isinstance(row.timestamp, int) else 0
    if seconds < 0:
        yield "its timestamp lies before 1970, so it is the first to be evicted"
    elif seconds * _NS > time.time_ns() + 86_400 * _NS:
        when = format_instant(seconds * _NS)
        yield f"its timestamp {when} lies in the future, so it is the last to be evicted"
    if not isinstance(row.timestamp, int):
        yield "its timestamp is no whole number, so it counts as stored when the file last changed"
