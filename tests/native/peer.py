"""A server that speaks the wire and keeps binaries in a dictionary, to test the libraries against."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from gpucache.serve.wire import Frame, Kind, WireError, encode, receive
from tests.patience import TIME_OUT_MS

BEFORE_FACTS, FACTS = 6, 8
BEFORE_INPUTS = 5
"""The fields of a COMPILE request that no result depends on, of one NVRTC."""


Request = tuple[int, tuple[bytes, ...]]
Answer = Callable[[int, tuple[bytes, ...]], bytes | None]


def frame(kind: int, *fields: bytes) -> bytes:
    return encode(Frame(kind, fields))


def always(reply: bytes | None) -> Answer:
    """The same reply to every request; None for never."""
    return lambda *_: reply


class Peer:
    """Replies in threads until it is closed; ``heard`` has every request in the order of its arrival.

    Reports of a loaded library are answered here, and kept apart.
    """

    def __init__(self, answer: Answer) -> None:
        self.heard: list[Request] = []
        self.loaded: list[int] = []
        self.path = Path(tempfile.mkdtemp(prefix="gpucache-wire-"), "socket")
        self.path.with_name("notes").touch()
        self._answer = answer
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Have other requests answered while a reply waits."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def stop_listening(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.stop_listening()
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self.path.parent)

    def of_kind(self, kind: Kind) -> list[tuple[bytes, ...]]:
        return [fields for each, fields in self.heard if each == kind]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, WireError):
            heard = receive(connection)
            kind, fields = heard.kind, heard.fields
            with self._lock:
                if kind in (Kind.LOADED, Kind.NVRTC_LOADED):
                    self.loaded.append(kind)
                    reply: bytes | None = frame(Kind.OK)
                else:
                    self.heard.append((kind, fields))
                    reply = self._answer(kind, fields)
            if reply is None:
                connection.recv(1)  # never answers: waits until the other side gives up
            else:
                connection.sendall(reply)


class Keeper:
    """The replies of a server with a cache: a built program is served from then on."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.kept: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self.served: list[bool] = []
        """For each looked-up build whether it was a hit."""
        self._asked: dict[bytes, tuple[bytes, ...]] = {}
        self._wanted = b"1" if wanted else b"0"

    def __call__(self, kind: int, fields: tuple[bytes, ...]) -> bytes:
        if kind == Kind.PART and b"Portable Computing Language" not in fields:  # which compiles late
            return frame(Kind.HIT, sha256(b"\0".join(fields[3:])).hexdigest().encode(), b"")
        if kind == Kind.PART_COMPILED:
            return frame(Kind.HIT, fields[0])
        if kind == Kind.LINK and b"-create-library" in fields[3]:
            return frame(Kind.PASS, b"")
        if kind in (Kind.BUILD, Kind.LINK):
            key, token = fields[3:], str(len(self._asked)).encode()
            self._asked[token] = key
            self.served.append(key in self.kept)
            if key in self.kept:
                return frame(Kind.HIT, token, *self.kept[key])
            return frame(Kind.MISS, token, self._wanted)
        if kind == Kind.REJECTED:
            return frame(Kind.MISS, fields[0], self._wanted)
        if kind == Kind.BUILT and fields[1] == b"0" and fields[3]:
            self.kept[self._asked[fields[0]]] = fields[3:]
        return frame(Kind.OK)


class NVRTCKeeper:
    """The replies of a server with a cache: a compiled program is served from then on."""

    def __init__(self) -> None:
        self.kept: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self.hits = 0
        self._asked: dict[bytes, tuple[bytes, ...]] = {}
        self._tokens = count()

    def __call__(self, kind: int, fields: tuple[bytes, ...]) -> bytes | None:
        if kind == Kind.COMPILED:
            if fields[1] == b"0" and fields[0] in self._asked:
                self.kept[self._asked[fields[0]]] = self._own(fields)
            return frame(Kind.OK)
        key = fields[BEFORE_INPUTS:]
        if key in self.kept:
            self.hits += 1
            return frame(Kind.HIT, b"", *self.kept[key])
        token = b"%d" % next(self._tokens)
        self._asked[token] = key
        return frame(Kind.MISS, token, b"1")

    def _own(self, fields: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The result of a compile, without the kinds that its handle still has of an earlier one."""
        options = self._asked[fields[0]]
        kinds = {b"ltoir"} if b"-dlto" in options else {b"optixir"} if b"--optix-ir" in options else set()
        kinds = kinds or {b"ptx", *([] if b"-arch=compute_90" in options else [b"cubin"])}
        log, count, *rest = fields[3:]
        pairs = [(rest[2 * at], rest[2 * at + 1]) for at in range(int(count))]
        told = [part for kind, data in pairs if kind in kinds for part in (kind, data)]
        return (log, b"%d" % (len(told) // 2), *told, *rest[2 * int(count) :])


def environment(peer: Peer, layer: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command that a peer serves through the OpenCL layer."""
    return {
        **base,
        "OPENCL_LAYERS": os.fspath(layer),
        "GPUCACHE_RUN_SOCKET": os.fspath(peer.path),
        "GPUCACHE_RUN_TIMEOUT_MS": TIME_OUT_MS,
    }


def devices_of(build: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """The facts about each device in a BUILD request."""
    facts = build[BEFORE_FACTS:]
    return [tuple(facts[at : at + FACTS]) for at in range(0, len(facts), FACTS)]
