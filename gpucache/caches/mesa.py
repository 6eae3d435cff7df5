"""Mesa's shader cache, of OpenGL, Vulkan and rusticl: files for each entry, or a database, or an archive.

Source: Mesa 22 to 26, ``src/util/disk_cache_os.c``, ``mesa_cache_db.c`` and ``fossilize_db.c``; checked
against files of rusticl 22.3. Below ``mesa_shader_cache`` an entry is ``XX/`` and the rest of a SHA-1 or
BLAKE3: u8 version, driver and GPU as C strings, u8 size of pointers, u64 flags, zeros up to four bytes, u32 0
or 1 and then a u32 number of keys with 20 bytes each, CRC-32 of the rest (inverted), u32 size, and the rest,
compressed by zstd. ``index`` begins with the u64 size of all entries on disk, by which Mesa evicts, so a
removal corrects it. ``mesa_shader_cache_db`` has ``mesa_cache.db`` and ``.idx``, ``mesa_shader_cache_sf`` a
Fossilize archive for each driver and GPU: each of these is one entry, which only Mesa can trim.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import SummedFormat
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.portable import WHOLE, Moving, PortableFile
from gpucache.caches.systems import MesaPlaces
from gpucache.errors import FormatError

_DRIVER = "([0-9a-f]{40,64}|rusticl)"
_HEAD_BYTES = 4096
_KEYED = 1
_DATABASE = struct.Struct("<8sIQ")
_MAGICS = {".db": b"MESA_DB\0", ".foz": b"\x81FOSSILIZEDB\0\0\0"}
_AGAIN = "Mesa compiles it again"
_ANEW = "Mesa throws the whole database away and begins anew"
_EMPTY = Problem(FindingKind.TRUNCATED, f"it is empty; {_AGAIN}")


def _key(groups: Sequence[str]) -> str:
    name = "".join(groups)
    return name if len(groups) == 2 and len(name) in (40, 64) else hashed([name])


class Mesa(MesaPlaces, SummedFormat):
    """The shaders that Mesa's compilers made, in any of its three forms."""

    checksums = True
    layout = Layout(
        [
            "([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})",
            r"()()(mesa_cache)\.db",
            r"()(part\d+)/(mesa_cache)\.db",
            rf"{_DRIVER}/(.+)/(foz_cache)\.foz",
            r"()()(mesa_cache)\.idx",
            r"()(part\d+)/(mesa_cache)\.idx",
            rf"{_DRIVER}/(.+)/(foz_cache)_idx\.foz",
        ],
        left=[Left(r"[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})\.tmp", sure=True)],
        own=["index", "marker", rf"{_DRIVER}/.+/index", rf"{_DRIVER}/.+/marker", r"part\d+/(?:index|marker)"],
        signs=[
            "index",
            "[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})",
            r"mesa_cache\.db",
            r"part\d+/mesa_cache\.db",
            f"{_DRIVER}/.+/.+",
        ],
        key=_key,
    )
    wanted = {"key": "hex digits of an entry's directory and name, or the first of them"}
    opaque = (
        "its entries record only the driver and the GPU of the inputs of their keys; "
        "MESA_SHADER_CACHE_SHOW_STATS=true prints hits and misses of a program"
    )
    shows = "an entry of Mesa's"
    moving = Moving()
    folders_removed = 1
    sum_name, sum_is_alone = "index", False
    without_sum = "Mesa keeps nothing"

    def look(self, item: Files) -> CacheEntry:
        """Driver and GPU of an entry; of a database how large it is."""
        name = item.names[0]
        start = item.part(name, 0, _HEAD_BYTES)
        if magic := _MAGICS.get(Path(name).suffix):
            problem = None if start.startswith(magic) else _not(f"no {Path(name).stem}")
            gpu = item.parts[-1] if name.endswith(".foz") else ""
            kind = "database" if name.endswith(".db") else "archive"
            return self.entry(item)._replace(
                target=gpu, artifact_kind=kind, damage=problem, shows=problem is None
            )
        if "." in name:
            return self.entry(item)._replace(
                damage=Problem(FindingKind.ORPHAN, "it is the index of a file that is gone")
            )
        head = _head(start)
        if head is None:
            return self.entry(item)._replace(
                damage=_not("no entry of Mesa's") if start else _EMPTY, shows=not start
            )
        return self.entry(item)._replace(
            target=head.gpu,
            artifact_kind="shader",
            toolchain=(("driver", head.driver),),
        )

    def stays(self, item: Files) -> str:
        """Why a database or an archive stays: only files of single entries are removed."""
        if "." not in item.names[0]:
            return ""
        return f"Mesa keeps all its entries in it; remove {item.folder} as a whole while no program uses it"

    def check(self, item: Files) -> Iterator[Problem]:
        """The CRC-32 of an entry; for a database the CRC-32 of every row."""
        if problem := self.look(item).damage:
            yield problem
        elif item.names[0].endswith(".db"):
            if problem := _database_damage(item):
                yield problem
        elif "." not in item.names[0]:
            data = item.read(item.names[0])
            head = _head(data)
            if head is None or zlib.crc32(data[head.size_bytes :]) ^ 0xFFFFFFFF != head.crc:
                yield Problem(FindingKind.CORRUPT, f"its CRC-32 does not match its content; {_AGAIN}")

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - from its head
        """The GPU and the build of the driver, as the head has them."""
        yield "GPU", look.target
        yield from (("build of the driver", build) for _, build in look.toolchain)

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """The file of an entry; databases and archives stay."""
        if "." in item.names[0]:
            raise FormatError(f"it is one of Mesa's databases: {WHOLE.why_not}")
        return super().files_to_move(item)

    def payload(self, item: Files) -> bytes:
        """Mesa's compressed payload, which only the driver can read."""
        data = item.read(item.names[0])
        head = _head(data)
        return data if head is None else data[head.size_bytes :]


