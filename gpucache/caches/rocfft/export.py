"""rocFFT's databases written for other machines: merged into one, as an image, or restored from one.

A merged database has its rows by kernel name, architecture, HIP version and generator sum, with timestamp 0
as rocFFT's own export writes it, so that the same rows give the same bytes. An image is the
``rocfft_cache_serialize`` gives and ``rocfft_cache_deserialize`` takes: the bytes of a database whose header
says rollback journal, since SQLite cannot open any other in memory (rocFFT's own image of a
database in write-ahead mode cannot be read back). New files are made whole or not at all, under another
name until they are complete, and replace nothing.
"""

import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.answers.export import Exported, Source
from gpucache.caches import files
from gpucache.caches.databases import (
    HEADER_BYTES,
    MAGIC,
    ROLLBACK,
    UNREAD,
    VERSIONS,
    OpenDatabase,
    creating,
    examine,
    in_memory,
    open_reader,
    told,
)
from gpucache.caches.exports import Argument, ExportForm, ExportRequest, Option
from gpucache.caches.registry import of_others
from gpucache.caches.rocfft.database import (
    CREATE,
    MATCHES,
    STORE,
    TABLE,
    KernelRow,
    changing,
    look_again,
    read_code,
    read_rows,
    read_shape,
    row_problem,
)
from gpucache.caches.rocfft.locations import NAME, is_file
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from gpucache.folders import Folder
from gpucache.units import format_size

LIMIT_BYTES = 2_000_000_000
"""The largest image: SQLite gives no more memory at once."""
_REASONS, _REASONS_TOLD = 20, 3
_FIND = f"SELECT timestamp FROM {TABLE} WHERE {MATCHES}"


Filters = Sequence[tuple[str, str]]
"""The rows to take, by field as people read it; a field without values takes all."""


def read_filters(like: Iterable[tuple[str, str]]) -> Filters:
    """The filters of the command line; raises UsageError."""
    for label, _ in like:
        if label not in ("arch", "hip_version", "generator_sum"):
            raise UsageError(
                f"--like {label}: a row has arch, hip_version and generator_sum; name one of these, and a "
                "value as 'gpucache inspect' shows it"
            )
    return tuple(like)


def _code(reader: OpenDatabase, row: KernelRow) -> bytes:
    """The code of a row; raises CacheUnusableError if it changed meanwhile."""
    with told(row.path):
        if (found := look_again(reader.connection, row)) is None:
            raise CacheUnusableError(
                f"{row.path} changes while it is read; try again once its programs have ended"
            )
        return read_code(reader.connection, found, reader.size_bytes)


@dataclass(slots=True)
class Merged:
    """The counts of rows from all sources."""

    sources: Mapping[Path, OpenDatabase] = field(default_factory=dict)
    written: Counter[Path] = field(default_factory=Counter)
    """How many rows of each source were written."""
    held: int = 0
    filtered: int = 0
    older: int = 0
    """The rows left out because another row with their key is as new or newer."""
    replaced: int = 0
    """The written rows that replaced an older one in the result."""
    why: Counter[str] = field(default_factory=Counter)
    """The problems of rows that no lookup could use, which are never copied, with their counts."""

    def taken(self, path: Path, filters: Filters) -> Iterator[KernelRow]:
        """The rows of a source that are sound and pass the filters; the others are counted."""
        reader = self.sources[path]
        with told(path):
            for row in read_rows(reader.connection, path):
                self.held += 1
                if wrong := row_problem(reader.connection, row, reader.size_bytes):
                    known = str(wrong) in self.why or len(self.why) < _REASONS
                    self.why[str(wrong) if known else "other reasons"] += 1
                elif not all((label, row.fields[label]) in filters for label, _ in filters):
                    self.filtered += 1
                else:
                    yield row

    def beats(self, one: KernelRow, other: KernelRow) -> bool:
        """Whether a row is newer than another one with its key; with equal times the code decides."""
        if one.seconds != other.seconds:
            return one.seconds > other.seconds
        return self.code(one) > self.code(other)

    def code(self, row: KernelRow) -> bytes:
        return _code(self.sources[row.path], row)

    def store(self, connection: sqlite3.Connection, row: KernelRow, *, keep_times: bool) -> None:
        connection.execute(STORE, (*row.primary, self.code(row), row.seconds if keep_times else 0))
        self.written[row.path] += 1

    def nothing(self, out: Path) -> str:
        """Why a new database would be empty, and the remedy."""
        reasons = [f"{self.filtered} are left out by the filters"] if self.filtered else []
        reasons += [f"{count} are {reason}" for reason, count in self.why.most_common(_REASONS_TOLD)]
        found = f"of {self.held} rows {'; '.join(reasons)}" if self.held else "the sources have no rows"
        remedy = "choose others with the filters" if self.filtered else "name other sources"
        return f"{out} is not made, as it would be empty: {found}; {remedy}"


