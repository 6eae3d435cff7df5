"""The shader caches of Chromium, and of the browsers and Electron programs that are built on it.

Source: Chromium 156, ``net/disk_cache/blockfile/disk_format.h``, ``disk_format_base.h`` and ``addr.h`` and
``components/persistent_cache/sqlite``; checked against its caches. A profile has ``GPUCache`` (WebGL),
``DawnWebGPUCache`` and ``DawnGraphiteCache`` (``DawnCache`` before 2023); above all profiles there are
``GrShaderCache``, ``ShaderCache`` and ``GraphiteDawnCache``. Each has ``index``, a hash table of addresses;
``data_0`` to ``data_3`` and more, blocks of 36, 256, 1024 and 4096 bytes after a header of 8 KiB; and
``f_<6 hex>``, one large piece of data each. An entry is a block of 256 bytes with the addresses and sizes of
its data, a hash of itself, and its key. If the index or a header is damaged, Chromium renames the directory
to ``old_NAME_000``, removes that in the background and begins anew; it drops a damaged entry. Newer versions
also have ``GPUPersistentCache/GPUCache/ID/cache.db``, an SQLite database, which Chromium keeps as it is if
it is damaged. No shader can be removed alone, as the browser maps these files into memory, so each directory
is one entry.
"""

import sqlite3
import struct
from collections.abc import Iterator, Mapping

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.databases import DatabaseFormat
from gpucache.caches.desktop_places import ChromiumPlaces
from gpucache.caches.files import Files
from gpucache.caches.format import HeldError, UnjudgedError
from gpucache.caches.layout import Layout, Left, hashed

_NAMES = "GPUCache|DawnWebGPUCache|DawnGraphiteCache|DawnCache|GrShaderCache|ShaderCache|GraphiteDawnCache"
_PROFILES = ("", r"(Default|Profile \d+|Guest Profile|System Profile)/", r"(Partitions)/([\w.%-]+)/")
_INDEX, _BLOCKS, _DATA = "index", r"data_\d{1,3}", "f_[0-9a-f]{6}"
_DATABASE = r"(GPUPersistentCache)/(\w+)/([A-Z2-7]{32})/cache\."
_INDEX_HEADER, _BLOCK_HEADER = struct.Struct("<IIi16xI336x"), struct.Struct("<II4xi4xi")
_ENTRY = struct.Struct("<4xI32x4i4I20xI")
_INDEX_MAGIC, _BLOCK_MAGIC, _VERSIONS = 0xC103CAC3, 0xC104CAC3, (0x20000, 0x20001, 0x30000)
_HEADER_BYTES, _HASHED_BYTES, _DEFAULT_TABLE = 8192, 92, 1 << 16
_AGAIN = "Chromium throws this cache away and compiles its shaders again"


class Chromium(ChromiumPlaces, DatabaseFormat):
    """The compiled shaders of web pages, and of the interface itself."""

    layout = Layout(
        [
            *(f"{place}({_NAMES})/{name}" for name in (_INDEX, _BLOCKS, _DATA) for place in _PROFILES),
            rf"{_DATABASE}db",
            rf"{_DATABASE}(?:db-wal|journal)",
        ],
        left=[
            Left(f"{place}old_(?:{_NAMES})_\\d{{3}}/(?:{_INDEX}|{_BLOCKS}|{_DATA})", sure=True)
            for place in _PROFILES
        ],
        signs=["Local State", "Preferences", *(f"{place}(?:{_NAMES})" for place in _PROFILES)],
        key=hashed,
    )
    folders_removed = 1
    tells_strangers = False
    consequence = "Chromium stores nothing there and compiles its shaders at every start, until it is removed"

    def look(self, item: Files) -> CacheEntry:
        names = item.parts[:-1] if _is_database(item) else item.parts
        problem = self.look_at_database(item) if _is_database(item) else _look_at_index(item)
        return self.entry(item)._replace(program="/".join(names), damage=problem)

    def check(self, item: Files) -> Iterator[Problem]:
        if _is_database(item):
            yield from super().check(item)
        elif problem := _look_at_index(item) or _walked(item):
            try:
                with self.lock(item):
                    yield problem
            except HeldError as error:
                raise UnjudgedError(str(error)) from error

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:
        yield from ()


def _is_database(item: Files) -> bool:
    return item.names[0].startswith("cache.")


