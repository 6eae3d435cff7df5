"""Serves a command's requests at a socket, in threads. Never fails because of a request's content.

Owns the check of the asking user. A request that is malformed, unknown, or whose handler raises is answered
by PASS: the command then runs as without gpucache. Must not know what a request means: handlers do, one for
each kind; or where the socket is, which ``listening`` owns.
"""

import os
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from gpucache.answers.run import Intercepted, RunResult
from gpucache.errors import OptionError
from gpucache.host.file_stamps import files_seen
from gpucache.serve.environment import drain_s, step_s
from gpucache.serve.listening import Listening
from gpucache.serve.wire import WITH_VIEW, Fields, Frame, Kind, WireError, encode, receive

_LOADED = (Kind.LOADED, Kind.NVRTC_LOADED)
_BUILDS = (Kind.BUILD, Kind.COMPILE, Kind.PART, Kind.LINK)
_REFUSED_CAP = 16
_NOTES_CAP = 1 << 16
READ_S = 60.0
"""How long a connection may take to send its request, or to take its reply."""
_RETRY_S = 0.05
_SWITCH_S = 0.0002
"""Python's switch interval: a thread that computes soon gives way to one that a program waits for."""
_QUIET_S = 0.003
"""How long no request came before the work after replies begins: after a build the next is soon asked for."""
_DELAY_S = 0.03
"""How long it waits for that."""
_FREE = 3
"""How many threads wait for a connection before others end."""
THREAD = "gpucache-answers"
"""The name of those threads."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to the command, and the work that follows the reply."""

    kind: Kind
    fields: tuple[bytes, ...] = ()
    view: bytes = b""
    """What the program must see for it to be true, as ``conditions.of_view`` has it; empty for nothing."""
    then: Callable[[], None] | None = None
    """Called after the reply has been sent, so that the command does not wait for it."""


PASSED = Reply(Kind.PASS, (b"",))
"""Do as without gpucache, and report nothing of it."""
HEARD = Reply(Kind.OK)

Handler = Callable[[Fields], Reply]
"""Answers one kind of request, in any thread and in several at once. Its errors become PASS."""
Handlers = Mapping[Kind, Handler]


_own_files = cache(files_seen)


def require_same_files(asking: str, cwd: str) -> None:
    """Raise OptionError unless the asking thread sees the files that this process sees.

    ``asking`` is the result of ``files_seen`` there, ``cwd`` its current directory. Headers are read in this
    process and compiled in that one.
    """
    if not cwd:
        raise OptionError("its current directory is gone, so nothing is kept for it")
    if not asking or not _own_files():
        raise OptionError("gpucache cannot determine which files its process sees, so nothing is kept for it")
    if asking != _own_files():
        raise OptionError(
            "its process may see other files than gpucache: it has another namespace, root directory, user, "
            "group or capabilities, so nothing is kept for it"
        )


class Service(Protocol):
    """Answers some of a command's requests."""

    @property
    def handlers(self) -> Handlers:
        """The handler of each kind of request."""

    def finish(self) -> Sequence[Intercepted]:
        """Called when the command has ended and no handler runs any more: the outcome of each build."""


S = TypeVar("S", bound=Service)


class Later(Generic[S]):
    """A service that is made when it is first asked: many commands ask nothing, and making it takes a while.

    A program's library says early that there may be questions, so that it is made while a driver starts.
    """

    def __init__(self, make: Callable[[], S], kinds: Iterable[Kind]) -> None:
        self.made: S | None = None
        self._make = make
        self._kinds = tuple(kinds)
        self._error: Exception | None = None
        self._begun = threading.Lock()
        self._ready = threading.Event()
        self._late = 0

    @property
    def handlers(self) -> Handlers:
        return {kind: self._announced if kind in _LOADED else self._asked(kind) for kind in self._kinds}

    def finish(self) -> Sequence[Intercepted]:
        """The outcome of each build, or why none was served: the command has run all the same."""
        if self._error is not None:
            reason = f"the server could not be started: {self._error}"
            return (Intercepted("", "", RunResult.PASSED, reason=reason),)
        late = Intercepted("", "", RunResult.PASSED, reason="the server was not ready in time")
        return (*(() if self.made is None else self.made.finish()), *[late] * self._late)

    def now(self) -> S | None:
        """The service, made by now if it has not been asked before; None if it cannot be made."""
        self._begin()
        self._ready.wait(drain_s())
        return self.made

    def _announced(self, _: Fields) -> Reply:
        self._begin()
        return HEARD

    def _asked(self, kind: Kind) -> Handler:
        def answer(fields: Fields) -> Reply:
            self._begin()
            in_time = self._ready.wait(step_s())
            if kind in _BUILDS and not in_time:
                self._late += 1  # two threads may count one, which is reported all the same
            return PASSED if self.made is None else self.made.handlers[kind](fields)

        return answer

    def _begin(self) -> None:
        """Make the service, in another thread, so that no request waits longer than its limit."""
        if self._begun.acquire(blocking=False):
            try:
                threading.Thread(target=self._run, name="gpucache-service", daemon=True).start()
            except RuntimeError:  # no thread is left
                self._run()

    def _run(self) -> None:
        try:
            self.made = self._make()
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()


@contextmanager
def serve(handlers: Handlers) -> Iterator[Path]:
    """Answer requests until the end of the block; gives the socket's path. Raises OSError, UsageError."""
    listening = Listening(partial(answer_all, handlers))
    try:
        yield Path(listening.open())
    finally:
        listening.close()


