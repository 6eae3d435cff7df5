"""A Redis server that refuses, evicts, is full or is something else: one sentence, never the password."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from gpucache.errors import RemoteError
from gpucache.remote import redis_server as store
from gpucache.remote.objects import Limits, Objects, open_objects
from tests.remote.servers import free_port, redis_server

_LIMITS = Limits(connect_s=5, request_s=30, retries=1)


def _create(url: str, *objects: tuple[str, bytes]) -> dict[str, bool]:
    with closing(open_objects(url, _LIMITS)) as opened:
        return dict(opened.create(objects))


def _refusal(url: str) -> str:
    with pytest.raises(RemoteError) as caught:
        _create(url, ("a", b"1"))
    message = caught.value.message
    assert "\n" not in message
    assert "; " in message
    return message


@contextmanager
def _opened(url: str) -> Iterator[Objects]:
    with closing(open_objects(url, _LIMITS)) as opened:
        yield opened


def test_a_password_is_used_and_never_shown(tmp_path: Path) -> None:
    """The right one opens the store; a wrong one or none is refused, without showing it."""
    with redis_server(tmp_path, "--requirepass", "s3cret/word") as url:
        right = url.replace("//", "//:s3cret%2Fword@")
        assert _create(right, ("a", b"1")) == {"a": True}
        with _opened(right) as opened:
            assert opened.url == url
        wrong = _refusal(url.replace("//", "//:wr0ng@"))
        assert "password" in wrong
        assert "wr0ng" not in wrong
        assert "password" in _refusal(url)


def test_a_server_without_room_says_how_to_make_some(tmp_path: Path) -> None:
    """A server without eviction refuses at its limit."""
    with redis_server(tmp_path, "--maxmemory", "1") as url:
        assert "maxmemory" in _refusal(url)


def test_an_evicted_object_is_missing(tmp_path: Path) -> None:
    """A server may drop any key; the others are read, and all of them can be created again."""
    with redis_server(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random") as url:
        names = [f"blobs/{number}" for number in range(60)]
        for name in names:
            _create(url, (name, name.encode() * 10_000))
        with _opened(url) as opened:
            found = dict(opened.read(names, 1 << 20))
        assert set(found) == set(names)
        assert None in found.values()
        assert all(data in (None, name.encode() * 10_000) for name, data in found.items())


def test_a_replica_says_that_it_is_one(tmp_path: Path) -> None:
    """Nothing can be created on a server that follows another."""
    with redis_server(tmp_path, "--replicaof", "127.0.0.1", str(free_port())) as url:
        assert "primary" in _refusal(url)


def test_nobody_on_the_port_is_one_sentence() -> None:
    """A server that does not run is reported after the retries, without the system's error numbers."""
    url = f"redis://127.0.0.1:{free_port()}"
    assert _refusal(url).startswith(f"{url} cannot be used (Connection refused); check that it runs")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-NOPERM this user has no permissions\r\n",
        b"-ERR unknown command, with args beginning with: s3cret\r\n",
        b":1\r\n:1\r\n",
        b":1\r\n*0\r\n",
        b":1\r\n*1\r\n:5\r\n",
        b"*2\r\n$1\r\n0\r\n$1\r\na\r\n",
        b"*-1\r\n",
        b"*1\r\n" * 100_000,
        b"$99999999999999999999\r\n",
        b"",
    ],
)
def test_a_server_that_answers_garbage_is_refused(answer: bytes) -> None:
    """Any other reply is one sentence, and no traceback."""
    with _answering(answer) as port, _opened(f"redis://:s3cret@127.0.0.1:{port}") as opened:
        for call in (
            lambda: list(opened.read(["a"], 100)),
            lambda: list(opened.listed("")),
            lambda: opened.replace("index", lambda _: b""),
        ):
            with pytest.raises(RemoteError) as caught:
                call()
            assert "s3cret" not in caught.value.message
            assert len(caught.value.message) < 400


@contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """A server that accepts a password and a client's name, and gives one reply to everything else."""

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while asked := self.connection.recv(1 << 16):
                    greetings = asked.count(b"AUTH\r\n") + asked.count(b"SETINFO\r\n")
                    self.wfile.write(b"+OK\r\n" * greetings or answer)
                    if not greetings:
                        return

    with ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_an_object_beyond_the_largest_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gets no request; the message names the object."""
    monkeypatch.setattr(store, "MOST_BYTES", 10)
    with redis_server(tmp_path) as url:
        with pytest.raises(RemoteError, match="big has 11 bytes"):
            _create(url, ("big", b"1" * 11))
        with _opened(url) as opened:
            assert list(opened.listed("")) == []


def test_stores_of_one_server_are_apart_by_prefix_and_database(tmp_path: Path) -> None:
    """Keys of other programs and of other stores are not listed."""
    with redis_server(tmp_path) as url:
        _create(url, ("a", b"1"))
        _create(f"{url}/0?prefix=team:gpu", ("b", b"2"))
        _create(f"{url}/3", ("c", b"3"))
        for place, names in ((url, ["a"]), (f"{url}?prefix=team:gpu", ["b"]), (f"{url}/3", ["c"])):
            with _opened(place) as opened:
                assert [one.name for one in opened.listed("")] == names
