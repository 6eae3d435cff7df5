"""Work distributed among copies of this process, one for each core that is used.

A copy is a fork: it has all state of this process, and starts in a millisecond. It ends with its share, and
no later than this process. Must not know the work.
"""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar

from gpucache.errors import WorkersError
from gpucache.host import interrupts

T = TypeVar("T")


class _Copy(NamedTuple):
    pid: int
    answers: BinaryIO


class _End(NamedTuple):
    """The last message of a copy, with the exception it raised."""

    error: Exception | None = None


def shared_out(work: Callable[[int], Iterable[T]], shares: int) -> Iterator[T]:
    """Yield the results of ``work`` for each share, in any order. Results are pickled, and wait for a reader.

    An exception of ``work`` is raised again. Raises WorkersError if a copy ended before its share was done.
    Without forks, with threads, which may have taken locks, and if no more processes can be started, this
    process does the work itself.
    """
    copies: list[_Copy] = []
    alone = not hasattr(os, "fork") or threading.active_count() > 1
    here = list(range(shares))
    try:
        with suppress(OSError):
            while here and not alone:
                copies.append(_begin(work, here[0], [copy.answers.fileno() for copy in copies]))
                del here[0]
        yield from _answers(copies)
        for share in here:
            yield from work(share)
    finally:
        for copy in copies:
            copy.answers.close()
            os.kill(copy.pid, signal.SIGKILL)
            os.waitpid(copy.pid, 0)


def _answers(copies: Sequence[_Copy]) -> Iterator[Any]:
    """The results of the copies, one result of each in turn."""
    left = list(copies)
    while left:
        for copy in list(left):
            try:
                answer = pickle.load(copy.answers)
            except (EOFError, pickle.UnpicklingError):
                raise WorkersError("a process that did a part of the work was killed; try again") from None
            if not isinstance(answer, _End):
                yield answer
                continue
            left.remove(copy)
            if answer.error is not None:
                raise answer.error


def _begin(work: Callable[[int], Iterable[T]], share: int, others: Sequence[int]) -> _Copy:
    """Start a copy of this process; ``others`` are the pipes from the copies started before."""
    reading, writing = os.pipe()
    try:
        with interrupts.held():  # an interrupt in the copy would run the end of this process there
            pid = os.fork()
            if pid == 0:
                _answer(work, share, writing, [reading, *others])
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return _Copy(pid, os.fdopen(reading, "rb"))


def _answer(work: Callable[[int], Iterable[T]], share: int, writing: int, reading: Sequence[int]) -> None:
    """In a copy: do a share, then end the process, whatever happens."""
    try:
        interrupts.forget()
        for pipe in reading:  # so that no process still reads once the first has ended: writing then fails
            os.close(pipe)
        with os.fdopen(writing, "wb") as out:
            end = _End()
            try:
                for answer in work(share):
                    pickle.dump(answer, out)
                    out.flush()
            except Exception as error:
                end = _End(error)
            pickle.dump(end, out)
    finally:
        os._exit(0)
