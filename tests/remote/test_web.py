"""A web server is a store whose replies are bounded in time and size, whatever it sends."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.connections import Connections, Request
from gpucache.remote.objects import Limits, Objects, open_objects
from tests.patience import wait_until
from tests.remote.servers import Answer, Moving, Scripted, nginx, pausing, saying, scripted, use_cloud

_SHORT = Limits(connect_s=2.0, request_s=0.5, retries=1)
_PATIENT = Limits(retries=1)
_OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_cloud(monkeypatch, tmp_path)


@contextmanager
def _store(answer: Answer, limits: Limits = _PATIENT) -> Iterator[tuple[Objects, Scripted]]:
    with scripted(answer) as server, closing(open_objects(f"{server.url}/store", limits)) as store:
        yield store, server


def _read(store: Objects, name: str = "index") -> bytes | None:
    """An object of at most 1,000 bytes; an error is one line with the store and the remedy."""
    try:
        return dict(store.read([name], 1000))[name]
    except RemoteError as error:
        assert "\n" not in error.message
        assert error.message.startswith((store.url, f"{name} in {store.url}"))
        assert ";" in error.message
        raise


def _endless(start: str, client: socket.socket, server: Scripted) -> None:
    client.sendall(start.encode())
    while not server.over.is_set():
        client.sendall(b"x" * 100_000)


def _dribbling(start: str, client: socket.socket, server: Scripted) -> None:
    client.sendall(start.encode())
    while not server.over.wait(0.05):
        client.sendall(b"x")


_CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (partial(_dribbling, ""), "in time"),
        (partial(_dribbling, "HTTP/1.1 200 OK\r\nX: "), "in time"),
        (partial(_dribbling, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"), "in time"),
        (partial(_dribbling, "HTTP/1.1 200 OK\r\n\r\n"), "in time"),
        (partial(_dribbling, "HTTP/1.1 404 No\r\nContent-Length: 900\r\n\r\n"), "in time"),
    ],
)
def test_a_slow_server_is_bounded_in_time(answer: Answer, says: str) -> None:
    """Wherever it is slow: each byte comes soon, and the last one never."""
    with _store(answer, _SHORT) as (store, _), pytest.raises(RemoteError, match=says):
        _read(store)


def test_what_was_received_gives_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each MiB, beyond the time of a request; unreceived bytes give none."""
    head = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n"
    with (
        _store(pausing(head.format(4 << 20)), _SHORT) as (store, _),
        pytest.raises(RemoteError, match="in time"),
    ):
        list(store.read(["index"], 64 << 20))
    data, limits = "x" * (4 << 20), Moving(request_s=0.5)

    def answer(client: socket.socket, server: Scripted) -> None:
        client.sendall((head.format(len(data) + 2) + data).encode())
        wait_until(lambda: limits.most_bytes == len(data))
        client.sendall(b"ok")

    clock = SimpleNamespace(monotonic=limits.monotonic, sleep=time.sleep)
    monkeypatch.setattr("gpucache.remote.connections.time", clock)
    with _store(answer, limits) as (store, _):
        assert list(store.read(["index"], 64 << 20)) == [("index", f"{data}ok".encode())]


