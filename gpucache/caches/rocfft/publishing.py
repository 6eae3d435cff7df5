"""New files made whole or not at all: written under a name of their own and then given theirs.

Owns that nothing that is there is ever replaced. Must not know formats.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpucache.errors import CacheUnusableError, UsageError

_MODE = 0o644


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """An empty file to fill, which becomes ``out`` at the end; raises UsageError where that is there.

    Raises CacheUnusableError for a place that takes no file.
    """
    require_absent(out)
    with prepared(out) as temporary:
        yield temporary


@contextmanager
def prepared(out: Path) -> Iterator[Path]:
    """The same for a place that has only to be free at the end."""
    temporary = out.with_name(f".gpucache-{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
        try:
            yield temporary
            _sync(temporary)
            _named(temporary, out)
        finally:
            with suppress(OSError):
                temporary.unlink()
        _sync(out.parent)
    except OSError as error:
        raise CacheUnusableError(f"{out} cannot be made ({error.strerror}); choose another place") from error


def require_absent(out: Path) -> None:
    """Raise UsageError where something is."""
    if os.path.lexists(out):
        raise UsageError(f"{out} exists and is not replaced; name a file that does not")


def _named(temporary: Path, out: Path) -> None:
    try:
        os.link(temporary, out)  # unlike a rename it replaces nothing
    except FileExistsError:
        require_absent(out)
        raise
    except OSError:  # a file system without hard links
        require_absent(out)
        temporary.rename(out)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
