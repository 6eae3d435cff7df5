"""A store on a web server, which can only be read: ``http://`` or ``https://[USER:PASSWORD@]HOST[:PORT][/PATH]``.

An object is the file of its name below the URL. Owns the connections, which are kept, and the bounds: each
object has a deadline that cuts its connection, for any reply of the server, and bytes are counted as they
come. Must not know the content of objects.
"""

import os
import random
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from ipaddress import ip_address
from itertools import count
from socket import SHUT_RDWR, gaierror, socket
from ssl import SSLContext, SSLError, create_default_context
from threading import Event, Thread
from typing import NamedTuple, NoReturn
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from gpucache.errors import RemoteError, UsageError
from gpucache.host import os_errors
from gpucache.remote.objects import Limits, in_parallel, require_object_name

_PIECE_BYTES = 1 << 20
_LARGEST_TALK = 1 << 16
"""The bytes that are read of a reply that is not an object, so that its connection can be kept."""
_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_MISSING = frozenset({404, 410})
_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
_REFUSED = frozenset({401, 403, 407})
_BUSY = frozenset({429, 500, 502, 503, 504})


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
        """Close it. ``close`` leaves the guard, as it is called before the last bytes of a reply are read."""
        self.close()
        if self.guard:
            self.guard.close()


class _SecureConnection(HTTPSConnection, _Connection):
    """The same with TLS."""


class _Reply(NamedTuple):
    status: int
    location: str
    data: bytes | None
    """None if there are more bytes than were allowed."""


