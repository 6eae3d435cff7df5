"""Mesa's shader cache, of OpenGL, Vulkan and rusticl: files for each entry, or a database, or an archive.

Source: Mesa 22 to 26, ``src/util/disk_cache_os.c``, ``mesa_cache_db.c`` and ``fossilize_db.c``; checked
against files of rusticl 22.3. Below ``mesa_shader_cache`` an entry is ``XX/`` and the rest of a SHA-1 or
BLAKE3, with the frame below: its CRC-32 is inverted, the rest is compressed by zstd. ``index`` begins with
the u64 size of all entries on disk, by which Mesa evicts, so a removal corrects it. ``mesa_shader_cache_db``
has ``mesa_cache.db`` and ``.idx``, ``mesa_shader_cache_sf`` a Fossilize archive for each driver and GPU: each
of these is one entry, which only Mesa can trim.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.desktop_places import MesaPlaces
from gpucache.caches.files import Files, Frame, Parts, Rule
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, hashed

_DRIVER, _NAME = "([0-9a-f]{40,64}|rusticl)", "([0-9a-f]{38}|[0-9a-f]{62})"
_DATABASES = ("()()(mesa_cache)", r"()(part\d+)/(mesa_cache)")
_MAGICS = {".db": b"MESA_DB\0", ".foz": b"\x81FOSSILIZEDB\0\0\0", "": b"\1"}
_START_BYTES = 20
_AGAIN, _ANEW = "Mesa compiles it again", "Mesa throws the whole database away and begins anew"


def _key(groups: Sequence[str]) -> str:
    name = "".join(groups)
    return name if len(groups) == 2 and len(name) in (40, 64) else hashed([name])


def _crc(data: bytes) -> int:
    return zlib.crc32(data) ^ 0xFFFFFFFF


def _foreign_index(one: Parts) -> bool:
    index = next((name for name in one.item.names if name.endswith(".idx")), "")
    return not index or one.item.part(index, 0, _START_BYTES) != one.item.part(one.name, 0, _START_BYTES)


def _broken_rows(one: Parts) -> bool:
    """Whether some row does not match its CRC-32, for keys of either size (SHA-1, BLAKE3)."""
    rows = one.read("rows", one.spans["rows"].length)
    return not any(_reads(rows, key_bytes) for key_bytes in (20, 32))


def _reads(rows: bytes, key_bytes: int) -> bool:
    at = 0
    while len(rows) >= (start := at + key_bytes + 8) > at < len(rows):
        crc, size = struct.unpack_from("<II", rows, start - 8)
        at = start + size
        if _crc(rows[start:at]) != crc:
            return False
    return at == len(rows)


_ENTRY = Frame(
    "[0-9a-f]{38,62}",
    "version:u8 driver:z gpu:z pointers:u8 flags:u64 /4 keyed:u32 keys:u32?keyed :20*keys?keyed "
    "crc:u32 size:u32 packed:rest",
    _AGAIN,
    [
        Rule(
            FindingKind.CORRUPT,
            lambda one: _crc(one.read("packed")) != one.numbers["crc"],
            "has another CRC-32",
        )
    ],
)
_DATABASE = Frame(
    r".+\.db",
    ":20 rows:rest",
    _ANEW,
    [
        Rule(FindingKind.CORRUPT, _foreign_index, "is not the one of its index"),
        Rule(FindingKind.CORRUPT, _broken_rows, "has a row whose CRC-32 does not match its content"),
    ],
)


class Mesa(MesaPlaces, Format):
    """The shaders that Mesa's compilers made, in any of its three forms."""

    layout = Layout(
        [
            f"([0-9a-f]{{2}})/{_NAME}",
            *(rf"{place}\.{ending}" for ending in ("db", "idx") for place in _DATABASES),
            *(rf"{_DRIVER}/(.+)/(foz_cache){ending}\.foz" for ending in ("", "_idx")),
        ],
        left=[Left(rf"[0-9a-f]{{2}}/{_NAME}\.tmp", sure=True)],
        own=[f"{place}(?:index|marker)" for place in ("", rf"{_DRIVER}/.+/", r"part\d+/")],
        signs=[
            "index",
            f"[0-9a-f]{{2}}/{_NAME}",
            r"mesa_cache\.db",
            r"part\d+/mesa_cache\.db",
            f"{_DRIVER}/.+/.+",
        ],
        key=_key,
    )
    frames = (_ENTRY, _DATABASE)
    checksums = True
    folders_removed = 1
    sum_name, sum_is_alone = "index", False
    without_sum = "Mesa keeps nothing"

    def look(self, item: Files) -> CacheEntry:
        name, suffix = item.names[0], Path(item.names[0]).suffix
        start, entry = item.part(name, 0, _START_BYTES), self.entry(item)
        if suffix == ".idx" or name.endswith("_idx.foz"):
            detail = "it is the index of a file that is gone"
            return entry._replace(damage=Problem(FindingKind.ORPHAN, detail))
        head = Parts(item, name, _ENTRY.words)
        if not start and not suffix:
            return entry._replace(damage=Problem(FindingKind.TRUNCATED, f"it is empty; {_AGAIN}"))
        if not start.startswith(_MAGICS[suffix]) or (head.cut and not suffix):
            problem = Problem(FindingKind.MISLABELLED, f"it does not begin as Mesa writes it; {_AGAIN}")
            return entry._replace(damage=problem)
        if suffix:
            gpu, kind = item.parts[-1] if suffix == ".foz" else "", {".db": "database"}.get(suffix, "archive")
            return entry._replace(target=gpu, artifact_kind=kind)
        driver = (("driver", head.texts["driver"]),)
        return entry._replace(target=head.texts["gpu"], artifact_kind="shader", toolchain=driver)

    def stays(self, item: Files) -> str:
        if "." not in item.names[0]:
            return ""
        return f"Mesa keeps all its entries in it; remove {item.folder} as a whole while no program uses it"

    def payload(self, item: Files) -> bytes:
        found = Parts(item, item.names[0], _ENTRY.words)
        whole = found.cut or "." in item.names[0]
        return super().payload(item) if whole else found.read("packed", self.largest_bytes)
