"""Interrupts: which signals are one, and those that wait for a safe moment.

Python raises KeyboardInterrupt between any two steps of the main thread, also between taking a lock
and remembering that it was taken. Inside a pool of futures such a lock is then held for ever, and
the end of the pool waits for it. A second one may come while the first is tidied up after.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def arm() -> None:
    """Being told to end is an interrupt; what this process was started to ignore, as by nohup, is not."""
    for number in _numbers():
        if signal.getsignal(number) in (signal.SIG_DFL, _pass):
            signal.signal(number, signal.default_int_handler)


def disarm() -> None:
    """Hear no more interrupts, as this process is about to end."""
    _replace(_pass)


def ignore() -> None:
    """Be ended by no interrupt while the interpreter ends, which forgets what handles them."""
    for number in _numbers():
        if signal.getsignal(number) in (signal.default_int_handler, _pass):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Hold back what would raise KeyboardInterrupt; the function given raises it if one came.

    So does the end of the block. Where signals are not ours to handle nothing is held.
    """
    came: list[int] = []

    def check() -> None:
        if came:
            came.clear()
            raise KeyboardInterrupt

    before = _replace(lambda number, _: came.append(number))
    try:
        yield check
    finally:
        for number in before:
            signal.signal(number, signal.default_int_handler)
    check()


def _replace(handler: Callable[[int, object], None]) -> list[int]:
    """Handle every signal that raises KeyboardInterrupt; which those are."""
    ours = [number for number in _numbers() if signal.getsignal(number) is signal.default_int_handler]
    for number in ours:
        signal.signal(number, handler)
    return ours


def _numbers() -> list[int]:
    """What a process is told to end by; nothing in a thread, which may handle no signals."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]


def _pass(number: int, frame: object) -> None:
    """Do nothing. Unlike SIG_IGN no child inherits it."""
