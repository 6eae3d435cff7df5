"""Interrupts: which signals count as one, and how they wait for a safe moment.

Python raises KeyboardInterrupt between any two steps of the main thread, also between taking a lock and
remembering that it was taken. In a pool of futures such a lock stays taken forever, and the end of the pool
waits for it. A second interrupt may come during the clean-up after the first.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ALL = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def arm() -> None:
    """Make signals that ask to end raise KeyboardInterrupt, unless the process was started to ignore them."""
    for number in _numbers():
        if signal.getsignal(number) in (signal.SIG_DFL, _pass):
            signal.signal(number, signal.default_int_handler)


def disarm() -> None:
    """Do nothing at further interrupts, as this process is about to end."""
    _replace(_pass)


def disarmed() -> bool:
    """Whether ``disarm`` was called, as happens after an interrupt."""
    return any(signal.getsignal(number) is _pass for number in _numbers())


def ignore() -> None:
    """Ignore interrupts while the interpreter shuts down, as it forgets their handlers."""
    for number in _numbers():
        if signal.getsignal(number) in (signal.default_int_handler, _pass):
            signal.signal(number, signal.SIG_IGN)


def forget() -> None:
    """In a copy of this process: end at an interrupt, without a message."""
    for number in _numbers():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Defer interrupts during the block; its end raises KeyboardInterrupt if one arrived.

    So does the function that is yielded. Signals with other handlers are not deferred.
    """
    came: list[int] = []

    def raise_if_any() -> None:
        if came:
            came.clear()
            raise KeyboardInterrupt

    before = _replace(lambda number, _: came.append(number))
    try:
        yield raise_if_any
    finally:
        for number in before:
            signal.signal(number, signal.default_int_handler)
    raise_if_any()


def _replace(handler: Callable[[int, object], None]) -> list[int]:
    """Set the handler of every signal that raises KeyboardInterrupt; returns the signals."""
    if sys.platform != "win32":
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    ours = [number for number in _numbers() if signal.getsignal(number) is signal.default_int_handler]
    for number in ours:
        signal.signal(number, handler)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ours


def _numbers() -> list[int]:
    """The signals that ask a process to end; none in a thread, which cannot handle signals."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return _ALL


def _pass(number: int, frame: object) -> None:
    """Do nothing. Unlike SIG_IGN, children do not inherit it."""