def merge(
    sources: Sequence[Path],
    out: Path,
    *,
    filters: Filters = (),
    keep_times: bool = False,
    into_existing: bool = False,
) -> Merged:
    """Make a database of other databases' rows, or with ``into_existing`` add them to an existing one.

    Of rows with the same key the newest is kept. Raises UsageError for unusable sources or an unusable
    place and if a new database would have no row, FormatError for an invalid source,
    CacheUnusableError for a place or a locked file.
    """
    _require_meant(sources, out, into_existing=into_existing)
    with ExitStack() as stack:
        done = Merged({path: stack.enter_context(closing(open_source(path))) for path in sources})
        best: dict[tuple[object, ...], KernelRow] = {}
        for path in sources:
            for row in done.taken(path, filters):
                rival = best.get(row.primary)
                done.older += rival is not None
                if rival is None or done.beats(row, rival):
                    best[row.primary] = row
        winners = [best[key] for key in sorted(best)]
        if into_existing:
            _add(out, winners, done, keep_times=keep_times)
        elif not winners:
            raise UsageError(done.nothing(out))
        else:
            with published(out) as temporary, creating(temporary) as connection:
                connection.execute("BEGIN")
                connection.execute(CREATE)
                for row in winners:
                    done.store(connection, row, keep_times=keep_times)
                connection.execute("COMMIT")
        return done


def _require_meant(sources: Sequence[Path], out: Path, *, into_existing: bool) -> None:
    if not sources:
        raise UsageError("nothing to merge; name databases or images of them")
    if len({os.path.realpath(path) for path in sources}) < len(sources):
        raise UsageError("a source is named twice; name each once")
    with suppress(FileNotFoundError):
        if any(path.samefile(out) for path in sources if path.exists()):
            raise UsageError(f"{out} is one of the sources; name another place")
    if not into_existing:
        _require_absent(out)
    elif not is_file(out):
        raise UsageError(f"{out} is not a file that can be added to; leave --into out")


def _add(out: Path, winners: Iterable[KernelRow], done: Merged, *, keep_times: bool) -> None:
    with changing(Path(os.path.realpath(out))) as connection:
        for row in winners:
            held = connection.execute(_FIND, row.primary).fetchone()
            if held is not None and isinstance(held[0], int) and held[0] >= row.seconds:
                done.older += 1
            else:
                done.store(connection, row, keep_times=keep_times)
                done.replaced += held is not None


def open_source(source: Path) -> OpenDatabase:
    """A database or image open for reading; UsageError if missing, FormatError if it is not rocFFT's."""
    path = Path(os.path.realpath(source))
    file = examine(path)
    if file is None:
        raise UsageError(f"{source} does not exist; name a database or an image of one")
    if not file.database:
        raise FormatError(f"{source} is not an SQLite database")
    reader = open_reader(path, file)
    with told(source):
        if not read_shape(reader.connection).ours:
            reader.close()
            raise FormatError(f"{source} does not contain rocFFT's table")
    return reader


def image(source: Path) -> bytes:
    """The image of a database and its log; raises UsageError, FormatError, CacheUnusableError."""
    with closing(open_source(source)) as reader:
        if reader.size_bytes > LIMIT_BYTES:
            raise UsageError(
                f"{source} has {format_size(reader.size_bytes)}, above the {format_size(LIMIT_BYTES)} of an "
                "image; merge a part of it into a smaller database first"
            )
        with told(source):
            return _rollback(reader.connection.serialize())


def write_image(source: Path, out: Path) -> int:
    """Write the image of a database into a new file; its size in bytes. Raises as :func:`image` does."""
    return _write(image(source), out)


