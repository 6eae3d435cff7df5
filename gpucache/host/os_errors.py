"""Errors of the operating system in words: the reason of an OSError, and its remedy.

The one place that decides how people should fix an error number. Must not know the purpose of the file.
"""

import errno
import os

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
    "mend its links": (errno.ELOOP,),
}
_BY_NUMBER = {number: remedy for remedy, numbers in _REMEDIES.items() for number in numbers}
_FAILING = "check its disk or server"
_OF_THE_MACHINE = frozenset({*_BY_NUMBER, errno.EIO, errno.ETIMEDOUT})


def reason(error: OSError) -> str:
    """The reason, as the operating system says it."""
    return error.strerror or str(error)


def remedy(error: OSError, otherwise: str = _FAILING) -> str:
    """The remedy: a clause that calls the place "it"; ``otherwise`` if nothing is wrong with the machine."""
    return _BY_NUMBER.get(error.errno or 0, otherwise)


def unwritable(place: object, error: OSError, otherwise: str) -> str:
    """The reason why a place that a user named cannot be written, and the remedy."""
    return f"{place} cannot be written ({reason(error)}); {remedy(error, otherwise)}"


def is_of_the_machine(error: OSError) -> bool:
    """Whether a disk, a server, permissions or a limit is the reason, and not a mistake in a program."""
    return error.errno in _OF_THE_MACHINE


def told(error: OSError) -> str:
    """Reason and remedy in one sentence, with the path if the error has one."""
    named = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
    place = f"{named} cannot be used" if named else "the operating system refused"
    return f"{place} ({reason(error)}); {remedy(error)}"
