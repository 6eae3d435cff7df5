"""HTTP requests that end in time and are bounded in bytes, for any reply of the server.

Owns the connections, which are kept, their proxies, redirects and repetitions, and the sentences for servers
that do not reply: each request has a deadline that cuts its connection, and bytes are counted as they come.
Must not know what is requested.
"""

import os
import random
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPMessage,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from ipaddress import ip_address
from itertools import count
from socket import SHUT_RDWR, gaierror, socket
from ssl import SSLCertVerificationError, SSLContext, SSLError, create_default_context
from threading import Event, Thread
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from gpucache.errors import RemoteError
from gpucache.host import os_errors
from gpucache.remote.objects import Limits
from gpucache.units import printable

_PIECE_BYTES = 1 << 20
_LARGEST_TALK = 1 << 16
"""The most bytes of a refusal that are read, so that its connection can be used again."""
_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_LINK_LOCAL = "169.254."
_MOVED = frozenset({301, 302, 303, 307, 308})
_PLAIN = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
"""The reasons of failures of TLS with a server that does not use it."""
_BUSY = frozenset({408, 429, 500, 502, 503, 504})


class Reply(NamedTuple):
    """The reply of a server."""

    status: int
    headers: HTTPMessage
    data: bytes
    """The content; empty if it is not complete."""
    url: str
    """Its address, behind redirects."""
    is_whole: bool = True
    """Whether there are no more bytes than were allowed."""


class Request(NamedTuple):
    """A request, and how many bytes its reply may have."""

    url: str
    limit_bytes: int
    method: str = "GET"
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    """Without ``Authorization`` where a redirect leads to another server."""

    @property
    def server(self) -> tuple[str, str]:
        url = urlsplit(self.url)
        return url.scheme, url.netloc


class _Connection(HTTPConnection):
    """A connection that another thread can cut, also while TLS is agreed on."""

    guard: socket | None = None
    was_cut = False
    forwards: dict[str, str] | None = None
    """The headers for a proxy that takes whole URLs; None without such a proxy."""

    def connect(self) -> None:
        """Connect within the time for that; ``cut`` bounds the rest, beginning with TLS."""
        super().connect()
        self.sock.settimeout(None)
        self.guard = self.sock.dup()
        if self.was_cut:
            self.cut()

    def cut(self) -> None:
        """Let every call that reads or writes return."""
        self.was_cut = True
        if self.guard:
            with suppress(OSError):
                self.guard.shutdown(SHUT_RDWR)

    def end(self) -> None:
        """Close the connection and its guard; ``close`` is called before a reply's last bytes are read."""
        self.close()
        if self.guard:
            self.guard.close()


class _SecureConnection(HTTPSConnection, _Connection):
    """A ``_Connection`` with TLS."""


class _Deadline:
    """The deadline of a request, a second later for each MiB that it sends or that was received."""

    def __init__(self, limits: Limits, sent_bytes: int) -> None:
        self._limits, self._begun, self._moved = limits, time.monotonic(), sent_bytes

    def left(self) -> float:
        return max(self._begun + self._limits.for_bytes(self._moved) - time.monotonic(), 0)

    def moved(self, size_bytes: int) -> None:
        self._moved += size_bytes

    def guard(self, connection: _Connection) -> Event:
        """Cut a connection at the deadline, unless the event is set before."""
        done = Event()

        def wait() -> None:
            while left := self.left():
                if done.wait(left):
                    return
            if not done.is_set():
                connection.cut()

        Thread(target=wait, daemon=True).start()
        return done


