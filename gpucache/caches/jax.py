"""JAX's persistent compilation cache: a file for each executable that XLA compiled, off by default.

Source: JAX 0.4.20 to 0.10, ``jax/_src/lru_cache.py``, ``gfile_cache.py``, ``compilation_cache.py`` and
``cache_key.py``. ``<module>-<64 hex>-cache``, before 0.4.31 without ``-cache``, is zstd, or zlib if Python
has no zstd, of the compile time in seconds as u32, big-endian, and the executable, which JAX passes to XLA:
gpucache never loads it. The digits are a SHA-256 of the program and everything that compiles it, which is not
stored. An executable for a CPU begins with its HLO module, and that with the module's name (observed in
0.4.30 and 0.10); flags with the path of XLA's caches and the CPU with its features are in it as well. If
JAX_COMPILATION_CACHE_MAX_SIZE bounds the cache, ``-atime`` next to it has the nanoseconds of the last use as
u64, little-endian, and ``.lockfile`` is locked (flock) around every read and write. Files are written in
place, before 0.4.30 under a temporary name, and since then existing files are never rewritten. XLA stores its
tuning results in a separate directory there. Every key has jaxlib's version, so one never reads another's
files: from 0.10 on a message precedes an executable, and shows that an older one wrote none of these.

A zlib stream is unpacked to be checked, and ends in a checksum. The blocks of a zstd frame contain their
lengths, so a cut is noticed without unpacking; that needs the package ``zstandard``. Bytes after the data are
no damage, as readers ignore them. For any data, no more is unpacked than the caller allows.
"""

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import interpreters
from gpucache.caches.files import Files
from gpucache.caches.format import SECOND_NS, Format, UnjudgedError
from gpucache.caches.layout import Layout, Left
from gpucache.caches.learning_places import JAX_MAX_SIZE, JaxPlaces
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.errors import FormatError
from gpucache.payload.reading import BrokenError, CutError
from gpucache.units import format_size

ZSTD, ZLIB = b"\x28\xb5\x2f\xfd", b"\x78"
_PIECE_BYTES = 1 << 20


def is_verified(data: bytes, most_bytes: int) -> bool:
    """Whether all of the data could be verified by unpacking at most ``most_bytes`` of it.

    Raises CutError for data that end too early, BrokenError for damaged data or an unknown form.
    """
    if data.startswith(ZSTD):
        _require_whole_frame(data)
        return True
    if data.startswith(ZLIB):
        return _is_stream_verified(data, most_bytes)
    raise BrokenError("it is not zstd or zlib")


def unpack(data: bytes, most_bytes: int) -> bytes:
    """At most so many bytes of packed data, from its beginning; raises BrokenError for damaged data, and
    for zstd if this Python cannot read it."""
    if data.startswith(ZLIB):
        try:
            return zlib.decompressobj().decompress(data, most_bytes)
        except zlib.error as error:
            raise BrokenError(f"its zlib data are damaged ({error})") from error
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        raise BrokenError(
            "it is packed with zstd, which this Python cannot read; install zstandard"
        ) from None
    try:
        found: bytes = zstandard.ZstdDecompressor().stream_reader(data).read(most_bytes)
    except zstandard.ZstdError as error:
        raise BrokenError(f"its zstd data are damaged ({error})") from error
    return found


def _is_stream_verified(data: bytes, most_bytes: int) -> bool:
    stream, size = zlib.decompressobj(), 0
    try:
        while data and not stream.eof and size < most_bytes:
            size += len(stream.decompress(data, _PIECE_BYTES))
            data = stream.unconsumed_tail
    except zlib.error as error:
        raise BrokenError(f"its zlib data are damaged ({error})") from error
    if not stream.eof and size < most_bytes:
        raise CutError("its zlib data are cut off")
    return stream.eof


def _require_whole_frame(data: bytes) -> None:
    descriptor = data[4] if len(data) > 4 else 0
    single = descriptor >> 5 & 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
    last = False
    while not last:
        if at + 3 > len(data):
            raise CutError("its zstd data are cut off")
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind = bool(header & 1), header >> 1 & 3
        if kind == 3:
            raise BrokenError(f"its zstd data have no such block as at byte {at}")
        at += 3 + (1 if kind == 1 else header >> 3)
    at += 4 * (descriptor >> 2 & 1)  # the checksum
    if at > len(data):
        raise CutError("its zstd data are cut off")