class _Deadline:
    """The deadline of an object, a second later for each MiB received."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._begun, self._received = limits, time.monotonic(), 0

    def left(self) -> float:
        """The seconds until then, at least 0."""
        return max(self._begun + self._limits.for_bytes(self._received) - time.monotonic(), 0)

    def received(self, size_bytes: int) -> None:
        """Note that so many more bytes arrived."""
        self._received += size_bytes

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


class WebObjects:
    """See ``gpucache.remote.objects.Objects``."""

    lists = False
    served = True
    writes = False

    def __init__(self, url: SplitResult, limits: Limits) -> None:
        self._place = (url.scheme, url.netloc.rpartition("@")[2])
        path = quote(url.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        self.url = f"{url.scheme}://{self._place[1]}{path}"
        self._authorization = _basic("Authorization", url)
        self._limits = limits
        self._idle: defaultdict[tuple[int, str, str], list[_Connection]] = defaultdict(list)
        """By process, as a forked one must not use its parent's connections, and by server."""

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """One GET for each object."""
        return in_parallel(lambda name: (name, self._read(name, limit_bytes)), names)

    def close(self) -> None:
        """Close the connections that are kept."""
        for kept in list(self._idle.values()):
            while kept:
                kept.pop().end()

    def _only_read(self, *_: object, **__: object) -> NoReturn:
        raise RemoteError(
            f"{self.url} is a web server, which can only be read; name the store by a directory or a URL of "
            "s3://, gs://, az:// or oci://"
        )

    listed = create = replace = remove = finish = _only_read

    def _read(self, name: str, limit_bytes: int) -> bytes | None:
        reply = self._persist(urlsplit(f"{self.url}/{require_object_name(name)}"), limit_bytes)
        if reply.status in _MISSING:
            return None
        if reply.status in _REFUSED:
            raise RemoteError(
                f"{self.url} refuses to send {name} ({reply.status}); check the permissions there, or put a "
                "user and a password into the URL"
            )
        if reply.status != 200:
            raise RemoteError(f"{self.url} returns {reply.status} for {name}; check its address and its log")
        return reply.data

    def _persist(self, url: SplitResult, limit_bytes: int) -> _Reply:
        """The reply within the time of one request, however often it is requested."""
        deadline = _Deadline(self._limits)
        for tried in count():
            failed = None
            try:
                reply = self._follow(url, limit_bytes, deadline)
            except (OSError, HTTPException, ValueError) as error:
                failed = self._failed(error)
            pause = random.random() * 0.2 * 2**tried
            last = tried == self._limits.retries or pause > deadline.left()
            if failed and last:
                raise failed
            if not failed and (last or reply.status not in _BUSY):
                break
            time.sleep(pause)
        return reply

    def _follow(self, url: SplitResult, limit_bytes: int, deadline: _Deadline) -> _Reply:
        """The reply behind redirects, which may only lead to the same server or from TLS to TLS."""
        for _ in range(_REDIRECTS):
            reply = self._ask(url, limit_bytes, deadline)
            if reply.status not in _ELSEWHERE:
                return reply
            target = urlsplit(urljoin(url.geturl(), reply.location))
            if not (target[:2] == url[:2] or target.scheme == url.scheme == "https"):
                raise RemoteError(f"{self.url} redirects to another server; name the store by its URL there")
            url = target
        raise RemoteError(f"{self.url} redirects without an end; check its address")

    def _ask(self, url: SplitResult, limit_bytes: int, deadline: _Deadline) -> _Reply:
        """One request, on a connection that was kept or on a new one."""
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
            own = self._authorization if url[:2] == self._place else {}
            connection.request("GET", target.geturl(), headers={**own, **(connection.forwards or {})})
            reply = _received(connection.getresponse(), limit_bytes, deadline)
            if connection.was_cut:  # which may look like the end of a reply
                raise TimeoutError
        except Exception:
            connection.end()
            if connection.was_cut:
                raise TimeoutError from None
            if was_kept:  # the server may have closed it since
                return self._ask(url, limit_bytes, deadline)
            raise
        finally:
            done.set()
        if connection.sock is None or reply.data is None:
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
        host, proxy, timeout = url.hostname or "", _proxy(url), self._limits.connect_s
        to = (proxy.hostname or "", proxy.port or 80) if proxy else (host, url.port or _PORTS[url.scheme])
        if url.scheme == "https":
            secure = _SecureConnection(*to, timeout=timeout, context=self._tls)
            if proxy:
                secure.set_tunnel(host, url.port or 443, _basic("Proxy-Authorization", proxy))
            return secure
        connection = _Connection(*to, timeout=timeout)
        connection.forwards = _basic("Proxy-Authorization", proxy) if proxy else None
        return connection

    def _failed(self, error: Exception) -> RemoteError:
        if isinstance(error, TimeoutError):
            told = "does not respond in time; check its address and the network"
        elif isinstance(error, gaierror):
            told = "cannot be found; check its name and the network"
        elif isinstance(error, SSLError):
            told = "has no certificate that is trusted; check its address, or set SSL_CERT_FILE"
        elif isinstance(error, OSError) and not isinstance(error, HTTPException):
            reason = os_errors.reason(error)
            told = f"cannot be reached ({reason}); check its address and the network, or the proxy"
        else:
            told = "breaks off or garbles its replies; check its address and its log"
        return RemoteError(f"{self.url} {told}")


def open_url(url: str, limits: Limits) -> WebObjects:
    """The store of a URL; makes no request."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            "a store on a web server is named https://[USER:PASSWORD@]HOST[:PORT][/PATH], no more"
        )
    return WebObjects(parts, limits)


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a URL; none for this machine itself."""
    host = url.hostname or ""
    with suppress(ValueError):
        if ip_address(host).is_loopback:
            return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or host == "localhost" or proxy_bypass(host):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _received(response: HTTPResponse, limit_bytes: int, deadline: _Deadline) -> _Reply:
    """The reply with its bytes, which are bounded by the length it shows and as they come."""
    limit = limit_bytes if response.status == 200 else _LARGEST_TALK
    expected, pieces, size = response.length, [], 0
    with response:
        while max(expected or 0, size) <= limit and (piece := response.read(_PIECE_BYTES)):
            pieces.append(piece)
            size += len(piece)
            deadline.received(len(piece))
    too_many = max(expected or 0, size) > limit
    if expected is not None and size < expected and not too_many:
        raise IncompleteRead(b"", expected - size)
    location = response.headers.get("Location", "")
    return _Reply(response.status, location, None if too_many else b"".join(pieces))


def _basic(header: str, url: SplitResult) -> dict[str, str]:
    """The header that shows the user and the password of a URL, if it has any."""
    if url.username is None:
        return {}
    shown = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
    return {header: f"Basic {b64encode(shown).decode()}"}
