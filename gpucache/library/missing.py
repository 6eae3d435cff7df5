"""A miss: the program goes on with its compile, and a thread explains it, keeps it and logs it.

Imported by the first build that misses. Owns the order of that work, its bound, and its fate at a fork and at
the end of the process. Must not know a GPU stack.
"""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial

from gpucache.answers.lookup import Hit, Miss
from gpucache.engine.hits import alone
from gpucache.engine.prepare import Prepared, stamped
from gpucache.engine.stores import NoEntry, Stores, note_failure, note_miss
from gpucache.library import outcomes, process
from gpucache.model import Artifact

_MOST_WAITING = 16
_FORK_WAIT_S = 10.0
_LEAD_S = 0.001


class _Later:
    """Work that no program waits for, done in order by one thread, which ends when all of it is done.

    The thread is not a daemon: every exit that joins threads, in a ``multiprocessing`` child too, waits for
    the little that may be left. ``os._exit`` loses it. A fork waits for the piece that runs, so that its
    child inherits no lock of this thread, and leaves the rest to the parent.
    """

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: self._running.acquire(timeout=_FORK_WAIT_S),
                after_in_parent=self._go_on,
                after_in_child=self._begin,
            )

    def _begin(self) -> None:
        # If it were dropped before the locks know of the fork, it would unlock the parent's build.
        self._parents = vars(self).get("_waiting")
        self._running = threading.RLock()
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._is_awaited = False

    def _go_on(self) -> None:
        with suppress(RuntimeError):  # the fork did not wait any longer
            self._running.release()

    def add(self, stores: Stores, prepared: Prepared, work: Callable[[], object]) -> None:
        """Queue work on a request, to be done in order; waits while the queue is full."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                process.uncached(stores, prepared.request.program.name, error)

        with self._changed:
            if self._thread is not threading.current_thread():  # which would wait for itself
                self._changed.wait_for(lambda: len(self._waiting) < _MOST_WAITING)
            self._waiting.append(guarded)
            util = sys.modules.get("multiprocessing.util")
            if util is not None and not self._is_awaited:  # its children write files before they join threads
                self._is_awaited = True
                util.Finalize(None, self.wait, exitpriority=1)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpucache")
                try:
                    self._thread.start()
                except RuntimeError:  # no thread can be started any more
                    self._run()

    def _run(self) -> None:
        time.sleep(_LEAD_S)  # so that the program, and not this thread, has Python's lock first
        while True:
            with self._running:
                with self._changed:
                    self._changed.notify_all()
                    if not self._waiting:
                        self._thread = None
                        return
                    work = self._waiting.popleft()
                with suppress(BaseException):  # a handler of the log may even exit
                    work()

    def wait(self) -> None:
        """Wait until everything is done; does nothing on the thread that does it."""
        with self._changed:
            if self._thread is not threading.current_thread():
                self._changed.wait_for(lambda: self._thread is None)


LATER = _Later()


def flush() -> None:
    """Wait until every miss so far is explained and logged, and the compiled artifacts are in the cache.

    Writes a cache in a file. With GPUCACHE_REMOTE_WRITE=1 also waits until they are sent. An exit of the
    process does so by itself, and waits a few seconds for entries in transit. Call it before ``os._exit``, or
    to read the log, the journal or the cache in the same process.
    """
    LATER.wait()
    process.write_files()
    remote = process.stores().remote
    if remote is not None:
        remote().flush()


def reason(stores: Stores, prepared: Prepared, met: NoEntry | Miss) -> Callable[[], Miss]:
    """The function that explains a miss; it raises CacheMissError if the settings require a hit."""

    @cache
    def why() -> Miss:
        from gpucache.engine.explain import explain

        return met if isinstance(met, Miss) else explain(stores, prepared, met)

    if stores.require:
        from gpucache.engine.lookup import require_hit

        require_hit(stores, prepared, why())
    return why


def build(
    stores: Stores,
    prepared: Prepared,
    compile_: Callable[[], Artifact],
    why: Callable[[], Miss],
    *,
    useless: Hit | None = None,
) -> Hit | Artifact:
    """Compile after a miss, or take the entry that another process or thread published meanwhile.

    The key's lock is held until the artifact is published, unless the server of ``gpucache run`` holds it.
    Raises the errors of ``compile_``.
    """
    from gpucache.engine.lookup import changed_headers

    prepared = stamped(prepared, stores)

    def publish() -> None:
        from gpucache.engine.lookup import keep

        note_miss(stores, prepared, why())
        with lock:
            outcomes.tell(stores, prepared, keep(stores, prepared, artifact, why(), changed))

    with ExitStack() as held:
        published = None if stores.asks else held.enter_context(alone(stores, prepared, useless=useless))
        if published is not None:
            return published
        LATER.add(stores, prepared, why)  # while it compiles
        with noting_failures(stores, [(prepared, why)]):
            artifact = compile_()
        changed = changed_headers(stores, prepared)
        lock = held.pop_all()
    LATER.add(stores, prepared, publish)
    return artifact


@contextmanager
def noting_failures(stores: Stores, missed: Sequence[tuple[Prepared, Callable[[], Miss]]]) -> Iterator[None]:
    try:
        yield
    except Exception:
        for prepared, why in missed:
            LATER.add(stores, prepared, partial(_failed, stores, prepared, why))
        raise


def _failed(stores: Stores, prepared: Prepared, why: Callable[[], Miss]) -> None:
    note_failure(stores, prepared, why())
