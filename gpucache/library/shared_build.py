"""A build that threads share: in progress, built or failed. Must not know the thing that is built."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Built = TypeVar("Built")

_MOST_BUILDS = 2
_CHANGED = threading.Condition()
"""Locked while the state of a build changes, never while anything is built."""


def _after_fork() -> None:
    global _CHANGED
    _CHANGED = threading.Condition()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Open(NamedTuple):
    """The state in which no thread is building; ``failed`` is the error of the last build."""

    builds: int = 0
    failed: Exception | None = None


class _InProgress(NamedTuple):
    process: int
    thread: int
    before: _Open


@dataclass(frozen=True, slots=True)
class _Built(Generic[Built]):
    value: Built


class SharedBuild(Generic[Built]):
    """Something that is built once, by the first thread that wants it, while the others wait.

    If a build fails, its thread gets the error, and the next thread tries once more; after that all get the
    second error. A forked child does not wait for a thread of its parent.
    """

    def __init__(self) -> None:
        self._state: _Open | _InProgress | _Built[Built] = _Open()

    def get(self, build: Callable[[], Built]) -> Built:
        """The result, built by this call if no other thread did; raises the errors of ``build``."""
        me = (os.getpid(), threading.get_ident())
        with _CHANGED:
            before = self._when_ended(*me)
            if isinstance(before, _Built):
                return before.value
            if before.failed is not None and before.builds >= _MOST_BUILDS:
                raise before.failed
            self._state = _InProgress(*me, before)
        try:
            value = build()
        except Exception as error:
            self._become(_Open(before.builds + 1, error))
            raise
        except BaseException:  # an interrupt is not a failed build
            self._become(before)
            raise
        self._become(_Built(value))
        return value

    def _when_ended(self, process: int, thread: int) -> "_Open | _Built[Built]":
        """Wait until no thread builds, and return the state. The caller has the condition locked."""
        while isinstance(state := self._state, _InProgress):
            if state.process != process:
                return state.before
            if state.thread == thread:
                raise RuntimeError("a build asks for its own result; ask when it has ended")
            _CHANGED.wait()
        return state

    def _become(self, state: "_Open | _Built[Built]") -> None:
        with _CHANGED:
            self._state = state
            _CHANGED.notify_all()