_LOCK = ".lockfile"
_LARGEST_BYTES = 1 << 30
"""The largest file that is read, and the largest decompressed size."""
_TOO_MUCH = f"more than {format_size(_LARGEST_BYTES)}"
_YOUNG_NS = 60 * SECOND_NS
_BEGINNING_BYTES, _MESSAGE_BYTES = 4096, 64
_MODULE_BYTES = 1 << 20
"""The beginning of an executable that is unpacked for its module's name; types of arguments precede it."""
_NAME = re.compile(rb"(?:jit|pmap)_[\w.$<>-]{0,4096}", re.ASCII)
_XLA_CACHE = re.compile(rb"/xla_gpu_(?:per_fusion_autotune_cache_dir|kernel_cache_file)")
"""The end of the path of one of XLA's own caches, below JAX's."""
_XLA_CACHES = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"
_ROOTED = re.compile(rb"/|\w+://")
_LONGEST_PATH = 4096
_TAG = re.compile(
    rb"(?:[\x82\x8a\x92\x9a\xa2\xaa\xb2\xba\xc2\xca\xd2\xda\xe2\xea\xf2\xfa][\x01-\x7f]|[\n\x12\x1a\"*2:BJRZbjrz])\Z"
)
"""The end of the tag of a string: the lower three bits of its first byte are 2."""
_CPU = re.compile(rb"-[a-z]+-linux-\w+\x12?[^+]{0,4}?([a-z][\w-]{1,40})[^+\w]{1,6}[+-]\w")
"""A target triple of LLVM's, the CPU's name, and the beginning of its features."""
_NESTED = 8
_VERSIONS = {True: "0.4.31+", False: "0.4.20-0.4.30"}
_NEWER, _NEWER_VERSION = b"\x12\tpjrt_ifrt", (0, 10)
"""The name in the message before an executable, and the version that introduced it."""
_CACHE, _USE = "-cache", "-atime"
_STAYS = "JAX warns and compiles it again at every run, and never replaces it"


