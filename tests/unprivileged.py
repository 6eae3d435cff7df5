"""Work done in a child process as a user who may not enter root's directories."""

import mmap  # noqa: F401 - formats import these two late, when that user may not read root's Python any more
import os
import secrets  # noqa: F401
import traceback
from collections.abc import Callable

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "fork") or os.geteuid() != 0, reason="only root can become another user"
)


def as_nobody(work: Callable[[], str]) -> str:
    """The result of some work as that user; an error there is raised here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, _done(work).encode("utf-8", "replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    failed, _, result = told.partition("\n")
    assert failed == "done", result
    return result


def _done(work: Callable[[], str]) -> str:
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        return f"done\n{work()}"
    except BaseException:  # whatever it is, it is the parent that says it
        return f"failed\n{traceback.format_exc()}"
