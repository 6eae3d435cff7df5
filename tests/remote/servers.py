"""Servers of stores on free loopback ports: moto's S3, Debian's nginx and docker-registry."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from ssl import SSLContext
from threading import Event, Thread
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from gpucache.remote.objects import Limits
from tests.patience import PATIENCE_S, wait_until

_OF_CLOUDS = re.compile(r"AWS_|GOOGLE_|GCE_|AZUR|CLOUDSDK_|.*_proxy$", re.IGNORECASE)


@contextmanager
def moto_url(folder: Path) -> Iterator[str]:
    """The URL of an S3 server in memory, which takes any keys and refuses to read unsigned."""
    log = folder / "moto.log"
    words = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with _running(words, log):
        wait_until(lambda: "Running on" in log.read_text(encoding="utf-8"))
        found = re.search(r"Running on (http://[\d.:]+)", log.read_text(encoding="utf-8"))
        assert found
        yield found[1]


def make_bucket(url: str, name: str) -> str:
    """The store in a new bucket of ``moto_url``."""
    with urlopen(Request(f"{url}/{name}", method="PUT"), timeout=PATIENCE_S):
        return f"s3://{name}"


def use_cloud(patch: pytest.MonkeyPatch, home: Path, **variables: str) -> None:
    """An environment with nothing of any cloud or proxy but some variables."""
    for name in filter(_OF_CLOUDS.match, list(os.environ)):
        patch.delenv(name)
    patch.setenv("HOME", str(home))
    for name, value in variables.items():
        patch.setenv(name, value)


def free_port() -> int:
    """A port of the loopback interface without a listener, which no other process gets for a minute.

    A connection to it was closed on its side first: until the system forgets that, neither a client nor a
    server that asks for any port gets this one, and a server that names it does.
    """
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            one.accept()[0].close()
            client.recv(1)
        return port


@contextmanager
def nginx(served: Path, folder: Path) -> Iterator[str]:
    """The URL of a plain web server for a directory; it refuses all below /refused/, and logs to access.log
    the second, the status and the bytes of each reply."""
    port, config = free_port(), folder / "nginx.conf"
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ log_format load '$msec $status $bytes_sent'; access_log {folder}/access.log load;\n"
        f"{places} default_type application/octet-stream;\n"
        f"server {{ listen 127.0.0.1:{port}; root {served}; location /refused/ {{ deny all; }} }} }}\n",
        encoding="utf-8",
    )
    words = ["-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")]
    with _listening("nginx", words, port, folder):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def docker_registry(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a repository in an empty registry that allows removing."""
    port, config = free_port(), folder / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n",
        encoding="utf-8",
    )
    usual = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OTEL_TRACES_EXPORTER": "none"}
    with _listening("docker-registry", ["serve", str(config)], port, folder, usual | dict(env or {})):
        yield f"oci://127.0.0.1:{port}/team/caches"


@contextmanager
def _listening(
    name: str, words: Sequence[str], port: int, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server that answers on its port; the test skips if it is not installed."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    log = folder / f"{name}-{port}.log"
    with _running([program, *words], log, env) as server:

        def answers() -> bool:
            assert server.poll() is None, log.read_text(encoding="utf-8", errors="replace")
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        wait_until(answers)
        yield


@contextmanager
def _running(
    words: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as out:
        server = subprocess.Popen(
            words, cwd=log.parent, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield server
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


class Scripted(NamedTuple):
    """A server with the replies of a test."""

    url: str
    port: int
    requests: list[str]
    """The heads that came."""
    clients: set[int]
    """The ports they came from: one for each connection."""
    over: Event
    """Set at the end of the test, for replies that never come."""


class _Server(ThreadingTCPServer):
    daemon_threads = True


Answer = Callable[[socket.socket, Scripted], None]


@contextmanager
def scripted(answer: Answer, tls: SSLContext | None = None) -> Iterator[Scripted]:
    """Calls a function for the head of each request, in a thread for each connection."""

    class Handler(StreamRequestHandler):
        def setup(self) -> None:
            if tls:
                with suppress(OSError):
                    self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def handle(self) -> None:
            with suppress(OSError, ValueError):
                while head := self._head():
                    server.requests.append(head)
                    server.clients.add(self.client_address[1])
                    answer(self.request, server)

        def _head(self) -> str:
            lines = [self.rfile.readline()]
            while lines[-1] not in (b"", b"\r\n"):
                lines.append(self.rfile.readline())
            head = b"".join(lines).decode("latin-1")
            length = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
            self.rfile.read(int(length[1]) if length else 0)
            return head if lines[-1] else ""

    with _Server(("127.0.0.1", 0), Handler) as listening:
        port = listening.server_address[1]
        server = Scripted(f"http://127.0.0.1:{port}", port, [], set(), Event())
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            listening.shutdown()
            thread.join()


def saying(text: str) -> Answer:
    def answer(client: socket.socket, server: Scripted) -> None:
        client.sendall(text.encode("latin-1"))
        client.shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError  # a request that came before that would be read, and counted

    return answer


class Moving(Limits):
    """Limits with a clock that runs with the bytes that requests move, a little slower than their time."""

    most_bytes = 0

    def for_bytes(self, size_bytes: int) -> float:
        self.most_bytes = max(self.most_bytes, size_bytes)
        return super().for_bytes(size_bytes)

    def monotonic(self) -> float:
        return 0.9 * self.most_bytes / (1 << 20)


def pausing(head: str, body: str = "", pause_s: float = PATIENCE_S) -> Answer:
    """Sends a head, and after a pause a body that is announced there."""

    def answer(client: socket.socket, server: Scripted) -> None:
        client.sendall(head.encode("latin-1"))
        server.over.wait(pause_s)
        client.sendall(body.encode("latin-1"))

    return answer


class Silent:
    """A server that accepts connections and never replies."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._socket.accept()[0])
            except OSError:
                return

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self.connections:
            connection.close()
        self._thread.join()