class Jax(JaxPlaces, Format):
    """The executables that ``jax.jit`` stores on every platform."""

    layout = Layout(
        [rf"(?!_temp_)[\w.-]+-([0-9a-f]{{64}}){kind}" for kind in (_CACHE, "", _USE)],
        left=[Left(r"_temp_[\w.-]+-[0-9a-f]{64}")],
        own=[r"\.lockfile", "xla_gpu_per_fusion_autotune_cache_dir/", "xla_gpu_kernel_cache_file"],
    )
    wanted = {"key": "hex digits of a key as JAX logs it behind the name of the module, or the first of them"}
    opaque = (
        "its entries do not record their inputs, so only key=HEX can be queried; "
        "JAX_DEBUG_LOG_MODULES=jax._src.cache_key logs a hash of each input, so that two runs can be compared"
    )
    absent = (
        "no entry has this key: it was never compiled, or in less than "
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS (1 s unless it is set), or was evicted, of which JAX "
        "keeps no record"
    )
    serves_orphans = True
    unseen = "the executable of another module of that name, or a changed byte where zstd has no checksum"
    fixes = Format.fixes | {FindingKind.LEFTOVER}
    lock_name = _LOCK
    moving = Moving(
        tells="paths",
        note="Set JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none on all machines, or have the cache at the same "
        "path: the path of XLA's caches is in the keys.",
        untold=(Fact.VERSION, Fact.ARCHITECTURE),
    )

    def bars(self, item: Files) -> Problem | None:
        if item.names[0].endswith(_USE):
            return Problem(FindingKind.LEFTOVER, "it is the last use of an executable that is gone")
        return super().bars(item)

    def shows_left(self, start: bytes) -> bool:
        return start.startswith((ZLIB, ZSTD))

    def look(self, item: Files) -> CacheEntry:
        name, status = next(iter(item.seen.items()))
        start, unpacked = item.part(name, 0, _BEGINNING_BYTES), b""
        packed = "zstd" if start.startswith(ZSTD) else "zlib" if start.startswith(ZLIB) else ""
        problem = None if packed else Problem(FindingKind.MISLABELLED, f"it is not zstd or zlib; {_STAYS}")
        with suppress(BrokenError):  # for example if this Python cannot read zstd
            unpacked = unpack(start, _MESSAGE_BYTES)
        seconds, newer = unpacked[:4], _NEWER in unpacked
        beside = (one for one in item.names[1:] if one.endswith(_USE))
        uses = [int.from_bytes(item.part(one, 0, 8), "little") for one in beside]
        return self.entry(item)._replace(
            program=_program(name),
            artifact_kind="xla-executable" if packed else "",
            fields=(("packed by", packed),) if packed else (),
            damage=problem if start else Problem(FindingKind.TRUNCATED, f"it is empty; {_STAYS}"),
            compile_ns=int.from_bytes(seconds, "big") * SECOND_NS if len(seconds) == 4 else None,
            last_used_ns=max(uses or (status.st_mtime_ns, status.st_atime_ns)),
            toolchain=(("JAX", "0.10+" if newer else _VERSIONS[name.endswith(_CACHE)]),),
            gone="JAX 0.10 or newer" if newer and _is_older_here() else "",
        )

    def check(self, item: Files) -> Iterator[Problem]:
        name, status = next(iter(item.seen.items()))
        try:
            if not status.st_size:
                raise CutError("it is empty")
            data = item.read(name) if status.st_size <= _LARGEST_BYTES else b""
            if data and not is_verified(data, _LARGEST_BYTES):
                raise UnjudgedError(f"it unpacks to {_TOO_MUCH}, and the rest was not checked")
        except CutError as error:
            if 0 <= self.now_ns() - status.st_mtime_ns < _YOUNG_NS:
                raise UnjudgedError(f"{error}, as JAX is writing it; check again in a minute") from error
            yield Problem(FindingKind.TRUNCATED, f"{error}; {_STAYS}")
        except BrokenError as error:
            yield Problem(FindingKind.CORRUPT, f"{error}; {_STAYS}")
        else:
            with suppress(BrokenError):  # for example if this Python cannot read zstd
                if (module := _module(unpack(data, _MODULE_BYTES)[4:])) not in ("", _program(name)):
                    detail = f"it has the executable of {module}, which JAX runs instead of the right one"
                    yield Problem(FindingKind.MISLABELLED, detail)
        if name.endswith(_CACHE) and len(item.seen) == 1 and os.path.lexists(self.root / _LOCK):
            yield Problem(
                FindingKind.ORPHAN,
                f"it has no -atime file next to it, so with {JAX_MAX_SIZE} JAX writes no new entry "
                "(FileNotFoundError) until a program has used this one",
                f"remove it, or unset {JAX_MAX_SIZE}",
            )

    def has_checksum(self, item: Files) -> bool:
        """Whether an entry has a checksum: zlib always has one, zstd if its frame says so."""
        start = item.part(item.names[0], 0, 5)
        return start.startswith(ZLIB) or (start.startswith(ZSTD) and len(start) > 4 and bool(start[4] & 4))

    def notes(self, item: Files) -> Iterator[str]:
        if next(iter(item.seen.values())).st_size > _LARGEST_BYTES:
            yield f"it is larger than {format_size(_LARGEST_BYTES)} and was not read"

    def content(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        item.again()
        yield "kind", entry.artifact_kind

    def payload(self, item: Files) -> bytes:
        found = unpack(item.read(item.names[0]), _LARGEST_BYTES + 1)
        if len(found) > _LARGEST_BYTES:
            raise FormatError(f"{item.path} unpacks to {_TOO_MUCH}, which is not given out")
        return found[4:]

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """The cache's own path if XLA's caches below it are in the key, else the setting that keeps them out;
        the CPU; and the compression, which is in the key as well."""
        with suppress(BrokenError):  # for example if this Python cannot read zstd
            data = self.payload(item)
            place = _place(data)
            yield (Fact.PLACE, place) if place else (_XLA_CACHES, "none")
            if cpu := _CPU.search(data):
                yield Fact.CPU, cpu[1].decode()
        yield "compression", dict(look.fields)["packed by"]

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        setting = os.environ.get(_XLA_CACHES)
        return {**super().facts_here(), **({_XLA_CACHES: frozenset({setting})} if setting else {})}

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        return [one for one in super().files_to_move(item) if not one.name.endswith(_USE)]

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        """The executable, and in a bounded cache its last use before it, as JAX writes no other without."""
        files = entry.files
        if not os.path.lexists(root / _LOCK) or not files or not files[0].name.endswith(_CACHE):
            return files
        name = files[0].name.removesuffix(_CACHE) + _USE
        return [PortableFile(name, self.now_ns().to_bytes(8, "little"), files[0].mode), *files]

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The executable first: one without an -atime stops JAX from writing others."""
        return sorted(names, key=lambda name: name.endswith(_USE))


@cache
def _is_older_here() -> bool:
    """Whether every JAX on this machine is older than those that write the newer form."""
    here = [re.match(r"(\d+)\.(\d+)", one) for one in interpreters.versions_of("jaxlib")]
    return bool(here) and all(one and (int(one[1]), int(one[2])) < _NEWER_VERSION for one in here)


def _place(executable: bytes) -> str:
    """The path of the cache in the flags of an executable, a string of Protocol Buffers; empty if none is.

    A letter inside of a path can look like the length of its rest, so the longest such string counts.
    """
    for end in _XLA_CACHE.finditer(executable):
        found = ""
        for start in range(end.start(), max(3, end.start() - _LONGEST_PATH), -1):
            length = end.end() - start
            told = executable[start - (2 if length > 0x7F else 1) : start]
            tag = _TAG.search(executable, max(0, start - len(told) - 2), start - len(told))
            if tag and _length(told, 0) == (length, len(told)) and _ROOTED.match(executable, start):
                found = executable[start : end.start()].decode("utf-8", "replace")
        if found:
            return found
    return ""


def _program(name: str) -> str:
    return name.removesuffix(_CACHE).removesuffix(_USE).rpartition("-")[0]


def _module(executable: bytes) -> str:
    """The name of the module that an executable for a CPU begins with; empty if it does not begin like one.

    It is the first field of nested messages of Protocol Buffers, the first field in each. In 0.10 a message
    of JAX with its length precedes them.
    """
    at = 0
    if executable[:1] != b"\n":
        length, at = _length(executable, 0)
        at += length
    for _ in range(_NESTED):
        if executable[at : at + 1] != b"\n":
            break
        length, at = _length(executable, at + 1)
        if _NAME.fullmatch(executable, at, at + length):
            return executable[at : at + length].decode()
    return ""


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length of at most 35 bits as a varint, and where it ends."""
    length = 0
    for shift, byte in enumerate(data[at : at + 5]):
        length |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return length, at + shift + 1
    return length, len(data)
