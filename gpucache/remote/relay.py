"""A relay between a library's HTTP client and its servers, which bounds the bytes of replies and requests.

The client is told that it is a proxy, so that nothing passes it by. It connects to the servers by itself, or
through the proxy of the environment. Only a client that knows its URL is served. Must not know what is
requested.
"""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from secrets import token_hex
from threading import BoundedSemaphore, Lock, Thread
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from gpucache.remote.connections import basic, proxy_of

_PIECE_BYTES = 1 << 16
_AT_ONCE = 256
"""How many connections are served at a time; those of other users of the machine end soon."""
_FIELDS = 128  # more than a request of a client has
_ENDS = (OSError, ValueError)
"""The errors that end a connection, or refuse a client that is not ours."""


class Bytes(NamedTuple):
    """The bytes of replies and of requests."""

    received: int
    sent: int


class OverflowedError(OSError):
    """More bytes than were allowed."""


class Relay:
    """A relay on a port of the loopback interface. A process that is forked must not use its parent's."""

    def __init__(self, connect_s: float) -> None:
        """A server that takes longer than ``connect_s`` to be reached is given up."""
        self._connect_s = connect_s
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://gpucache:{token_hex(16)}@127.0.0.1:{self._listening.getsockname()[1]}"
        self._secret = _field(urlsplit(self.url))
        self._lock = Lock()
        self._allowed = self._left = Bytes(0, 0)
        self._failure: OSError | None = None
        """The last failure: of a connection, or for more bytes than were allowed."""
        self._free = BoundedSemaphore(_AT_ONCE)
        Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def allowing(self, allowed: Bytes) -> Iterator[Callable[[], OSError | None]]:
        """Allow so many more bytes in the block, which gets a function for the last failure since its begin.

        Several threads share what they are allowed, and their failures.
        """
        before = self._failure
        self._allow(allowed)
        try:
            yield lambda: None if self._failure is before else self._failure
        finally:
            self._allow(Bytes(-allowed.received, -allowed.sent))

    def close(self) -> None:
        """Accept no more connections; those that are open end with the client's."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _allow(self, more: Bytes) -> None:
        with self._lock:
            self._allowed = Bytes(*(old + new for old, new in zip(self._allowed, more, strict=True)))
            raised = (old + max(new, 0) for old, new in zip(self._left, more, strict=True))
            self._left = Bytes(*map(min, raised, self._allowed))

    def _moved(self, received: int = 0, sent: int = 0) -> None:
        """Count bytes; raises OSError if they are too many."""
        with self._lock:
            self._left = Bytes(self._left.received - received, self._left.sent - sent)
            if min(self._left) < 0:
                if min(self._allowed) > 0:  # else nobody waits for them
                    self._failure = OverflowedError()
                raise OverflowedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._free.acquire()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """In a thread: pass the requests of a connection on, all of which are for one server."""
        with client, client.makefile("rb") as requests, ExitStack() as opened, suppress(*_ENDS):
            opened.callback(self._free.release)
            client.settimeout(self._connect_s)
            server: socket.socket | None = None
            while line := requests.readline(_PIECE_BYTES):
                method, target, version = line.decode("ascii").split()
                rest = iter(partial(requests.readline, _PIECE_BYTES), b"\r\n")  # endless if the client ends
                fields = list(islice(rest, _FIELDS))
                if self._secret not in fields or len(fields) == _FIELDS:
                    return
                client.settimeout(None)
                fields.remove(self._secret)
                tunnel = method == "CONNECT"
                url = urlsplit(f"https://{target}" if tunnel else target)
                proxy = proxy_of(url)
                if server is None:
                    server = self._connected(proxy or url)
                    opened.callback(_cut, server)
                    first = b"HTTP/1.1 200 OK\r\n\r\n" if tunnel and not proxy else b""
                    Thread(target=self._reply, args=(server, client, first), daemon=True).start()
                if proxy:
                    fields += (_field(proxy),) if proxy.username else ()
                elif not tunnel:
                    target = url._replace(scheme="", netloc="").geturl()
                if proxy or not tunnel:
                    self._send(
                        server, b"".join((f"{method} {target} {version}\r\n".encode(), *fields, b"\r\n"))
                    )
                lengths = (one for one in fields if one.lower().startswith(b"content-length:"))
                left = sys.maxsize if tunnel else int(next(lengths, b":0").partition(b":")[2])
                while left and (data := requests.read1(min(left, _PIECE_BYTES))):
                    self._send(server, data)
                    left -= len(data)

    def _connected(self, url: SplitResult) -> socket.socket:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            server = socket.create_connection((url.hostname or "", port), self._connect_s)
        except OSError as error:
            self._failure = error
            raise
        server.settimeout(None)
        return server

    def _send(self, server: socket.socket, data: bytes) -> None:
        self._moved(sent=len(data))
        server.sendall(data)

    def _reply(self, server: socket.socket, client: socket.socket, first: bytes) -> None:
        """In a thread: pass the replies of a server on, after some bytes of our own."""
        with server, suppress(OSError):
            client.sendall(first)
            while data := server.recv(_PIECE_BYTES):
                self._moved(received=len(data))
                client.sendall(data)
        _cut(client)


def _field(url: SplitResult) -> bytes:
    """The header field with the user and password for a proxy."""
    return "".join(f"{name}: {text}\r\n" for name, text in basic("proxy-authorization", url).items()).encode()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
