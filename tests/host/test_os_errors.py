"""The remedies for errors of the operating system."""

import errno
import os

import pytest

from gpucache.host import os_errors


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on its disk"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "fix its permissions"),
        (errno.EMFILE, "let the process open more files (ulimit -n)"),
        (errno.ESTALE, "mount it again"),
        (errno.EIO, "check its disk or server"),
        (errno.EOPNOTSUPP, "keep the cache on another file system"),
    ],
)
def test_a_refusal_is_told_with_its_remedy(number: int, remedy: str) -> None:
    """The message names the error's path and its remedy; none is called a defect."""
    error = OSError(number, os.strerror(number), "/srv/cache")
    assert os_errors.told(error).message == f"/srv/cache cannot be used ({os.strerror(number)}); {remedy}"
    assert os_errors.is_of_the_machine(error)


def test_what_a_program_did_wrong_is_not_of_the_machine() -> None:
    """A bad descriptor or argument is the program's own fault."""
    assert not os_errors.is_of_the_machine(OSError(errno.EBADF, os.strerror(errno.EBADF)))
    assert not os_errors.is_of_the_machine(OSError("no number"))
