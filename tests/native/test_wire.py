"""The client in C: its requests, the replies that it accepts, and its behaviour with a broken server."""

import os
import random
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from gpucache.serve.wire import Kind
from tests.native.peer import Peer, always, frame
from tests.patience import PATIENCE_S, wait_until

_BAD = b"none"
_SHORT_MS = 300


def _ask(
    program: Path,
    path: Path | str,
    *lines: str,
    fields: int = 1,
    timeout_ms: int = 600_000,
    user: int | None = None,
) -> list[bytes]:
    done = subprocess.run(
        [program, str(fields)],
        input="".join(f"{line}\n" for line in lines).encode(),
        env={
            **os.environ,
            "GPUCACHE_RUN_SOCKET": str(path),
            "GPUCACHE_RUN_TIMEOUT_MS": str(timeout_ms),
        },
        stdout=subprocess.PIPE,
        check=False,
        timeout=PATIENCE_S,
        user=user,
    )
    assert done.returncode == 0
    return done.stdout.splitlines()


def _said(kind: int, *fields: bytes) -> bytes:
    return b" ".join([b"%x" % kind, *(field.hex().encode() + b"." for field in fields)])


@pytest.mark.parametrize("fields", [0, 1, 31, 32, 33, 64, 200])
def test_a_request_arrives_as_it_was_given(wire_program: Path, fields: int) -> None:
    """Any number of fields, including empty and large ones, arrive byte for byte."""
    with Peer(always(frame(Kind.OK))) as peer:
        assert _ask(wire_program, peer.path, "", fields=fields) == [_said(Kind.OK)]
        [sent] = peer.of_kind(Kind.BUILD)
    expected = [b"x" * (index if index % 3 else 0) for index in range(fields)]
    if expected:
        expected[-1] = b"x" * (1 << 20)
    assert list(sent) == expected


@pytest.mark.parametrize("line", ["plain", "alarms", "closed"])
def test_a_reply_is_read_field_by_field(wire_program: Path, line: str) -> None:
    """Empty and large fields are distinguished, also under signals and with closed descriptors."""
    fields = (b"", b"a\0b", b"y" * 300_000, b"")
    with Peer(always(frame(Kind.HIT, *fields))) as peer:
        assert _ask(wire_program, peer.path, line) == [_said(Kind.HIT, *fields)]


def _reference(reply: bytes) -> bytes:
    """The meaning of a reply, read by the wire's description."""
    if len(reply) < 8:
        return _BAD
    size, version, kind = struct.unpack_from("<IHH", reply)
    body = reply[8 : 4 + size]
    if (
        not 4 <= size <= 256 << 20
        or version != 1
        or not Kind.PASS <= kind <= Kind.REFUSED
        or len(body) != size - 4
    ):
        return _BAD
    fields, at = [], 0
    while at < len(body):
        if at + 4 > len(body):
            return _BAD
        (length,) = struct.unpack_from("<I", body, at)
        if at + 4 + length > len(body):
            return _BAD
        fields.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    return _said(kind, *fields)


def _mutated(draw: random.Random) -> bytes:
    """A reply with a few bytes changed, cut off, inserted, or wrong lengths."""
    fields = [draw.randbytes(draw.choice((0, 1, 4, 30))) for _ in range(draw.randrange(5))]
    reply = bytearray(frame(draw.choice((0x7F, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85)), *fields))
    for _ in range(draw.randrange(3)):
        at = draw.randrange(len(reply))
        match draw.randrange(4):
            case 0:
                reply[at] = draw.choice((0, 1, 4, 0x7F, 0x80, 0xFF))
            case 1:
                del reply[at:]
                reply += b"" if reply else b"\0"
            case 2:
                reply[at:at] = draw.randbytes(draw.randrange(1, 9))
            case _:
                reply[at : at + 4] = struct.pack(
                    "<I", draw.choice((0, 3, 4, 1 << 28, (1 << 28) + 1, (1 << 32) - 1))
                )
    return bytes(reply)


def test_any_reply_is_understood_or_refused(wire_program: Path) -> None:
    """Corrupt replies are read as described, or refused; nothing is read out of bounds."""
    draw = random.Random(16)
    replies = [_mutated(draw) for _ in range(200)]
    left = iter(replies)
    asked: list[bool] = []

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        asked.append(kind == Kind.BUILD)
        return next(left) if asked[-1] else frame(Kind.OK)

    with Peer(answer) as peer:
        said = _ask(wire_program, peer.path, *("" for _ in replies))
    expected = [_reference(reply) for reply in replies]
    assert said == expected
    assert 33 < expected.count(_BAD) < 167
    # Each process that was refused its reply asked no more; each other one went on.
    assert asked.count(False) == len(replies) - expected.count(_BAD)


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[tuple[Path, list[int]]]:
    """A server that handles each connection with the given function, and their number."""
    connections: list[int] = []
    with tempfile.TemporaryDirectory(prefix="gpucache-wire-") as folder:
        path = Path(folder, "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            for number in count():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(number)
                with connection, suppress(OSError):
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield path, connections
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _never(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def _slowly(connection: socket.socket) -> None:
    """A byte of a promised reply now and then, forever: each receive succeeds, the whole never ends."""
    connection.sendall(struct.pack("<IHH", 1 << 20, 1, Kind.OK))
    connection.settimeout(0.05)
    while True:
        connection.sendall(b"\0")
        with suppress(TimeoutError):
            if not connection.recv(1 << 16):
                return


def _deaf(connection: socket.socket) -> None:
    """Never receives, so that a large request is never sent in full."""
    hung_up = select.poll()
    hung_up.register(connection, select.POLLRDHUP)
    hung_up.poll()


def _hanging_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def _endless(connection: socket.socket) -> None:
    connection.sendall(struct.pack("<IHH", 0xFFFFFFFF, 1, Kind.OK))
    while True:
        connection.sendall(bytes(1 << 16))


@pytest.mark.parametrize("serve", [_never, _slowly, _deaf, _hanging_up, _endless])
def test_a_server_that_misbehaves_is_asked_once(
    wire_program: Path, serve: Callable[[socket.socket], None]
) -> None:
    """Silence, a trickle, a full pipe, an end or a flood fail within the time-out."""
    with _listening(serve) as (path, connections):
        assert _ask(wire_program, path, "", fields=2, timeout_ms=_SHORT_MS) == [_BAD]
        wait_until(lambda: bool(connections))
    assert connections == [0]


def test_without_a_server_nothing_is_asked(wire_program: Path, tmp_path: Path) -> None:
    """A path without a server, one that is too long, or an empty one is not an error."""
    for path in (tmp_path / "nobody", "/" + "x" * 300, ""):
        assert _ask(wire_program, path, "") == [_BAD]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
def test_the_server_of_another_user_is_not_believed(wire_program: Path) -> None:
    """Only a server of the same user is trusted."""
    stranger = 65534
    with Peer(always(frame(Kind.OK))) as peer, tempfile.TemporaryDirectory() as folder:
        reachable = Path(shutil.copy(wire_program, folder))
        for place in (reachable.parent, peer.path.parent):
            place.chmod(0o755)
        peer.path.chmod(0o777)
        assert _ask(reachable, peer.path, "") == [_said(Kind.OK)]
        assert _ask(reachable, peer.path, "", user=stranger) == [_BAD]
