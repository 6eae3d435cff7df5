"""Builds of a command while it runs: their tokens, their locks, and the outcome of each.

A build that missed holds the locks of its keys from the question until its entry is published, so that what
asks for the same meanwhile, here or below another ``run``, waits a while and hits. What a build is and how it
is looked up is known to OpenCL's and NVRTC's sessions alone.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from gpucache.answers.lookup import Miss
from gpucache.answers.run import Intercepted, RunResult
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers
from gpucache.intercept.server import Reply
from gpucache.intercept.telling import Say, miss_line, refused
from gpucache.intercept.wire import WireError, number
from gpucache.model import CacheKey

if TYPE_CHECKING:
    from gpucache.intercept.answering import Rows

YOUNG_NS = 2_000_000_000
"""How far clocks of file systems may be behind."""
_HELD_WAIT_S = 2.0
"""How long a build waits for one of the same key: with the lookup less than a program's time-out."""
T = TypeVar("T")
_V = TypeVar("_V")


class Session(Generic[T]):
    """The builds of one compiler."""

    def __init__(self, layers: Layers, say: Say) -> None:
        """``say`` is told each hit and each miss when it is known."""
        self.layers = layers
        self.say = say
        self._lock = threading.Lock()
        self._tokens = count(1)
        self._builds: dict[bytes, T] = {}
        self._done: list[Intercepted] = []
        self._since_ns = time.time_ns()

    def begin(self, build: T) -> bytes:
        """The token of a build of which more will be heard."""
        token = number(next(self._tokens))
        self._builds[token] = build
        return token

    def known(self, token: bytes) -> T:
        """The build of a token; raises WireError for one that nobody gave."""
        build = self._builds.get(token)
        if build is None:
            raise WireError("no build has this token")
        return build

    def end(self, token: bytes) -> T:
        """The same, which is not known any more."""
        with self._lock:
            build = self.known(token)
            del self._builds[token]
            return build

    def done(self, outcome: Intercepted) -> None:
        """Keep what became of a build."""
        self._done.append(outcome)

    def refuse(self, outcome: Intercepted) -> Reply:
        """Have a build fail, because its program demands a hit."""
        outcome, reply = refused(outcome)
        self.say(miss_line(outcome))
        self.done(outcome)
        return reply

    def hold(self, keys: Iterable[CacheKey]) -> ExitStack:
        """Hold the locks of keys until it is closed; without those that others do not give back in time."""
        held, end_s, store = ExitStack(), time.monotonic() + _HELD_WAIT_S, self.layers.target
        if store is None:
            return held
        for key in keys:
            held.enter_context(store.single_flight(key, max(0.0, end_s - time.monotonic())))
        return held

    def _note_miss(self, prepared: Prepared, miss: Miss) -> None:
        from gpucache.engine.journal import note_miss

        note_miss(self.layers, prepared, miss)

    @cached_property
    def rows(self) -> "Rows":
        """The index of the user's root."""
        from gpucache.intercept.answering import Rows

        return Rows(self.layers, self._since_ns)

    def ended(self) -> tuple[Intercepted, ...]:
        """What became of all builds, after the command's end; their number is written down."""
        from gpucache.engine.journal import note_process

        hits = sum(one.result is RunResult.HIT for one in self._done)
        misses = sum(one.result not in (RunResult.HIT, RunResult.PASSED) for one in self._done)
        if hits + misses:
            note_process(self.layers, hits, misses)
        return tuple(self._done)


def within(limit_s: float, action: Callable[[], _V]) -> _V:
    """The result of an action, or what it raises; TimeoutError where it takes longer, and then it goes on."""
    results: list[_V] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    if not ended.wait(limit_s):
        raise TimeoutError
    for error in errors:
        raise error
    return results[0]
