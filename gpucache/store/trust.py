"""Decides which roots and files are trusted, and so used at all.

A root is used only if it is a directory that belongs to this user or to the administrator (uid 0) and that
group and others may not write to. A link to it is followed only if it belongs to one of these two. A file
is read only if it is a regular file, not a link, with such an owner and mode. All checks use open
descriptors. On Windows, which has no such owners, only the kind of a file is checked. Must not know the
content of the files.
"""

import errno
import os
import stat
import sys
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder, for_its_owner, give_back, is_own
from gpucache.host import os_errors

_NO_FILE = "it is not a regular file"
_ELSEWHERE = "name your own directory with --root or GPUCACHE_DIR"


class Root(Enum):
    """A root without a problem."""

    USABLE = "it exists and may be used"
    MISSING = "it does not exist yet; the first entry creates it"


class RootRefused(NamedTuple):
    """The root exists and must not be used; ``reason`` is a sentence with the remedy."""

    reason: str


RootState = Root | RootRefused


class UntrustedFileError(PermissionError):
    """A file is a link, not a regular file, or writable by another user."""


def root_state(path: Path) -> RootState:
    """Whether a root may be used. Raises nothing."""
    try:
        open_root(path).close()
    except FileNotFoundError:
        return Root.MISSING
    except CacheUnusableError as error:
        return RootRefused(str(error))
    return Root.USABLE


def open_root(path: Path) -> Folder:
    """Open the root and check it; raises FileNotFoundError if it is missing, else CacheUnusableError."""
    link = None
    try:
        try:
            folder = Folder.at(path, follow=False)
        except OSError:  # a link, or an error that the second try raises again
            link = os.lstat(path)
            folder = Folder.at(path)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise CacheUnusableError(f"the cache root {path} is not a directory; {_ELSEWHERE}") from error
    except OSError as error:
        raise _unopened(path, error) from error
    try:
        _require_root(path, link, folder.status())
    except OSError as error:
        folder.close()
        raise _unopened(path, error) from error
    except BaseException:
        folder.close()
        raise
    return folder


def _unopened(path: Path, error: OSError) -> CacheUnusableError:
    why = f"{os_errors.reason(error)}; {os_errors.remedy(error)}, or {_ELSEWHERE}"
    return CacheUnusableError(f"the cache root {path} cannot be opened: {why}")


class _Opened:
    """A descriptor and its file's status; a context manager that closes the descriptor."""

    __slots__ = ("_fd", "_status")

    def __init__(self, fd: int, status: os.stat_result) -> None:
        self._fd, self._status = fd, status

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._fd, self._status

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        give_back(self._fd)


def open_trusted(folder: Folder, *parts: str) -> AbstractContextManager[tuple[int, os.stat_result]]:
    """Open a trusted file, as descriptor and status; raises UntrustedFileError, other OSErrors.

    The parts before the last are directories below ``folder``, and not links.
    """
    try:
        fd = folder.open_file(*parts)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise UntrustedFileError(errno.EPERM, "it is a link") from error
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, a missing device
            raise UntrustedFileError(errno.EPERM, _NO_FILE) from error
        raise
    try:
        status = os.fstat(fd)
        reason = distrust(status) if stat.S_ISREG(status.st_mode) else _NO_FILE
        if reason is not None:
            raise UntrustedFileError(errno.EPERM, reason)
    except BaseException:
        give_back(fd)
        raise
    return _Opened(fd, status)


def distrust(status: os.stat_result) -> str | None:
    """Why a file or directory of this owner and mode is not trusted; None if it is."""
    if sys.platform == "win32":
        return None
    if not owner_is_trusted(status):
        return f"it belongs to uid {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def owner_is_trusted(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, the administrator, or whom the administrator acts for."""
    return sys.platform == "win32" or status.st_uid in (0, os.geteuid()) or is_own(status)


def _require_root(path: Path, link: os.stat_result | None, status: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    if link is not None and stat.S_ISLNK(link.st_mode) and not owner_is_trusted(link):
        raise CacheUnusableError(
            f"the cache root {path} is a link that belongs to uid {link.st_uid}; {_ELSEWHERE}"
        )
    reason = distrust(status)
    if reason is None:
        return
    remedy = f"{for_its_owner(status)}{_ELSEWHERE}"
    if owner_is_trusted(status):
        remedy = f"run 'chmod go-w {path}' if no other user wrote there, or {_ELSEWHERE}; "
        remedy += "gpucache-recipes(7) has a cache for many users"
    raise CacheUnusableError(f"the cache root {path} cannot be trusted, as {reason}; {remedy}")
