"""Errors of the operating system in words: the reason of an OSError, and its remedy.

The one place that decides how people should fix an error number. Must not know the purpose of the file.
"""

import errno
import os

from gpucache.errors import GpucacheError, SourceError, SystemRefusedError, UsageError

_REMEDIES = {
    "make room on its disk": (errno.ENOSPC,),
    "make room in its quota": (errno.EDQUOT,) if hasattr(errno, "EDQUOT") else (),
    "mount it writable": (errno.EROFS,),
    "fix its permissions": (errno.EACCES, errno.EPERM),
    "let the process open more files (ulimit -n)": (errno.EMFILE,),
    "end programs that hold many files open": (errno.ENFILE,),
    "free some memory": (errno.ENOMEM,),
    "end programs that are not needed": (errno.EAGAIN,),
    "mount it again": (errno.ESTALE, errno.ENOTCONN) if hasattr(errno, "ESTALE") else (),
    "shorten its path": (errno.ENAMETOOLONG,),
    "keep it smaller, or raise the limit of files (ulimit -f)": (errno.EFBIG,),
    "move that directory elsewhere": (errno.EISDIR,),
    "keep the cache on another file system": (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK),
    "fix its links": (errno.ELOOP,),
}
_BY_NUMBER = {number: remedy for remedy, numbers in _REMEDIES.items() for number in numbers}
_FAILING = "check its disk or server"
_OF_THE_NAME = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ENXIO, errno.ENODEV),
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ETXTBSY),
    }
)
_IN_USE = 32
"""ERROR_SHARING_VIOLATION of Windows, whose errno is that of missing permissions."""
_OF_THE_MACHINE = frozenset({*_BY_NUMBER, errno.EIO, errno.ETIMEDOUT})


def reason(error: OSError) -> str:
    return error.strerror or str(error)


def remedy(error: OSError, otherwise: str = _FAILING) -> str:
    """The remedy: a clause that calls the place "it"; ``otherwise`` if nothing is wrong with the machine."""
    if getattr(error, "winerror", 0) == _IN_USE:
        return "end the program that uses it"
    return _BY_NUMBER.get(error.errno or 0, otherwise)


def unwritable(place: object, error: OSError, otherwise: str, verb: str = "written") -> GpucacheError:
    """The error for a place that a user named and that cannot be written, with reason and remedy.

    It is the user's mistake unless a disk, a server or a limit refused.
    """
    return _refused(UsageError, f"{place} cannot be {verb}", error, otherwise)


def unreadable(place: object, error: OSError, otherwise: str, verb: str = "read") -> GpucacheError:
    """The remedy for a place that cannot be read."""
    return _refused(SourceError, f"{place} cannot be {verb}", error, otherwise)


def _refused(kind: type[UsageError], failure: str, error: OSError, otherwise: str) -> GpucacheError:
    said = f"{failure} ({reason(error)}); {remedy(error, otherwise)}"
    return kind(said) if error.errno in _OF_THE_NAME else SystemRefusedError(said)


def is_of_the_machine(error: OSError) -> bool:
    """Whether a disk, a server, permissions or a limit is the reason, and not a mistake in a program."""
    return error.errno in _OF_THE_MACHINE


def told(error: OSError) -> GpucacheError:
    """The error with its reason and remedy in one sentence, and the path if it has one."""
    if isinstance(error.filename, str | os.PathLike) and error.filename:
        return unwritable(os.fspath(error.filename), error, _FAILING, "used")
    return SystemRefusedError(f"the operating system refused ({reason(error)}); {remedy(error)}")