class _Head(NamedTuple):
    driver: str
    gpu: str
    crc: int
    size_bytes: int
    """The size up to the compressed data."""


def _head(data: bytes) -> _Head | None:
    """The head of an entry; None if the data does not begin with one."""
    end = data.find(b"\0", 1)
    last = data.find(b"\0", end + 1)
    if not data.startswith(b"\1") or end < 0 or last < 0:
        return None
    at = -(-(last + 1 + 9) // 4) * 4
    try:
        (keyed,) = struct.unpack_from("<I", data, at)
        at += 4
        if keyed == _KEYED:
            at += 4 + 20 * struct.unpack_from("<I", data, at)[0]
        crc, _ = struct.unpack_from("<II", data, at)
    except struct.error:
        return None
    driver, gpu = (part.decode("utf-8", "replace") for part in (data[1:end], data[end + 1 : last]))
    return _Head(driver, gpu, crc, at + 8)


def _database_damage(item: Files) -> Problem | None:
    """The damage of a database: its index belongs to another one, or a CRC-32 does not match its row."""
    name, *index = item.names
    data = item.read(name)
    if not index or item.part(index[0], 0, _DATABASE.size) != data[: _DATABASE.size]:
        return Problem(FindingKind.CORRUPT, f"its index is not of it; {_ANEW}")
    damage = [_rows_damage(data, key_bytes) for key_bytes in (20, 32)]  # SHA-1, or BLAKE3 from 26 on
    return None if None in damage else Problem(FindingKind.CORRUPT, f"{damage[0]}; {_ANEW}")


def _rows_damage(data: bytes, key_bytes: int) -> str | None:
    at = _DATABASE.size
    while at < len(data):
        start = at + key_bytes + 8
        if start > len(data):
            return "it ends in the middle of a row"
        crc, size = struct.unpack_from("<II", data, at + key_bytes)
        at = start + size
        if at > len(data):
            return "it ends in the middle of a row"
        if zlib.crc32(data[start:at]) ^ 0xFFFFFFFF != crc:
            return "the CRC-32 of a row does not match its content"
    return None


def _not(what: str) -> Problem:
    return Problem(FindingKind.MISLABELLED, f"it is {what}; {_AGAIN}")
