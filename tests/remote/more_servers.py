"""Debian's redis-server and docker-registry on free loopback ports, each ended with its test."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[str]:
    """The URL of an empty Redis server that keeps nothing on disk."""
    port = free_port()
    words = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder), *options]
    with _server("redis-server", words, port, folder):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def docker_registry(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a repository in an empty registry that allows removing."""
    port = free_port()
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n",
        encoding="utf-8",
    )
    usual = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OTEL_TRACES_EXPORTER": "none"}
    with _server("docker-registry", ["serve", str(config)], port, folder, usual | dict(env or {})):
        yield f"oci://127.0.0.1:{port}/team/caches"


@contextmanager
def _server(
    name: str, words: Sequence[str], port: int, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server that answers on its port; the test skips where it is not installed."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    log = folder / f"{name}-{port}.log"
    with log.open("wb") as out:
        server = subprocess.Popen([program, *words], cwd=folder, env=env, stdout=out, stderr=out)
    try:
        _wait_for(server, port, log)
        yield
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def _wait_for(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    limit = time.monotonic() + PATIENCE_S
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
            return
        assert server.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        assert time.monotonic() < limit, f"{log} never answered"
        time.sleep(0.02)
