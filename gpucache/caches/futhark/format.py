"""Futhark's cache files: one per program, at the place that ``--cache-file`` names when it is started.

A location that is a file is that one entry; a directory has every cache file directly in it, recognised by
its first bytes, among people's other files. Must not know compilers or devices.

====== ===== =================================================================
offset bytes content
====== ===== =================================================================
0      8     magic ``FUTHARK\0``
8      8     int64: size of the whole file, 48 + payload
16     32    key, eight uint32
48     n     payload, to the end of the file
====== ===== =================================================================

Numbers are in the order of the host, which is little-endian wherever Futhark runs on a GPU. There is no
checksum. CUDA stores PTX text without the final NUL, HIP what its compiler returned, OpenCL the binary of
the one device. CUDA and HIP compile again where the driver refuses the payload; OpenCL does where the binary
is refused as such, but stops where the build of it fails.

The key is an adapted djb2 of each input, all of them XOR-ed. An input is hashed byte by byte as
``x = 33*x + c`` from 5381 on, and ``x`` is XOR-ed into word ``place mod 8`` of eight 32-bit words. It starts
anew for every input: the order of inputs does not matter, and an input given twice cancels. ``c`` is a C
``char``, so bytes from 0x80 on count differently where ``char`` has no sign. CUDA and HIP add each build
option by itself and the source, OpenCL one string of all options and the source. A program's output with
``-L`` names its options and its file. Source: Futhark, rts/c/cache.h (``cache_hash``, ``cache_store``,
``cache_restore``), rts/c/gpu_prototypes.h and rts/c/backends/{cuda,hip,opencl}.h.
"""

import os
import platform
import re
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach, Served
from gpucache.caches import files
from gpucache.caches.comparison import Field, once
from gpucache.caches.files import Files, Frame, Rule, Span
from gpucache.caches.format import Clock, Format
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Left, Whose, is_copy
from gpucache.caches.systems import FutharkPlaces, folder_of_file
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from gpucache.folders import Folder
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_size

KEY_BYTES = 32
COMPARED_BYTES = 8
"""The part that Futhark compares: the number of words is passed to memcmp as the number of bytes."""
MAGIC = b"FUTHARK\0"
HEADER_BYTES = 48
PARTIAL = r"\.futhark-[0-9a-f]{16}\.gpucache-tmp"
SOURCE, ENDING = ".fut", ".cache"
"""Common endings of sources' and cache files' names, as in Futhark's documentation."""
_START = 5381
_WORD = 0xFFFF_FFFF
_UNSIGNED = tuple(range(256))
_SIGNED = tuple(byte - 256 * (byte > 127) for byte in range(256))
_UNSIGNED_MACHINES = ("aarch64", "arm", "ppc64", "riscv", "s390")
_LAYOUT = struct.Struct(f"<8sq{KEY_BYTES}s")
_BACKENDS = {
    PayloadKind.PTX: "cuda",
    PayloadKind.CUBIN: "cuda",
    PayloadKind.FATBIN: "cuda",
    PayloadKind.LTOIR: "cuda",
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.UNKNOWN: "",
}


def contribution(data: bytes, *, signed: bool = True) -> int:
    """The effect of one input on the key: a number of 256 bits, whose little-endian bytes are the key's."""
    steps, x = _SIGNED if signed else _UNSIGNED, _START
    words = [0] * 8
    for at, byte in enumerate(data):
        x = (33 * x + steps[byte]) & _WORD
        words[at & 7] ^= x
    return sum(word << 32 * index for index, word in enumerate(words))


def total(inputs: Iterable[bytes], *, signed: bool = True) -> int:
    added = 0
    for one in inputs:
        added ^= contribution(one, signed=signed)
    return added


def to_bytes(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "little")


