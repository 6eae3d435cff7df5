"""Files of JSON lines: append one, read the last ones. Lines and reads are bounded.

A line is one write in append mode, so that processes do not mix up their lines. A line that is no JSON, as
after a killed writer or on a full disk, is skipped. Functions raise OSError and nothing else. Must not know
what a line is about.
"""

import json
import os
from collections.abc import Mapping

from gpucache.folders import Folder
from gpucache.store.trust import open_trusted

LINE_CAP = 4096
"""Bytes of one line, its newline included."""


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)


def line_of(record: Mapping[str, object]) -> bytes:
    """One line for a record; items that would make it longer than ``LINE_CAP`` are left out.

    What was left out shows as ``"truncated": true``. Values JSON does not know are written as text.
    """
    line = _dump(record)
    if len(line) <= LINE_CAP:
        return line
    kept: dict[str, object] = {"truncated": True}
    for name, value in record.items():
        # Items are few: writing the line anew for each is cheap, and exact.
        if len(_dump(kept | {name: value})) <= LINE_CAP:
            kept[name] = value
    return _dump(kept)


def append(folder: Folder, name: str, line: bytes, mode: int) -> int:
    """Append a line in one write and return the file's size in bytes."""
    fd = folder.open_for_writing(name, os.O_WRONLY | os.O_APPEND, mode)
    try:
        os.write(fd, line)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def last(folder: Folder, name: str, limit_bytes: int) -> list[dict[str, object]]:
    """The records among the last ``limit_bytes`` of a file, oldest first."""
    with open_trusted(folder, name) as (fd, status):
        start = max(0, status.st_size - limit_bytes)
        os.lseek(fd, start, os.SEEK_SET)
        data = os.read(fd, limit_bytes)
    found = data.split(b"\n")
    # The first piece of a cut is half a line.
    return [record for line in found[1 if start else 0 :] if (record := _parse(line)) is not None]


def _dump(record: Mapping[str, object]) -> bytes:
    return _ENCODER.encode(dict(record)).encode("ascii") + b"\n"


def _parse(line: bytes) -> dict[str, object] | None:
    if not line or len(line) > LINE_CAP:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