def restore(source: Path, out: Path) -> int:
    """Make a new database of an image; its size in bytes.

    Raises FormatError for an image that is damaged or not rocFFT's, UsageError, CacheUnusableError.
    """
    path = Path(os.path.realpath(source))
    try:
        with Folder.at(path.parent) as folder:
            data = _rollback(files.read(folder, path.name, LIMIT_BYTES))
    except FileNotFoundError as error:
        raise UsageError(f"{source} does not exist; name an image") from error
    except OSError as error:
        raise CacheUnusableError(f"{source} cannot be read ({error.strerror}); {UNREAD}") from error
    with closing(in_memory(data, source)) as connection, told(source):
        if not read_shape(connection).ours:
            raise FormatError(f"{source} does not contain rocFFT's table")
        if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise FormatError(f"{source} is damaged; take the image anew")
    return _write(data, out)


def _rollback(data: bytes) -> bytes:
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise FormatError("an image begins as a SQLite database does, and this does not; make it anew")
    return b"".join((data[: VERSIONS.start], bytes((ROLLBACK, ROLLBACK)), data[VERSIONS.stop :]))


def _write(data: bytes, out: Path) -> int:
    with published(out) as temporary:
        temporary.write_bytes(data)
    return len(data)


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """An empty file to fill, which becomes ``out`` at the end; raises UsageError if that exists.

    Raises CacheUnusableError if no file can be created there.
    """
    _require_absent(out)
    temporary = out.with_name(f".gpucache-{secrets.token_hex(8)}.tmp")
    try:
        temporary.open("xb").close()
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            try:
                os.link(temporary, out)  # unlike a rename it replaces nothing
            except OSError:  # such as on a file system without hard links
                _require_absent(out)
                temporary.rename(out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CacheUnusableError(f"{out} cannot be made ({error.strerror}); choose another place") from error


def _require_absent(out: Path) -> None:
    if os.path.lexists(out):
        raise UsageError(f"{out} exists and is not replaced; name a file that does not")


_LIKE = Option(
    "--like",
    Argument.FIELD,
    "Only rows with this value; repeatable.\f"
    "Only rows with this arch, hip_version or generator_sum; repeatable.",
    "FIELD=VALUE",
    many=True,
    remedy="write it as arch=gfx90a",
)
_KEEP_TIMES = Option("--keep-times", Argument.FLAG, "Keep the rows' times, which makes files differ.")
_INTO = Option(
    "--into",
    Argument.FLAG,
    "Add to OUT, replace older rows.\fAdd to the existing OUT and replace older rows; times are kept.",
)


def _merged(asked: ExportRequest) -> Exported:
    like, keep_times, into = (asked.options[one.name] for one in (_LIKE, _KEEP_TIMES, _INTO))
    filters = read_filters(like)
    done = merge(asked.sources, asked.out, filters=filters, keep_times=keep_times or into, into_existing=into)
    counts = {
        "left out for a newer row with the same key": done.older,
        "left out by --like": done.filtered,
        "left out as unsound": done.why.total(),
        "that replaced an older one": done.replaced,
    }
    notes = tuple(
        f"{number} {'row' if number == 1 else 'rows'}: {what}." for what, number in counts.items() if number
    )
    sources = tuple(Source(str(path), done.written[path]) for path in done.sources)
    return Exported(
        NAME, str(asked.out), done.written.total(), asked.out.stat().st_size, sources, notes=notes
    )


def _copied(form: str, write: Callable[[Path, Path], int]) -> Callable[[ExportRequest], Exported]:
    def copied(asked: ExportRequest) -> Exported:
        if len(asked.sources) != 1:
            raise UsageError(f"{form} takes one SOURCE, and {len(asked.sources)} are named; merge them first")
        (source,) = asked.sources
        size_bytes = write(source, asked.out)
        opened = of_others(NAME).open(Location(NAME, str(asked.out), "OUT", enabled=True))
        entries = sum(1 for _ in opened.scan())
        return Exported(NAME, str(asked.out), entries, size_bytes, (Source(str(source), entries),))

    return copied


FORMS = (
    ExportForm(
        "rocfft",
        "Merge rocFFT databases and images into one database.\n\nThe bytes of OUT depend only on its rows.",
        (_LIKE, _KEEP_TIMES, _INTO),
        _merged,
    ),
    ExportForm(
        "rocfft-image",
        "Write a rocFFT database as an image.\n\nFor nodes without a disk.",
        (),
        _copied("rocfft-image", write_image),
    ),
    ExportForm(
        "rocfft-restore",
        "Make an image of a rocFFT database a database again.",
        (),
        _copied("rocfft-restore", restore),
    ),
)