def key_of(options: Iterable[str | bytes], source: bytes, signed: bool = True) -> bytes:
    """The 32 key bytes of a program: its options one by one (OpenCL: one joined string) and its source.

    ``source`` is the output of ``--dump-cuda``, ``--dump-opencl`` or ``--dump-hip``; ``signed`` says
    whether ``char`` has a sign where the program runs.
    """
    given = (one if isinstance(one, bytes) else one.encode("utf-8", "surrogateescape") for one in options)
    return to_bytes(total((*given, source), signed=signed))


def native_signed() -> bool:
    """Whether ``char`` is signed on this machine: not on AArch64 Linux, but on x86-64."""
    return not (sys.platform == "linux" and platform.machine().lower().startswith(_UNSIGNED_MACHINES))


def encode(key: bytes, payload: bytes) -> bytes:
    """A whole cache file; raises FormatError for a key without 32 bytes."""
    if len(key) != KEY_BYTES:
        raise FormatError(f"a Futhark key has {KEY_BYTES} bytes and this one has {len(key)}")
    return _LAYOUT.pack(MAGIC, HEADER_BYTES + len(payload), key) + payload


def target_of(payload: PayloadInfo) -> str:
    """A payload's target, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``; empty if unknown.

    PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
    """
    backend = _BACKENDS.get(payload.kind, "opencl")
    return f"{backend}:{payload.architecture}" if payload.architecture else backend


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC appends."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def program_of(name: str) -> str:
    """The program that a cache file is named after: ``foo.fut`` of ``foo.fut.cache``."""
    return PurePath(name).stem or name


def source_of(name: str) -> str | None:
    """The source next to which ``futhark bench --cache-extension`` left the file; None for other names.

    Source: Futhark, src/Futhark/Test.hs (``determineCache``).
    """
    program = program_of(name)
    return program if program != name and program.endswith(SOURCE) and program != SOURCE else None


FIELDS: Mapping[str, str] = {
    "source": "the kernels, as the program's --dump-cuda, --dump-hip or --dump-opencl FILE writes them",
    "log": "the program's stderr with -L, which lists its options",
    "option": "a build option, repeated in the program's order, if there is no log; OpenCL's in one text",
}
OPTION_LIMIT = 100_000
_LISTS = {b"NVRTC compile options:": "cuda", b"HIPRTC build options:": "hip"}
_JOINED = b"OpenCL compiler options: "


class LogReading(NamedTuple):
    """The facts of the last start in a program's output with -L."""

    backend: str = ""
    options: tuple[bytes, ...] | None = None
    """The options in the log; one joined string for OpenCL, None if the log lists none."""


def read_log(log: bytes) -> LogReading:
    """The facts of a log. Raises nothing, for any bytes."""
    backend, options, listing = "", None, False
    for line in (one.removesuffix(b"\r") for one in log.split(b"\n")):
        if options is not None and listing and line.startswith(b"\t"):
            options += [line[1:]] * (len(options) < OPTION_LIMIT)
            continue
        listing = line in _LISTS
        if listing:
            backend, options = _LISTS[line], list[bytes]()
        elif line.startswith(_JOINED):
            backend, options = "opencl", [line.removeprefix(_JOINED)]
    return LogReading(backend, None if options is None else tuple(options))


def _begins_alike(stored: str | None, asked: str | None) -> bool:
    """Whether two keys agree in all that Futhark compares."""
    digits = 2 * COMPARED_BYTES
    return (stored or "")[:digits] == (asked or "")[:digits]


