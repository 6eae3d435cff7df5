"""The other end of the wire, as in a program: one connection for each request."""

import socket
from pathlib import Path

from gpucache.serve.wire import WITH_VIEW, Frame, encode, receive
from tests.patience import PATIENCE_S


def ask(path: Path, kind: int, *fields: bytes) -> Frame:
    return ask_raw(path, encode(Frame(kind, fields)))


def ask_raw(path: Path, data: bytes) -> Frame:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        reply = receive(connection)
    if reply.kind & WITH_VIEW:  # which a program looks at before it uses the reply
        return Frame(reply.kind & ~WITH_VIEW, reply.fields[1:])
    return reply
