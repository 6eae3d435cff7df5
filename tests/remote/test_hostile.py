"""Hostile servers behind every kind of store: each call ends in time, with one sentence or without bytes."""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from http.client import HTTPConnection, RemoteDisconnected
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from gpucache.errors import RemoteError
from gpucache.remote.connections import basic
from gpucache.remote.objects import Limits, Objects, open_objects
from gpucache.remote.relay import Bytes, Relay
from tests.patience import PATIENCE_S
from tests.remote.servers import Scripted, scripted, use_cloud
from tests.remote.test_objects import ONE

_LIMITS = Limits(connect_s=0.5, request_s=0.5, retries=0)
_PATIENT = Limits(connect_s=PATIENCE_S, request_s=PATIENCE_S, retries=0)
_OK = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nLast-Modified: Tue, 24 Nov 2026 10:00:00 GMT\r\n'
_URLS = {"web": "http://127.0.0.1:{}/x", "bucket": "s3://bucket/x", "registry": "oci://127.0.0.1:{}/team"}


def _chunks(client: socket.socket, server: Scripted, piece: bytes, pause_s: float) -> None:
    client.sendall(_OK + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    while not server.over.wait(pause_s):
        client.sendall(chunk)


def _slow_head(client: socket.socket, server: Scripted) -> None:
    client.sendall(_OK + b"X: ")
    while not server.over.wait(0.1):
        client.sendall(b"x")


def _page(client: socket.socket, server: Scripted) -> None:
    number = len(server.requests)
    if "/v2/" in server.requests[-1]:
        body = b'{"tags": ["t%d"]}' % number
        link = b'Link: </v2/team/tags/list?last=t%d>; rel="next"\r\n' % number
        client.sendall(_OK + link + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return
    body = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t%d</NextContinuationToken>"
        b"<Contents><Key>x/blobs/ab/%d</Key><LastModified>2026-11-24T10:00:00Z</LastModified>"
        b"<Size>1</Size></Contents></ListBucketResult>" % (number, number)
    )
    client.sendall(_OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def _cut(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_RDWR)


_HOSTILE: dict[str, Callable[[socket.socket, Scripted], object]] = {
    "endless": lambda client, server: _chunks(client, server, bytes(1 << 16), 0),
    "slow": lambda client, server: _chunks(client, server, b"{", 0.1),
    "slow head": _slow_head,
    "silent": lambda _, server: server.over.wait(),
    "short": lambda client, _: _cut(client, _OK + b"Content-Length: 1000\r\n\r\n123"),
    "dying": lambda client, _: _cut(client, _OK[:7]),
    "redirecting": lambda client, _: client.sendall(
        b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
    ),
    "too long": lambda client, _: client.sendall(_OK + b"Content-Length: %d\r\n\r\n" % (1 << 50)),
    "garbage": lambda client, _: client.sendall(b"\0\1\2\r\n\r\n" * 100),
    "full": lambda client, _: client.sendall(
        b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n"
    ),
    "read-only": lambda client, _: client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
}


@pytest.fixture(name="use")
def _use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    def use(port: int) -> None:
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        use_cloud(monkeypatch, tmp_path, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", **keys)

    return use


@pytest.mark.parametrize("address", ["http://[x", "ftp://127.0.0.1/x", "http://127.0.0.1:99999999/x"])
@pytest.mark.parametrize(
    "field", ["Location: %s", 'Link: <%s>; rel="next"', 'WWW-Authenticate: Bearer realm="%s"']
)
def test_an_address_of_no_server_is_a_sentence(field: str, address: str) -> None:
    """The place of an upload, the next page of a list or that of a token may be any text."""

    def answer(client: socket.socket, server: Scripted) -> None:
        asked = server.requests[-1]
        status = 401 if field.startswith("WWW") else 202 if asked.startswith("POST") else 404
        status = 200 if status == 404 and "tags/list" in asked else status
        body = b"" if asked.startswith("HEAD") else b"{}"
        named = (field % address).encode()
        head = b"HTTP/1.1 %d Well\r\n%s\r\nContent-Length: %d\r\n\r\n" % (status, named, len(body))
        client.sendall(head + body)

    with (
        scripted(answer) as server,
        closing(open_objects(_URLS["registry"].format(server.port), _LIMITS)) as store,
        pytest.raises(RemoteError),
    ):
        list(store.create([(ONE, b"1")]))


@pytest.mark.parametrize("what", _HOSTILE)
@pytest.mark.parametrize("kind", _URLS)
def test_every_call_to_a_hostile_server_ends(use: Callable[[int], None], kind: str, what: str) -> None:
    """Reading gives no bytes, and writing and listing fail, each with a sentence that has a remedy.

    A bucket has written an object once its reply begins well.
    """

    def answer(client: socket.socket, server: Scripted) -> None:
        with suppress(OSError):
            _HOSTILE[what](client, server)

    with scripted(answer) as server:
        use(server.port)
        with closing(open_objects(_URLS[kind].format(server.port), _LIMITS)) as store:
            done = kind == "bucket" and what in ("endless", "slow", "short", "too long")
            calls: list[Callable[[], object]] = [
                *(() if done else (lambda: list(store.create([(ONE, b"1")])),)),
                lambda: list(store.listed("")),
                *(() if done else (lambda: store.replace("index", lambda _: b"1"),)),
            ]
            for call in calls:
                with pytest.raises(RemoteError) as caught:
                    call()
                assert ";" in caught.value.message and "\n" not in caught.value.message
            with suppress(RemoteError):
                assert dict(store.read([ONE], 1 << 20)) == {ONE: None}


@pytest.mark.parametrize("kind", ["bucket", "registry"])
def test_a_list_without_end_ends(
    use: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """After as many pages as a store may have; however few objects a page has."""
    monkeypatch.setattr("gpucache.remote.registry._MOST_PAGES", 50)
    monkeypatch.setattr("gpucache.remote.objects.MOST_OBJECTS", 50)
    with scripted(_page) as server:
        use(server.port)
        store = open_objects(_URLS[kind].format(server.port), _PATIENT)
        with closing(store), pytest.raises(RemoteError, match="more than"):
            deque(store.listed(""), 0)


@pytest.mark.parametrize(("prefix", "ends"), [("marks/", True), ("catalogues/", True), ("uses/", False)])
def test_few_catalogues_and_marks_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, ends: bool
) -> None:
    """They are read at each push, so that an endless list of them ends before one of entries."""
    monkeypatch.setattr("gpucache.remote.objects._MOST_SMALL", 3)
    (tmp_path / prefix).mkdir()
    for number in range(4):
        (tmp_path / prefix / f"{number:032x}").touch()
    found = open_objects(str(tmp_path)).listed(prefix)
    with pytest.raises(RemoteError, match="more than 3 objects") if ends else nullcontext():
        assert len(list(found)) == 4


def test_tags_of_a_slow_registry_end(use: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is in time, and there is always another; a clock lets each take a fifth of the time."""
    clock = count()
    slow = SimpleNamespace(monotonic=lambda: next(clock) * PATIENCE_S / 5)
    monkeypatch.setattr("gpucache.remote.registry.time", slow)
    with scripted(_page) as server:
        use(server.port)
        store = open_objects(_URLS["registry"].format(server.port), _PATIENT)
        with closing(store), pytest.raises(RemoteError, match="too slowly"):
            deque(store.listed(""), 0)
        assert 1 < len(server.requests) < 10


def _flood(client: socket.socket, sent: list[int], head: bytes) -> None:
    client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"10000\r\n%s\r\n" % bytes(1 << 16))
        sent[0] += 1 << 16


@pytest.mark.parametrize(
    "head", [_OK, b"HTTP/1.1 400 No\r\n", b"HTTP/1.1 503 No\r\n"], ids=["reply", "error", "busy"]
)
def test_a_bucket_without_end_is_bounded_in_bytes(use: Callable[[int], None], head: bytes) -> None:
    """Lists, writes and the pages of errors, long before their time is over, whoever made the library."""
    sent = [0]

    def answer(client: socket.socket, _: Scripted) -> None:
        with suppress(OSError):
            _flood(client, sent, head)

    with scripted(answer) as server:
        use(server.port)
        with closing(open_objects(_URLS["bucket"], Limits(retries=0))) as store:
            with pytest.raises(RemoteError, match="more than gpucache accepts"):
                list(store.listed(""))
            if head != _OK:
                with pytest.raises(RemoteError, match="more than gpucache accepts"):
                    list(store.read([ONE], 1 << 20))
    assert sent[0] < 64 << 20


def test_a_bucket_that_lists_few_objects_a_page_is_not_read_on(use: Callable[[int], None]) -> None:
    """An honest one has a thousand."""
    with scripted(_page) as server:
        use(server.port)
        with closing(open_objects(_URLS["bucket"])) as store, pytest.raises(RemoteError, match="more than"):
            deque(store.listed(""), 0)
        assert len(server.requests) < 1000


def test_a_relay_serves_its_own_process_alone(use: Callable[[int], None]) -> None:
    """Another user of the machine gets nothing through it."""
    relay = Relay(1.0)
    with closing(relay), scripted(_page) as server, relay.allowing(Bytes(1 << 20, 1 << 20)):
        place = urlsplit(relay.url)
        with socket.create_connection(("127.0.0.1", place.port or 0)) as client:
            client.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % server.port)
            assert client.recv(1) == b""
        assert server.requests == []


def test_a_request_that_begins_leaves_the_failures_of_others() -> None:
    """Of two threads that ask at once, each gets the failures since its own begin."""
    with closing(relay := Relay(PATIENCE_S)), relay.allowing(Bytes(1 << 20, 1 << 20)) as failure:
        place = urlsplit(relay.url)
        with closing(HTTPConnection("127.0.0.1", place.port)) as client, pytest.raises(RemoteDisconnected):
            client.request("GET", "http://127.0.0.1:1/", headers=basic("proxy-authorization", place))
            client.getresponse()
        with relay.allowing(Bytes(0, 0)) as failure_of_the_next:
            assert isinstance(failure(), ConnectionRefusedError) and failure_of_the_next() is None


@pytest.mark.parametrize("fields", [b"", b"X: x\r\n" * 200])
def test_a_head_without_end_is_not_read_on(fields: bytes) -> None:
    """Neither of a client that ends in it, nor of one that goes on."""
    with closing(relay := Relay(PATIENCE_S)):
        place = urlsplit(relay.url)
        with socket.create_connection(("127.0.0.1", place.port or 0), timeout=30.0) as client:
            client.sendall(b"GET http://127.0.0.1/ HTTP/1.1\r\n" + fields)
            if not fields:
                client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # more was sent than was read
                assert client.recv(1) == b""


def test_a_directory_without_end_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after more files than a store may have."""
    store: Objects = open_objects(str(tmp_path))
    list(store.create((f"blobs/ab/{number}", b"") for number in range(6)))
    for name in ("objects", "folder"):
        monkeypatch.setattr(f"gpucache.remote.{name}.MOST_OBJECTS", 5)
    with pytest.raises(RemoteError, match="more than 5 objects"):
        list(store.listed(""))