LARGEST_BYTES = 256 << 20
SCANNED_BYTES = 4 << 20
"""The part of a file that a scan reads: enough to recognise nearly every payload."""
_NAMES_LOOKED_AT = 2000
_NAME = "name a Futhark cache file or its directory"
_FOREIGN = "it does not begin like Futhark's files or cannot be read, so it is left alone; keep it elsewhere"
RECOMPILED = "the program logs 'Failed to restore cache (errno: Success)', compiles again and writes over it"
_AGAIN = (
    "a CUDA or HIP program compiles again; an OpenCL program whose platform refuses it stops with "
    "'Compilation of OpenCL program failed' and does not compile again; remove the file"
)
_BAD_PAYLOAD = frozenset({FindingKind.CORRUPT, FindingKind.MISLABELLED})
_FILE = Frame(
    ".+", ":8 size:u64 :32 payload:rest", RECOMPILED,
    (
        Rule(FindingKind.CORRUPT, lambda one: one.part(Span(0, 8)) != MAGIC,
             "does not begin like a Futhark cache file", "a program that is given it writes over it"),
        Rule(FindingKind.TRUNCATED, lambda one: one.size_bytes < one.numbers["size"] < 1 << 63,
             "has fewer bytes than it says"),
        Rule(FindingKind.CORRUPT, lambda one: one.size_bytes != one.numbers["size"],
             "has more bytes than it says, so two writers may have met"),
    ),
)  # fmt: skip


