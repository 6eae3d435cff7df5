"""Chromium's shader caches for tests, by its own rules; the entry is one that Chromium 156 wrote."""

import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, Environs, Lay, changed, gone, lay, together, write

_NUMBER = 38
"""The block of the entry in ``data_1``."""
_ENTRY = struct.pack(
    "<IIIiiiQiI4i4II4iI", 3274050908, 0, 2415919114, 0, 0, 0, 13439886418663513, 190, 0, 0, 1516, 0, 0, 0,
    2969698314, 0, 0, 0, 0, 0, 0, 0, 883915178,
)  # fmt: skip
_SIZES = (36, 256, 1024, 4096)
_MOST = (4, 44, 12, 0)


def index(number: int = 0) -> bytes:
    """The bytes of an index whose table leads to the entry."""
    head = struct.pack("<IIi16xIii", 0xC103CAC3, 0x30000, 1, 64, 0, number).ljust(368, b"\0")
    return head + struct.pack("<64I", *(0xA1010000 + _NUMBER if slot == 7 else 0 for slot in range(64)))


def _blocks(kind: int) -> bytes:
    head = struct.pack("<IIhhiii", 0xC104CAC3, 0x20000, kind, 0, _SIZES[kind], 0, _MOST[kind])
    data = bytearray(head.ljust(8192, b"\0") + bytes(_SIZES[kind] * _MOST[kind]))
    if kind == 1:
        begin = 8192 + 256 * _NUMBER
        data[begin : begin + len(_ENTRY)] = _ENTRY
    return bytes(data)


def put(root: Path, number: int = 0, profile: str = "Profile {}") -> Path:
    """Lay the cache of a profile; its directory."""
    folder = root / profile.format(number + 1) / "GPUCache"
    for kind in range(4):
        lay(folder / f"data_{kind}", _blocks(kind))
    return lay(folder / "index", index(number)).parent


def put_database(root: Path) -> Path:
    """Lay a database of newer versions; its directory."""
    folder = root / "GPUPersistentCache" / "GPUCache" / ("DOZVSIMZ" * 4)
    lay(folder / "cache.journal", b"")
    path = lay(folder / "cache.db", b"")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE entries(key BLOB PRIMARY KEY UNIQUE NOT NULL, content BLOB NOT NULL, "
            "input_signature INTEGER, write_timestamp INTEGER)"
        )
        connection.execute("INSERT INTO entries VALUES (x'00', zeroblob(9000), 0, 0)")
    return folder


def _with(name: str, change: Callable[[bytes], bytes]) -> Lay:
    def make(folder: Path) -> Path:
        return lay(folder / name, change((folder / name).read_bytes()))

    return make


def _flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


CASES: Cases = {
    "a cache": put,
    "an index that is empty": changed(put, _with("index", lambda _: b"")),
    "a cut index": changed(put, _with("index", lambda data: data[:500])),
    "another index": changed(put, _with("index", _flipped(0))),
    "an unknown version": changed(put, _with("index", _flipped(4))),
    "without an index": changed(put, gone("index")),
    "an empty block file": changed(put, _with("data_1", lambda _: b"")),
    "a cut block file": changed(put, _with("data_2", lambda data: data[:9000])),
    "another block file": changed(put, _with("data_3", _flipped(0))),
    "without a block file": changed(put, gone("data_3")),
    "a damaged entry": changed(put, _with("data_1", _flipped(8192 + 256 * _NUMBER + 40))),
    "a database": put_database,
    "no database": changed(put_database, write("cache.db", b"garbage" * 100)),
    "a cut database": changed(put_database, _with("cache.db", lambda data: data[:4096])),
    "one that Chromium removes": together(put, write("Profile 1/old_GPUCache_000/data_1", b"")),
    "of an Electron program": partial(put, profile="."),
}
PLACES: Environs = {
    "below the home": ({"HOME": "{tmp}"},),
    "a program next to it": ({"HOME": "{tmp}"}, ".config/Code/GPUCache/", ".config/other/files/"),
    "by the variable": ({"CHROME_USER_DATA_DIR": "{tmp}/own", "HOME": "{tmp}"}, "own"),
}