def test_what_was_sent_gives_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each MiB, beyond the time of a request."""
    data, limits = bytes(4 << 20), Moving(request_s=0.5, retries=0)

    def answer(client: socket.socket, _: Scripted) -> None:
        wait_until(lambda: limits.most_bytes == len(data))
        client.sendall(_OK.encode())

    clock = SimpleNamespace(monotonic=limits.monotonic, sleep=time.sleep)
    monkeypatch.setattr("gpucache.remote.connections.time", clock)
    with scripted(answer) as server, closing(Connections(server.url, limits, "http")) as connections:
        assert connections.reply(Request(server.url, 1000, "PUT", data)).data == b"ok"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (partial(_endless, "HTTP/1.1 500 No\r\n\r\n"), "returns 500"),
        (partial(_endless, "HTTP/1.1 403 No\r\n\r\n"), "refuses"),
        (partial(_endless, "HTTP/1.1 200 OK\r\nX: "), "garbles"),
        (partial(_endless, ""), "garbles"),
        (saying("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nless"), "breaks off"),
        (saying(f"{_CHUNKED}5\r\nless"), "breaks off"),
        (saying(""), "breaks off"),
        (saying("+OK of another protocol\r\n"), "garbles"),
        (saying("HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n"), "garbles"),
        (saying("HTTP/1.1 302 Found\r\nLocation: /\xe9\r\nContent-Length: 0\r\n\r\n"), "garbles"),
        (
            saying("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
            "redirects without an end",
        ),
        (saying("HTTP/1.1 206 Part\r\nContent-Length: 0\r\n\r\n"), "returns 206"),
    ],
)
def test_what_is_no_object_is_one_sentence(answer: Answer, says: str) -> None:
    """A wrong length, an early end, an endless error page, and other protocols."""
    with _store(answer) as (store, _), pytest.raises(RemoteError, match=says):
        _read(store)


@pytest.mark.parametrize(
    "head", ["\r\n", "Content-Length: 9999999999\r\n\r\n", _CHUNKED[17:] + "fffffff\r\n"]
)
def test_an_endless_object_is_none(head: str) -> None:
    """No more than its limit is read."""
    with _store(partial(_endless, f"HTTP/1.1 200 OK\r\n{head}")) as (store, _):
        assert _read(store) is None


def test_an_object_needs_no_length_in_its_reply() -> None:
    """Chunks and the end of the connection end it as well; an endless page of a missing one costs nothing."""
    for text in (f"{_CHUNKED}2\r\nok\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nok", f"{_OK} and more"):
        with _store(saying(text)) as (store, _):
            assert _read(store) == b"ok"
    with _store(partial(_endless, "HTTP/1.1 404 No\r\n\r\n")) as (store, _):
        assert _read(store) is None


def _sends(text: str) -> Answer:
    return lambda client, _: client.sendall(text.encode())


def test_connections_are_kept_and_replaced() -> None:
    """Requests after the first need no other connection, and one that the server closed is not an error."""
    with _store(_sends(_OK), Limits(retries=0)) as (store, server):
        for _ in range(5):
            assert _read(store) == b"ok"
        assert len(server.clients) == 1
    with _store(saying(_OK), Limits(retries=0)) as (store, server):
        for _ in range(5):
            assert _read(store) == b"ok"
        assert len(server.clients) == 5


def test_a_busy_server_is_asked_again_within_the_limits() -> None:
    """As often as the limits allow."""
    replies = iter(["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "", _OK])
    with _store(lambda client, server: saying(next(replies))(client, server), Limits(retries=2)) as (
        store,
        _,
    ):
        assert _read(store) == b"ok"
    busy = saying("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
    with _store(busy, Limits(retries=2)) as (store, server):
        with pytest.raises(RemoteError, match="503"):
            _read(store)
        assert len(server.requests) == 3


def test_a_redirect_leads_to_the_same_server_alone() -> None:
    """Another host or port is not asked for anything."""
    with scripted(_sends(_OK)) as other:

        def answer(client: socket.socket, server: Scripted) -> None:
            at = {"/store/near": "/store/index", "/store/far": f"{other.url}/index"}
            target = at.get(server.requests[-1].split()[1])
            moved = f"HTTP/1.1 301 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
            client.sendall((moved if target else _OK).encode())

        with _store(answer) as (store, _):
            assert _read(store, "near") == b"ok"
            with pytest.raises(RemoteError, match="redirects to another server"):
                _read(store, "far")
        assert not other.requests


def test_a_password_is_sent_and_never_shown() -> None:
    """It is part of the URL, and of no error."""
    with scripted(saying("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")) as server:
        with closing(open_objects(f"http://me:s%20ecret@127.0.0.1:{server.port}", _PATIENT)) as store:
            assert store.url == server.url
            with pytest.raises(RemoteError, match="refuses") as raised:
                _read(store)
        assert "ecret" not in raised.value.message
        assert "Authorization: Basic bWU6cyBlY3JldA==\r\n" in server.requests[0]
    with pytest.raises(UsageError) as refused:
        open_objects("https://me:secret@host:port/path")
    assert "secret" not in refused.value.message


def test_proxies_are_for_other_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server on this machine is contacted directly; others through the proxy, unless excepted."""
    (tmp_path / "index").write_bytes(b"mine")
    with nginx(tmp_path, tmp_path) as url, scripted(_sends(_OK)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://me:secret@127.0.0.1:{proxy.port}")
        for host in ("127.0.0.1", "localhost"):
            with closing(open_objects(url.replace("127.0.0.1", host))) as store:
                assert _read(store) == b"mine"
        assert not proxy.requests
        with closing(open_objects("http://store.invalid/x")) as store:
            assert _read(store) == b"ok"
            assert proxy.requests[0].startswith("GET http://store.invalid/x/index HTTP/1.1\r\n")
            assert "Proxy-Authorization: Basic " in proxy.requests[0]
        monkeypatch.setenv("NO_PROXY", "store.invalid")
        unproxied = closing(open_objects("http://store.invalid/x", _PATIENT))
        with unproxied as store, pytest.raises(RemoteError, match="cannot be found"):
            _read(store)
    with scripted(saying("HTTP/1.1 407 No\r\n\r\n")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        tunneled = closing(open_objects("https://elsewhere.invalid", _PATIENT))
        with tunneled as store, pytest.raises(RemoteError, match="cannot be reached"):
            _read(store)
        assert proxy.requests[0].startswith("CONNECT elsewhere.invalid:443 HTTP/1.")


def _certificate(folder: Path) -> SSLContext:
    """The context of a server with a new certificate, written to ``trusted.pem``."""
    key, name, now = generate_private_key(SECP256R1()), x509.Name([]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
        .sign(key, SHA256())
    )
    (folder / "trusted.pem").write_bytes(made.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "trusted.pem", folder / "key.pem")
    return context


def test_tls_needs_a_trusted_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Objects come from a server that shows one, and from no other."""
    with scripted(_sends(_OK), _certificate(tmp_path)) as server:
        url = f"https://localhost:{server.port}"
        with closing(open_objects(url, _PATIENT)) as store, pytest.raises(RemoteError, match="certificate"):
            _read(store)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        with closing(open_objects(url, _PATIENT)) as store:
            assert [_read(store), _read(store)] == [b"ok", b"ok"]


def test_a_server_that_never_agrees_on_tls_is_bounded_in_time() -> None:
    """The connection is made, and no reply comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_objects(f"https://127.0.0.1:{silent.getsockname()[1]}", _SHORT)
        with pytest.raises(RemoteError, match="in time"):
            _read(store)