def answer_all(handlers: Handlers, listener: int, place: Listening, first: int) -> None:
    """Serve a listening socket until it is shut down, which is the end; ``first`` is a connection to it.

    Requests sent by then are read and finished, as far as that takes no longer than ``drain_s``. Refused
    processes, and whether our libraries are loaded, are noted in ``place``.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        with socket.socket(fileno=os.dup(listener)) as own:
            _Server(own, handlers, place).run(socket.socket(fileno=first))
    finally:
        sys.setswitchinterval(interval_s)


class _Server:
    """Threads that each accept a connection and answer it; one at a time does the work after replies."""

    def __init__(self, listener: socket.socket, handlers: Handlers, place: Listening) -> None:
        self._listener = listener
        self._handlers = handlers
        self._place = place
        self._lock = threading.Lock()
        self._threads = list[threading.Thread]()
        self._free = 0
        """How many threads wait for a connection, or are about to."""
        self._over = threading.Event()
        """Set when the last connection has been accepted."""
        self._asked_s = 0.0
        """When the last request came."""
        self._work = deque[tuple[float, Callable[[], None]]]()
        """The work after replies, each with the time from which it waits no more."""
        self._keeping = threading.Lock()

    def run(self, first: socket.socket) -> None:
        """Serve until the end, including all requests sent before it, as far as ``drain_s`` allows."""
        connection: socket.socket | None = first
        while connection is not None and not self._hand_on(connection):
            connection.close()
            connection = self._accepted()
        self._over.wait()
        end_s = time.monotonic() + drain_s()
        with self._lock:  # none starts any more: a thread that saw the end counts as free
            begun = tuple(self._threads)
        for thread in begun:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _accepted(self) -> socket.socket | None:
        """The next connection; None at the end."""
        while True:
            try:
                return self._listener.accept()[0]
            except OSError as error:
                if self._place.ended:
                    self._over.set()
                    return None
                # No descriptor is left: the command goes on without us.
                _debug("a connection could not be accepted: %s", error)
                time.sleep(_RETRY_S)

    def _hand_on(self, connection: socket.socket | None = None) -> bool:
        """Start a thread that serves this connection or the next, unless one waits; False if none is left."""
        with self._lock:
            if not self._free:
                thread = threading.Thread(target=self._serve, args=(connection,), name=THREAD, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._threads.append(thread)
                self._free += 1
        return True

    def _serve(self, connection: socket.socket | None) -> None:
        """Answer connections until the end, or until enough other threads wait for one."""
        while (connection := connection or self._accepted()) is not None:
            with self._lock:
                self._free -= 1
            with connection:
                if self._hand_on():  # else the command goes on without us
                    self._answer(connection)
            connection = None
            self._keep()
            with self._lock:
                if self._free >= _FREE:
                    self._threads.remove(threading.current_thread())
                    return
                self._free += 1

    def _answer(self, connection: socket.socket) -> None:
        self._asked_s = time.monotonic()
        try:
            connection.settimeout(READ_S)
            if stranger := _stranger(connection):
                self._refuse(stranger)
                return
            reply = self._reply(connection)
            with suppress(OSError):  # a message without a question waits for no reply
                connection.sendall(_encoded(reply))
            if reply.then is not None:
                self._work.append((time.monotonic() + _DELAY_S, reply.then))
        except Exception:  # the asking process has ended, or the reply is too large for the memory
            _debug("a reply could not be sent", failed=True)

    def _keep(self) -> None:
        """Do the work after replies, one after the other, while no program is likely to ask.

        A thread that makes one system call after the other takes Python's lock again each time before a
        thread that waits for it has woken up, so that a question would wait for the end of the work.
        """
        while self._work and self._keeping.acquire(blocking=False):
            while self._work:
                latest_s, work = self._work.popleft()
                while not self._place.ended and time.monotonic() < min(self._asked_s + _QUIET_S, latest_s):
                    time.sleep(_QUIET_S)
                try:
                    work()
                except Exception:
                    _debug("a request was answered, and the work after it failed", failed=True)
            self._keeping.release()

    def _refuse(self, stranger: str) -> None:
        if len(self._place.refused) < _REFUSED_CAP:
            self._place.refused[stranger] = None

    def _reply(self, connection: socket.socket) -> Reply:
        try:
            request = receive(connection)
            if request.kind in _LOADED:
                self._place.loaded = True
            if request.kind == Kind.NOTE and len(self._place.told) < _NOTES_CAP:
                self._place.told += request.fields
            handler = self._handlers.get(Kind(request.kind))
            return PASSED if handler is None else handler(Fields(request.fields))
        except (WireError, ValueError) as error:
            _debug("a request is not valid: %s", error)
        except OSError:
            raise
        except Exception:
            _debug("a request could not be answered", failed=True)
        return PASSED


def _debug(sentence: str, *told: object, failed: bool = False) -> None:
    import logging

    logging.getLogger(__name__).debug(sentence, *told, exc_info=failed)


def _encoded(reply: Reply) -> bytes:
    try:
        if reply.view:
            return encode(Frame(reply.kind | WITH_VIEW, (reply.view, *reply.fields)))
        return encode(Frame(reply.kind, reply.fields))
    except WireError:  # an artifact that is larger than a frame may be
        return encode(Frame(PASSED.kind, PASSED.fields))


def _stranger(connection: socket.socket) -> str:
    """The process that asks, if it is another user's; the directory stops all others but root."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    if uid == os.geteuid():
        return ""
    name = "a process"
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return f"{name} (process {pid}, user {uid})"