def _look_at_index(item: Files) -> Problem | None:
    """The problem of an index that is missing, cut, or of another version."""
    if _INDEX not in item.seen:
        return Problem(FindingKind.ORPHAN, "its index is gone, so Chromium begins with an empty cache")
    head = item.part(_INDEX, 0, _INDEX_HEADER.size)
    if len(head) < _INDEX_HEADER.size:
        return Problem(FindingKind.TRUNCATED, f"its index ends in the header; {_AGAIN}")
    magic, version, _, slots = _INDEX_HEADER.unpack(head)
    if magic != _INDEX_MAGIC:
        return Problem(FindingKind.MISLABELLED, f"its index does not begin as one of Chromium's; {_AGAIN}")
    if version not in _VERSIONS:
        return Problem(FindingKind.CORRUPT, f"its index has the unknown version {version:#x}; {_AGAIN}")
    if item.seen[_INDEX].st_size < _INDEX_HEADER.size + 4 * (slots or _DEFAULT_TABLE):
        return Problem(FindingKind.TRUNCATED, f"its index ends in the table; {_AGAIN}")
    return None


def _walked(item: Files) -> Problem | None:
    """The first problem of a block file, or of an entry that the table leads to."""
    blocks: dict[int, tuple[int, bytes]] = {}
    for name in (one for one in item.names if one.startswith("data_")):
        data = item.read(name)
        if len(data) < _HEADER_BYTES:
            return Problem(FindingKind.TRUNCATED, f"{name} ends in its header; {_AGAIN}")
        magic, version, size, most = _BLOCK_HEADER.unpack_from(data)
        if magic != _BLOCK_MAGIC or version not in _VERSIONS or size <= 0:
            return Problem(FindingKind.CORRUPT, f"{name} is not a block file of Chromium; {_AGAIN}")
        if len(data) < _HEADER_BYTES + size * most:
            return Problem(FindingKind.TRUNCATED, f"{name} ends before its last block; {_AGAIN}")
        blocks[int(name[5:])] = size, data
    if gone := next((f"data_{number}" for number in range(4) if number not in blocks), ""):
        return Problem(FindingKind.TRUNCATED, f"{gone} is gone; {_AGAIN}")
    index = item.read(_INDEX)
    table = memoryview(index)[_INDEX_HEADER.size : len(index) // 4 * 4].cast("I")
    external = {int(name[2:], 16): status.st_size for name, status in item.seen.items() if name[:2] == "f_"}
    seen: set[int] = set()
    broken = 0
    for address in filter(None, table):
        while address and address not in seen:
            seen.add(address)
            address, sound = _entry(address, blocks, external)
            broken += not sound
    if not broken:
        return None
    words = f"{broken} of its {len(seen)} entries are damaged or lack data"
    return Problem(FindingKind.CORRUPT, f"{words}; Chromium drops them and compiles their shaders again")


def _entry(
    address: int, blocks: Mapping[int, tuple[int, bytes]], external: Mapping[int, int]
) -> tuple[int, bool]:
    """The address of the next entry of a slot, and whether an entry and all of its data exist."""
    data = _at(address, blocks)
    if len(data) < _ENTRY.size:
        return 0, False
    following, *rest, self_hash = _ENTRY.unpack_from(data)
    if _hash(data[:_HASHED_BYTES]) != self_hash:
        return 0, False
    for size, place in zip(rest[:4], rest[4:], strict=True):
        if size <= 0:
            continue
        held = len(_at(place, blocks)) if place >> 28 & 7 else external.get(place & 0xFFFFFFF, 0)
        if not place >> 31 or held < size:
            return following, False
    return following, True


def _at(address: int, blocks: Mapping[int, tuple[int, bytes]]) -> bytes:
    """The blocks at an address; empty if the file ends before them."""
    size, data = blocks.get(address >> 16 & 0xFF, (0, b""))
    start, count = _HEADER_BYTES + size * (address & 0xFFFF), size * ((address >> 24 & 3) + 1)
    return data[start : start + count]


def _hash(data: bytes) -> int:
    """The hash that Chromium stores of an entry: SuperFastHash, for a multiple of four bytes."""
    value = len(data)
    for low, high in struct.iter_unpack("<HH", data):
        value = value + low & 0xFFFFFFFF
        value = (value << 16 ^ high << 11 ^ value) & 0xFFFFFFFF
        value = value + (value >> 11) & 0xFFFFFFFF
    for left, right in ((3, 5), (4, 17), (25, 6)):
        value ^= value << left & 0xFFFFFFFF
        value = value + (value >> right) & 0xFFFFFFFF
    return value
