"""The socket that a command asks, and the threads that answer. Never fails because of what a request holds.

Owns the place of the socket, which only this user may enter, and the check of who asks. A request that is
malformed, unknown, or whose handler raises is answered by PASS: the command then does as without us. Must not
know what a request means: handlers do, one for each kind.
"""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpucache.errors import OptionError, UsageError
from gpucache.host.files_seen import files_seen
from gpucache.host.scratch import PLACES, scratch
from gpucache.intercept.wire import Fields, Frame, Kind, WireError, encode, receive

PATH_BYTES_CAP = 100
"""The most bytes of the socket's path: sockets take 107, and names of commands' own may be shorter."""
READ_S = 60.0
"""How long a connection may take to send its request, or to take its reply."""
DRAIN_S = 10.0
"""How long the end waits for what is still being kept."""
_NAME = "s"
_RETRY_S = 0.05
_WAITING = 128
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the command is told, and what is done when it has been told."""

    kind: Kind
    fields: tuple[bytes, ...] = ()
    then: Callable[[], None] | None = None
    """Called after the reply has been sent, so that the command does not wait for it."""


PASSED = Reply(Kind.PASS, (b"",))
"""Do as without us, and tell nothing of it."""
HEARD = Reply(Kind.OK)

Handler = Callable[[Fields], Reply]
"""Answers one kind of request, in any thread and in several at once. What it raises becomes PASS."""
Handlers = Mapping[Kind, Handler]


_own_files = cache(files_seen)


def require_same_files(asking: str) -> None:
    """Raise OptionError unless a thread that asks sees the files that this process sees.

    ``asking`` is what ``files_seen`` says there. Headers are read here and compiled there.
    """
    if not asking or not _own_files():
        raise OptionError("it is not known which files its process sees, so nothing is kept for it")
    if asking != _own_files():
        raise OptionError(
            "its process sees other files than gpucache: it has another mount namespace, root directory or "
            "group, so nothing is kept for it"
        )


@contextmanager
def serve(handlers: Handlers) -> Iterator[Path]:
    """Answer requests until the end of the block; gives the path of the socket. Raises OSError, UsageError.

    At the end nobody new is heard, and what was begun is finished, as far as that takes no longer than
    ``DRAIN_S``.
    """
    with _place() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(_WAITING)
        server = _Server(listener, handlers)
        server.start()
        try:
            yield path
        finally:
            server.stop()


@contextmanager
def _place() -> Iterator[Path]:
    """Where the socket of this run goes: a folder of its own, which only this user may enter."""
    with ExitStack() as ends:
        for parent in ("", *PLACES):
            with suppress(OSError):
                path = ends.enter_context(scratch("run", parent)) / _NAME
                if len(os.fsencode(path)) <= PATH_BYTES_CAP:
                    break
        else:
            raise UsageError(
                "no directory for a socket can be made in TMPDIR, /tmp or /dev/shm; set TMPDIR to one that "
                "can be written and has a short path"
            )
        yield path


class _Server:
    """Accepts connections, each of which is answered in a thread of its own."""

    def __init__(self, listener: socket.socket, handlers: Handlers) -> None:
        self._listener = listener
        self._handlers = handlers
        self._stopped = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name="gpucache-accept", daemon=True)
        self._answering: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        self._accepting.start()

    def stop(self) -> None:
        """Hear nobody new; wait for what was begun."""
        self._stopped.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread that accepts
        end_s = time.monotonic() + DRAIN_S
        self._accepting.join(DRAIN_S)
        with self._lock:
            begun = tuple(self._answering)
        for thread in begun:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if not self._stopped.wait(_RETRY_S):  # no descriptor is left: the command goes on without us
                    _debug("a connection could not be accepted: %s", error)
                continue
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            with self._lock:
                self._answering.add(thread)
            try:
                thread.start()
            except RuntimeError:  # no thread is left
                self._forget(thread)
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(READ_S)
                if not _is_ours(connection):
                    return
                reply = self._reply(connection)
                connection.sendall(_encoded(reply))
            if reply.then is not None:
                reply.then()
        except OSError:
            pass  # whoever asked has gone, or waits for no reply
        except Exception:
            _debug("a request was answered, and what was to follow failed", failed=True)
        finally:
            self._forget(threading.current_thread())

    def _forget(self, thread: threading.Thread) -> None:
        with self._lock:
            self._answering.discard(thread)

    def _reply(self, connection: socket.socket) -> Reply:
        try:
            request = receive(connection)
            handler = self._handlers.get(Kind(request.kind))
            return PASSED if handler is None else handler(Fields(request.fields))
        except (WireError, ValueError) as error:
            _debug("a request does not read: %s", error)
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
        return encode(Frame(reply.kind, reply.fields))
    except WireError:  # an artifact that is larger than a frame may be
        return encode(Frame(PASSED.kind, PASSED.fields))


def _is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user asks; the folder stops all others but root."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return bool(uid == os.geteuid())