class Futhark(FutharkPlaces, Format):
    """The files that programs made by ``futhark cuda``, ``hip`` and ``opencl`` leave at a given place."""

    layout = Layout((), left=[Left(PARTIAL)])
    wanted = FIELDS
    compared = {"key": Field(alike=_begins_alike)}
    unstored = "source or other options, of which it stores none"
    frames = (_FILE,)
    fixes = frozenset({FindingKind.TRUNCATED, *_BAD_PAYLOAD})

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self._named = "" if self.root == folder_of_file(self.root) else self.root.name
        self.root = folder_of_file(self.root)

    @classmethod
    def require(cls, root: Path) -> None:
        """A file or a directory; a link is a finding, and an inaccessible path a problem of the place."""
        try:
            mode = root.lstat().st_mode
        except (FileNotFoundError, PermissionError):
            return
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CacheUnusableError(f"{str(root)!r} cannot be accessed ({why}); {_NAME}") from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise CacheUnusableError(f"{root} is not a file or a directory; {_NAME}")

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """Futhark's if it is a cache file, or a directory that directly has one. As people name the place,
        and only files that begin like Futhark's are used, no other place is foreign."""
        with files.open_folder(path if path.is_dir() else path.parent) as folder:
            found = _cache_files(folder, _NAMES_LOOKED_AT) if path.is_dir() else ()
            own = any(found) or (not path.is_dir() and is_cache_file(folder, path.name))
        return Whose.OWN if own else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        with files.open_folder(self.root) as folder:
            for name in [self._named] if self._named else _cache_files(folder):
                with suppress(FileNotFoundError):
                    status = folder.lstat(name)
                    start = _start(folder, name)
                    own = start.startswith(MAGIC) and len(start) == HEADER_BYTES
                    key = start[-KEY_BYTES:].hex() if own else name
                    if key.startswith(prefix):
                        yield Files(self.root, (), key, {name: status})

    def beside(self) -> Iterator[Checked]:
        yield from (one for one in super().beside() if re.fullmatch(PARTIAL, Path(one.entry).name))

    def stays(self, item: Files) -> str:
        """Why the entry must not be removed: a named file is an entry even if it is not Futhark's."""
        with suppress(OSError, FormatError):
            return "" if item.part(item.names[0], 0, len(MAGIC)) == MAGIC else _FOREIGN
        return _FOREIGN

    def look(self, item: Files) -> CacheEntry:
        name = item.names[0]
        start, damage = item.part(name, 0, SCANNED_BYTES), next(self.judged(item, name), None)
        own = start.startswith(MAGIC) and len(start) >= HEADER_BYTES
        told = describe(start[HEADER_BYTES:])
        return self.entry(item)._replace(
            program=program_of(name),
            target=target_of(told) if own else "",
            artifact_kind=told.kind.value if own else "",
            fields=(("key", item.key),) if own else (),
            damage=damage,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        now, name = item.again(), item.names[0]
        wrong = next(self.judged(now, name), None) or next(self._payload_problem(now), None)
        if wrong is not None:
            yield wrong
        source = source_of(name)
        if source is not None and not os.path.lexists(item.folder / source):
            yield Problem(
                FindingKind.ORPHAN,
                f"{source}, next to which 'futhark bench' or 'futhark test' leaves it, is gone; "
                f"'gpucache evict --program {source}' removes it",
            )

    def _payload_problem(self, item: Files) -> Iterator[Problem]:
        if item.seen[item.names[0]].st_size > LARGEST_BYTES:
            return
        info = describe(self.payload(item))
        if info.problem:
            yield Problem(FindingKind.CORRUPT, f"its {info.kind} payload is broken: {info.problem}; {_AGAIN}")
        elif info.kind is PayloadKind.UNKNOWN:
            detail = f"its payload has no format that gpucache knows; {_AGAIN}"
            yield Problem(FindingKind.MISLABELLED, detail)

    def unsound(self, item: Files) -> Problem | None:
        """Return no problem for an unknown payload, which may be sound."""
        found = super().unsound(item)
        return None if found is not None and found.kind is FindingKind.MISLABELLED else found

    def notes(self, item: Files) -> Iterator[str]:
        if item.seen[item.names[0]].st_size > LARGEST_BYTES:
            yield f"it is larger than {format_size(LARGEST_BYTES)}: its content was not checked"

    def payload(self, item: Files) -> bytes:
        return item.read(item.names[0], LARGEST_BYTES)[HEADER_BYTES:]

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if not entry.fields:
            raise FormatError(f"{entry.path} cannot be read: {entry.damage}; run 'gpucache verify'")
        yield "all of the key that Futhark compares", item.key[: 2 * COMPARED_BYTES]

    def asked(self, wanted: Wanted) -> Mapping[str, str]:
        """The key of the requested program."""
        source, log = once(wanted, "source"), once(wanted, "log")
        if source is None:
            raise UsageError(
                "the field 'source' is missing; run the program with --dump-cuda FILE and give FILE"
            )
        options = wanted.get("option") or (read_log(log).options if log is not None else None)
        if options is None:
            raise UsageError(
                "the build options are missing; give 'log', the program's stderr with -L (which lists them), "
                "or each as 'option'"
            )
        return {"key": key_of(options, source, native_signed()).hex()}

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        for found in super().answer(wanted) or ():
            same = any(_begins_alike(one.left, one.right) for one in found.differences)
            detail = (
                "Futhark compares only the first eight bytes of the key, so it takes this file, which was "
                f"made from another {self.unstored}; remove it"
            )
            yield found._replace(verdict=Served.FALSE_HIT, detail=detail) if same else found

    def shows_left(self, start: bytes) -> bool:
        return start.startswith(MAGIC) or MAGIC.startswith(start)


def is_cache_file(folder: Folder, name: str) -> bool:
    """Whether a name is a regular file that begins with the magic. Raises nothing."""
    try:
        return _start(folder, name).startswith(MAGIC)
    except OSError:
        return False


def _start(folder: Folder, name: str) -> bytes:
    """The header of a regular file; nothing if it is not one or not readable."""
    try:
        return files.read_part(folder, name, 0, HEADER_BYTES)
    except (FormatError, PermissionError):
        return b""


def _cache_files(folder: Folder, most: int | None = None) -> Iterator[str]:
    """The names of the cache files directly in a directory, in no order; raises OSError.

    An empty one is recognised by its name: ``foo.fut.cache``, or the ending of another one there.
    """
    endings, empty = {ENDING}, []
    for found in islice(folder.entries(), most):
        if (
            re.fullmatch(PARTIAL, found.name)
            or is_copy(found.name)
            or not found.is_file(follow_symlinks=False)
        ):
            continue
        if is_cache_file(folder, found.name):
            endings.add(PurePath(found.name).suffix)
            yield found.name
        elif source_of(found.name):
            with suppress(FileNotFoundError):
                empty += [found.name] if not folder.lstat(found.name).st_size else []
    yield from (name for name in empty if PurePath(name).suffix in endings)