class Connections:
    """Connections to one store; for several threads."""

    def __init__(self, store: str, limits: Limits, plain: str, *, leaves_tls: bool = False) -> None:
        """``store`` is its URL in messages, and ``plain`` the scheme of such stores without TLS.

        ``leaves_tls`` allows redirects to servers without TLS.
        """
        self._store, self._limits, self._plain, self._leaves_tls = store, limits, plain, leaves_tls
        self._idle: defaultdict[tuple[int, str, str], list[_Connection]] = defaultdict(list)
        """Free connections by process and server: a forked process must not use its parent's."""

    def reply(self, request: Request) -> Reply:
        """The reply, within the time of one request for all tries together.

        Raises RemoteError if there is none.
        """
        deadline = _Deadline(self._limits, len(request.body or b""))
        for tried in count():
            failed = None
            try:
                reply = self._follow(request, deadline)
            except (OSError, HTTPException, ValueError) as error:
                failed = self._failed(error)
            pause = pause_s(tried)
            last = tried == self._limits.retries or pause > deadline.left()
            if failed and last:
                raise failed
            if not failed and (last or reply.status not in _BUSY):
                break
            time.sleep(pause)
        return reply

    def close(self) -> None:
        for kept in list(self._idle.values()):
            while kept:
                kept.pop().end()

    def _follow(self, request: Request, deadline: _Deadline) -> Reply:
        """The reply behind redirects, which may lead to the same server, or to another one with TLS."""
        headers = {name: text for name, text in request.headers.items() if name != "Authorization"}
        for _ in range(_REDIRECTS):
            reply = self._ask(request, deadline)
            if reply.status not in _MOVED or "Location" not in reply.headers:
                return reply
            moved = request._replace(url=urljoin(request.url, reply.headers["Location"]))
            if moved.server != request.server:
                schemes = request.server[0], moved.server[0]
                if schemes != ("https", "https") and not (self._leaves_tls and schemes[1] in _PORTS):
                    raise RemoteError(
                        f"{self._store} redirects to another server; name the store by its URL there"
                    )
                moved = moved._replace(headers=headers)
            request = moved
        raise RemoteError(f"{self._store} redirects without an end; check its address")

    def _ask(self, request: Request, deadline: _Deadline) -> Reply:
        """One request, on a connection that was kept or on a new one."""
        url = urlsplit(request.url)
        kept = self._idle[os.getpid(), url.scheme, url.netloc]
        try:
            connection = kept.pop()
        except IndexError:
            connection = self._connection(url)
        was_kept = connection.sock is not None
        done = deadline.guard(connection)
        try:
            if not was_kept:
                connection.connect()
            target = url._replace(scheme="", netloc="") if connection.forwards is None else url
            headers = {**request.headers, **(connection.forwards or {})}
            connection.request(request.method, target.geturl(), body=request.body, headers=headers)
            reply = _received(connection.getresponse(), request, deadline)
            if connection.was_cut:  # which may look like the end of a reply
                raise TimeoutError
        except Exception:
            connection.end()
            if connection.was_cut:
                raise TimeoutError from None
            if was_kept:  # the server may have closed it since
                return self._ask(request, deadline)
            raise
        finally:
            done.set()
        if connection.sock is None or not reply.is_whole:
            connection.end()
        else:
            kept.append(connection)
        return reply

    @cached_property
    def _tls(self) -> SSLContext:
        """Reads the trusted certificates, which takes longer than a request."""
        return create_default_context()

    def _connection(self, url: SplitResult) -> _Connection:
        """A connection to the server of a URL or to its proxy, not connected yet."""
        host, proxy, timeout = url.hostname or "", proxy_of(url), self._limits.connect_s
        to = (proxy.hostname or "", proxy.port or 80) if proxy else (host, url.port or _PORTS[url.scheme])
        if url.scheme == "https":
            secure = _SecureConnection(*to, timeout=timeout, context=self._tls, blocksize=_PIECE_BYTES)
            if proxy:
                secure.set_tunnel(host, url.port or 443, basic("Proxy-Authorization", proxy))
            return secure
        connection = _Connection(*to, timeout=timeout, blocksize=_PIECE_BYTES)
        connection.forwards = basic("Proxy-Authorization", proxy) if proxy else None
        return connection

    def _failed(self, error: Exception) -> RemoteError:
        if isinstance(error, TimeoutError):
            told = "does not respond in time; check the network, or allow more time (--timeout)"
        elif isinstance(error, gaierror):
            told = "cannot be found; check its name and the network"
        elif isinstance(error, SSLError) and error.reason in _PLAIN:
            told = f"does not use TLS; check its port, or write {self._plain}:// if it has none"
        elif isinstance(error, SSLCertVerificationError):
            told = "has no certificate that is trusted; check its address, or set SSL_CERT_FILE"
        elif isinstance(error, OSError) and not isinstance(error, HTTPException):
            reason = printable(os_errors.reason(error))
            told = f"cannot be reached ({reason}); check its address and the network, or the proxy"
        else:
            told = "breaks off or garbles its replies; check its address and its log"
        return RemoteError(f"{self._store} {told}")


def pause_s(tried: int) -> float:
    """The seconds before a request is sent again that failed so many times before."""
    return (1 + random.random()) * 0.1 * (1 << tried)


def is_this_machine(host: str) -> bool:
    """Whether a host without its port is this machine, which no proxy leads to."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def basic(header: str, url: SplitResult) -> dict[str, str]:
    """The header with the user and password of a URL, if it has any."""
    if url.username is None:
        return {}
    shown = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
    return {header: f"Basic {b64encode(shown).decode()}"}


def proxy_of(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a URL; none for this machine and its metadata."""
    host = url.hostname or ""
    proxies = {} if is_this_machine(host) or host.startswith(_LINK_LOCAL) else getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _received(response: HTTPResponse, request: Request, deadline: _Deadline) -> Reply:
    """The reply with its bytes, which are bounded by the length it shows and as they come."""
    limit = request.limit_bytes if 200 <= response.status < 300 else _LARGEST_TALK
    expected, pieces, size = response.length, list[bytes](), 0
    with response:
        while max(expected or 0, size) <= limit and (piece := response.read(_PIECE_BYTES)):
            pieces.append(piece)
            size += len(piece)
            deadline.moved(len(piece))
    is_whole = max(expected or 0, size) <= limit
    if is_whole and size < (expected or 0):
        raise IncompleteRead(b"", (expected or 0) - size)
    data = b"".join(pieces) if is_whole else b""
    return Reply(response.status, response.headers, data, request.url, is_whole)
