"""A database as bytes for nodes without a disk, and a database made of such bytes.

An image is what ``rocfft_cache_serialize`` gives and ``rocfft_cache_deserialize`` takes: the bytes of a
database whose header says rollback journal, since SQLite cannot open one in memory that says otherwise
(rocFFT's own image of a database in write-ahead mode cannot be read back).
"""

import os
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.databases import Reader, in_memory, open_reader, told
from gpucache.caches.rocfft.publishing import published
from gpucache.caches.rocfft.schema import Table, read_shape
from gpucache.caches.sqlite_file import HEADER_BYTES, MAGIC, ROLLBACK, UNREAD, VERSIONS, examine
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from gpucache.folders import Folder
from gpucache.units import format_size

LIMIT_BYTES = 2_000_000_000
"""The largest image: SQLite gives no more memory at once."""


def image(source: Path) -> bytes:
    """The image of a database and its log; raises UsageError, FormatError, CacheUnusableError."""
    reader = open_source(source)
    try:
        if reader.size_bytes > LIMIT_BYTES:
            raise UsageError(
                f"{source} has {format_size(reader.size_bytes)}, above the {format_size(LIMIT_BYTES)} of an "
                "image; merge a part of it into a smaller database first"
            )
        with told(source):
            return _rollback(reader.connection.serialize())
    finally:
        reader.close()


def write_image(source: Path, out: Path) -> int:
    """Write the image of a database into a new file; its size in bytes. Raises as :func:`image` does."""
    data = image(source)
    with published(out) as temporary:
        temporary.write_bytes(data)
    return len(data)


def restore(source: Path, out: Path) -> int:
    """Make a new database of an image; its size in bytes.

    Raises FormatError for an image that is damaged or not rocFFT's, UsageError, CacheUnusableError.
    """
    data = _rollback(_read(source))
    _require_sound(data, source)
    with published(out) as temporary:
        temporary.write_bytes(data)
    return len(data)


def open_source(source: Path) -> Reader:
    """A database or image open for reading; UsageError for none, FormatError where it is not rocFFT's."""
    path = Path(os.path.realpath(source))
    file = examine(path)
    if file is None:
        raise UsageError(f"{source} does not exist; name a database or an image of one")
    if not file.database:
        raise FormatError(f"{source} is no SQLite database")
    reader = open_reader(path, file)
    with told(source):
        if read_shape(reader.connection).table is not Table.OURS:
            reader.close()
            raise FormatError(f"{source} does not hold rocFFT's table")
    return reader


def _read(source: Path) -> bytes:
    path = Path(os.path.realpath(source))
    try:
        with Folder.at(path.parent) as folder:
            return files.read(folder, path.name, LIMIT_BYTES)
    except FileNotFoundError as error:
        raise UsageError(f"{source} does not exist; name an image") from error
    except OSError as error:
        raise CacheUnusableError(f"{source} cannot be read ({error.strerror}); {UNREAD}") from error


def _rollback(data: bytes) -> bytes:
    """An image with a header that says rollback journal."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise FormatError("an image begins as a SQLite database does, and this does not; make it anew")
    return b"".join((data[: VERSIONS.start], bytes((ROLLBACK, ROLLBACK)), data[VERSIONS.stop :]))


def _require_sound(data: bytes, source: Path) -> None:
    connection = in_memory(data, source)
    try:
        with told(source):
            if read_shape(connection).table is not Table.OURS:
                raise FormatError(f"{source} does not hold rocFFT's table")
            if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                raise FormatError(f"{source} is damaged; take the image anew")
    finally:
        connection.close()
