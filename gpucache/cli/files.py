"""Files that people name on the command line: read whole and bounded, or written."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpucache.errors import UsageError
from gpucache.host import os_errors

LIMIT_BYTES = 512 << 20


def read_whole(path: Path) -> bytes:
    """Read a regular file of at most 512 MiB; raises UsageError for anything else, and OSError."""
    # Without O_NONBLOCK opening a FIFO would wait for its other end.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file; save what it gives to a file first")
        if status.st_size > LIMIT_BYTES:
            raise UsageError(f"{path} has more than the 512 MiB that are read; name a smaller file")
        return file.read(LIMIT_BYTES + 1)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """A context in which a file is written; raises UsageError if that fails."""
    try:
        yield
    except OSError as error:
        raise UsageError(os_errors.unwritable(file, error, "name another file")) from None
