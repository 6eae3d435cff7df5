"""The other end of the wire, as in a program: one connection for each request."""

import socket
from pathlib import Path

from gpucache.serve.wire import Frame, encode, receive
from tests.patience import PATIENCE_S


def ask(path: Path, kind: int, *fields: bytes) -> Frame:
    """The reply to one request."""
    return ask_raw(path, encode(Frame(kind, fields)))


def ask_raw(path: Path, data: bytes) -> Frame:
    """The reply to some bytes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)
