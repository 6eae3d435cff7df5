"""The numbered files in a directory of libsycl's cache: their layout, the stored key as text, the hash.

Every length is compared with the file's size before anything is read. Source: libsycl,
``persistent_device_code_cache.cpp`` (``writeSourceItem``, ``writeBinaryDataToFile``, ``getDeviceIDString``),
all integers unsigned 64-bit little-endian::

    <n>.src              four times length and bytes: device string, build options, spec constants, images
    <n>.bin              number of binaries (1), then length and bytes of each
    <n>_access_time.txt  nanoseconds in decimal
    <n>.lock             empty, as <n>_access_time.txt.lock

Directories are named by ``std::hash<std::string>`` of libstdc++ on 64-bit machines (``hash_bytes.cc``:
MurmurHash64A with a different seed) in decimal. Owns the facts in the files of one number.
Must not know the meaning of other numbers for an entry.
"""

import hashlib
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, describe, spirv
from gpucache.payload.mangled import readable
from gpucache.units import format_size, printable

BINARY, SOURCE, LOCK = ".bin", ".src", ".lock"
ACCESS = "_access_time.txt"
ACCESS_LOCK = ACCESS + LOCK
IR_STEM = "ir"
FILE = r"(0|[1-9][0-9]{0,9}|ir)(\.bin|\.src|\.lock|_access_time\.txt|_access_time\.txt\.lock)"
KERNELS = "ext_kernel_compiler"
DEVICE_LABELS = ("platform name", "device name", "device version", "driver version")
IDENTITY_LABELS = DEVICE_LABELS[:2]

PASSED_OVER = "programs pass it over and keep another copy next to it"
LOST = "a program that asks for it gets nothing, tries no other copy and adds one at every run"
DIES = "every program that asks for it dies with std::bad_alloc"
ABSURD_BYTES = 1 << 40
"""A length larger than the memory of any machine."""
SHOWN_BYTES = 4096
"""How much of a text is read and shown, and how much of a binary a scan reads."""
NAMED_BYTES = 1 << 20
"""How much of the images is searched for names."""
LOOKED_INTO_BYTES = 256 << 20
"""The largest binary or images that are loaded into memory for inspection."""
EXTRACTED_BYTES = 1 << 30
"""The largest binary that can be extracted."""
_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
HEX_SHOWN = 16
_WORD = 8
_FRAMES_READ = 1024
_COUNT_USED = 3
"""How many bytes of the number at the start of each file a real count or length uses."""
_TIME = re.compile(rb"[0-9]{1,19}")
_FILE = re.compile(FILE)


class DamagedError(FormatError):
    """A file does not have the expected format."""

    def __init__(self, kind: FindingKind, detail: str, *, stops: bool = False, kills: bool = False) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.stops = stops
        """Programs take the entry as a hit and look at no later number."""
        self.kills = kills
        """Programs crash when they reach it."""


class Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Where the next part begins."""
        return self.offset + self.length

    @property
    def unseen(self) -> str:
        """Why it is not inspected; empty if it is."""
        if self.length <= LOOKED_INTO_BYTES:
            return ""
        return f"not looked into: larger than {format_size(LOOKED_INTO_BYTES)}"


class Stored:
    """One file of an entry, whose first bytes are read once; raises FormatError, OSError."""

    def __init__(self, item: Files, name: str) -> None:
        if name not in item.seen:
            raise FormatError(f"{name} does not exist")
        self._item, self._name = item, name
        self.size_bytes = item.seen[name].st_size
        self._head = self._read(0, _HEAD_BYTES)

    def part(self, span: Span, most: int | None = None) -> bytes:
        """A part, or its first bytes; raises FormatError if the file ends within it."""
        count = span.length if most is None else min(span.length, most)
        end = span.offset + count
        data = self._head[span.offset : end] if end <= len(self._head) else self._read(span.offset, count)
        if len(data) != count:
            raise FormatError("the file became shorter while it was read; try again")
        return data

    def pieces(self, span: Span) -> Iterator[bytes]:
        """Yield a part in chunks."""
        for offset in range(span.offset, span.end, _PIECE_BYTES):
            yield self.part(Span(offset, min(_PIECE_BYTES, span.end - offset)))

    def sha256(self, span: Span) -> str:
        """SHA-256 of a part, as lower-case hex."""
        hasher = hashlib.sha256()
        for piece in self.pieces(span):
            hasher.update(piece)
        return hasher.hexdigest()

    def number(self, offset: int) -> int | None:
        """The number at an offset; None if the file ends before it."""
        if offset + _WORD > self.size_bytes:
            return None
        return int.from_bytes(self.part(Span(offset, _WORD)), "little")

    def _read(self, offset: int, count: int) -> bytes:
        try:
            return self._item.part(self._name, offset, count)
        except PermissionError as error:
            stops = self._name.endswith(BINARY)
            effect = LOST if stops else PASSED_OVER
            detail = (
                f"{self._name} cannot be read ({error.strerror}): {effect}; its owner can make it readable"
            )
            raise DamagedError(FindingKind.UNTRUSTED, detail, stops=stops) from error


class Source(Stored):
    """A ``.src`` file and the offsets of its parts. Raises DamagedError as well."""

    def __init__(self, item: Files, stem: str) -> None:
        super().__init__(item, stem + SOURCE)
        if self.size_bytes == 0:
            raise DamagedError(FindingKind.TRUNCATED, f"its .src is empty: {PASSED_OVER}")
        spans: list[Span] = []
        for label in ("device", "build options", "spec constants", "images"):
            start = spans[-1].end if spans else 0
            length = self.number(start)
            if length is None:
                raise DamagedError(FindingKind.TRUNCATED, f"its .src ends before the {label}: {PASSED_OVER}")
            if length >= ABSURD_BYTES:
                detail = f"its .src claims {length} bytes of {label}: {DIES}"
                raise DamagedError(FindingKind.CORRUPT, detail, kills=True)
            spans.append(Span(start + _WORD, length))
            if spans[-1].end > self.size_bytes:
                detail = f"its .src ends within the {label}, {format_size(length)} long: {PASSED_OVER}"
                raise DamagedError(FindingKind.TRUNCATED, detail)
        self.device, self.options, self.spec, self.images = spans
        self.trailing = self.size_bytes - self.images.end

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The parts of the device, by label."""
        return device_pairs(self.part(self.device, SHOWN_BYTES))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The mangled names of the kernels in its images, in order, as far as these are searched."""
        return spirv.kernel_names(self.part(self.images, NAMED_BYTES))

    def fields(self) -> Iterator[tuple[str, str]]:
        """Device, options and specialisation constants as text, by label."""
        yield from self.pairs
        yield "build options", text(self.part(self.options, SHOWN_BYTES))
        yield "spec constants", blob(self.part(self.spec, SHOWN_BYTES), self.spec.length)


class Binary(Stored):
    """A ``.bin`` file: its first binary, how many it claims and contains, and how many bytes follow. Raises
    DamagedError as well."""

    def __init__(self, item: Files, stem: str) -> None:
        super().__init__(item, stem + BINARY)
        self.name, size = stem + BINARY, self.size_bytes
        claimed, length = self.number(0), self.number(_WORD)
        if claimed is None or length is None:
            detail = f"its .bin has {size} bytes, less than a header: {LOST}"
            raise DamagedError(FindingKind.TRUNCATED, detail, stops=True)
        self.payload = Span(2 * _WORD, length)
        if length >= ABSURD_BYTES:
            raise DamagedError(
                FindingKind.CORRUPT, f"its .bin claims {length} bytes of binary: {PASSED_OVER}"
            )
        if self.payload.end > size:
            missing = format_size(self.payload.end - size)
            raise DamagedError(
                FindingKind.TRUNCATED, f"its .bin lacks its last {missing}: {LOST}", stops=True
            )
        if length == 0:
            raise DamagedError(FindingKind.CORRUPT, f"its .bin contains an empty binary: {LOST}", stops=True)
        self.claimed, self.held, end = claimed, 1, self.payload.end
        while self.held < min(claimed, _FRAMES_READ):  # versions before 2025 could store several
            more = self.number(end)
            if more is None or end + _WORD + more > size:
                break
            self.held, end = self.held + 1, end + _WORD + more
        self.trailing = size - end

    def content(self) -> bytes:
        """The binary; raises FormatError for one over 1 GiB."""
        if self.payload.length > EXTRACTED_BYTES:
            raise FormatError(
                f"the binary in {self.name} has {format_size(self.payload.length)}, over the "
                f"{format_size(EXTRACTED_BYTES)} that are extracted; copy the file itself"
            )
        return self.part(self.payload)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbered files of a directory: the suffixes by stem. Pure."""

    suffixes: dict[str, set[str]]
    others: tuple[str, ...]
    """The names that libsycl does not create."""

    @classmethod
    def of(cls, item: Files) -> "Numbers":
        """The numbers in a directory of entries."""
        suffixes: dict[str, set[str]] = {}
        others = []
        for name in item.names:
            if found := _FILE.fullmatch(name):
                suffixes.setdefault(found[1], set()).add(found[2])
            elif "/" not in name:
                others.append(name)
        return cls(dict(sorted(suffixes.items(), key=lambda one: order(one[0]))), tuple(others))

    @property
    def stems(self) -> list[str]:
        """The numbers of entries and half entries, in the order in which programs look at them."""
        return [stem for stem in self.suffixes if self.present(stem)]

    @property
    def hole(self) -> int:
        """The first number that programs do not see, where they stop looking."""
        number = 0
        while self.present(str(number)):
            number += 1
        return number

    def present(self, stem: str) -> bool:
        """Whether programs see an entry: one of its two files is enough."""
        return not self.suffixes.get(stem, set()).isdisjoint((BINARY, SOURCE))

    def files(self, stem: str) -> tuple[str, ...]:
        """The files of an entry, in the order in which libsycl removes them."""
        return tuple(stem + one for one in (SOURCE, BINARY, ACCESS) if one in self.suffixes[stem])


def order(stem: str) -> int:
    """The position of a number in its directory."""
    return int(stem) if stem != IR_STEM else 0


def stranger(item: Files, numbers: Numbers, stem: str) -> str:
    """The name of a lone file that does not begin like libsycl's; empty for an entry of libsycl.

    Other programs number files too. Two files of one number, an access time file, an empty file, or a
    small number at its beginning, such as a count or length, mark it as libsycl's. Raises OSError.
    """
    files = numbers.files(stem)
    if {stem + SOURCE, stem + BINARY} <= set(files) or access_number(item, stem) is not None:
        return ""
    try:
        return files[0] if any(item.part(files[0], 0, _WORD)[_COUNT_USED:]) else ""
    except (FormatError, PermissionError):  # a link or similar, or reported elsewhere
        return ""


def access_number(item: Files, stem: str) -> int | None:
    """The time in an access time file, in nanoseconds; None if it is missing or not a time."""
    try:
        data = item.read(stem + ACCESS, 64).strip()
    except (OSError, FormatError):
        return None
    return int(data) if _TIME.fullmatch(data) else None


def shown(kernels: tuple[str, ...], images: bytes) -> str:
    """The name people know images by: the first kernel, readable, and how many more; else their kind."""
    if not kernels:
        return f"{describe(images[:SHOWN_BYTES]).kind.value} image" if images else ""
    first = readable(kernels[0])
    return f"{first} and {len(kernels) - 1} more" if kernels[1:] else first


def text(raw: bytes) -> str:
    """Bytes as text that is safe on a terminal, cut at 4 KiB."""
    return printable(raw, SHOWN_BYTES)


def blob(raw: bytes, size_bytes: int | None = None) -> str:
    """Size and first bytes of a blob; ``raw`` may be the first bytes alone."""
    size = len(raw) if size_bytes is None else size_bytes
    if not size:
        return "none"
    return f"{size} bytes {raw[:HEX_SHOWN].hex()}{'...' if size > HEX_SHOWN else ''}"


def device_pairs(device: bytes) -> tuple[tuple[str, str], ...]:
    """The four parts of a device string, by label; one pair ``device`` for a string of another form.

    Only the device name may contain slashes.
    """
    platform, slash, rest = text(device).partition("/")
    parts = rest.rsplit("/", 2)
    if not slash or len(parts) != 3:
        return (("device", text(device)),)
    return tuple(zip(DEVICE_LABELS, (platform, *parts), strict=True))


_SEED = 0xC70F6907
_MULTIPLIER = 0xC6A4A7935BD1E995
_MASK = (1 << 64) - 1


def murmur64a(data: bytes) -> int:
    """The unsigned 64-bit hash of some bytes; some 20 MiB a second."""
    whole = len(data) & -_WORD
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    for (block,) in struct.iter_unpack("<Q", memoryview(data)[:whole]):
        block = block * _MULTIPLIER & _MASK
        block ^= block >> 47
        value = ((value ^ block * _MULTIPLIER) & _MASK) * _MULTIPLIER & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value ^= value >> 47
    value = value * _MULTIPLIER & _MASK
    return value ^ value >> 47


HASHED_BYTES = 64 << 20
"""The largest images whose hash is computed; several seconds."""
_BUILD_FAILS = "the driver's error reaches the application, which does not compile again"
_LOADABLE = {
    "Intel(R) OpenCL": (PayloadKind.INTEL_CPU, PayloadKind.ELF, PayloadKind.INTEL_GPU),
    "Intel(R) OpenCL Graphics": (PayloadKind.INTEL_GPU, PayloadKind.ELF),
    "NVIDIA CUDA BACKEND": (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.PTX),
}
"""The kind of binary that a platform's programs use, where known; GPU binaries before 2021 apart."""
_OLD_GPU = b"CTNI"


@dataclass(slots=True)
class Number:
    """The state of one number, from its own files alone."""

    stem: str
    problems: list[Problem]
    notes: list[str]
    digest: str = ""
    """Equal for numbers with the same stored key; empty if the key is unknown."""
    taken: bool = False
    """Programs take it as a hit, good or bad, and look at no later number."""
    kills: bool = False
    """Programs crash when they reach it."""


def family_of(item: Files) -> str:
    """The kind of entries in a directory."""
    if item.parts[0] != KERNELS:
        return "program"
    return "kernel_compiler binary" if len(item.parts) == 4 else "kernel_compiler IR"


def half_of(item: Files, numbers: Numbers, stem: str) -> str:
    """A sentence that names the missing file; empty if none is missing."""
    if BINARY not in numbers.suffixes[stem]:
        return f"{stem}.src has no .bin: programs miss and write it again"
    if family_of(item) == "program" and SOURCE not in numbers.suffixes[stem]:
        return f"{stem}.bin has no .src, so {PASSED_OVER}"
    return ""


def judge(item: Files, numbers: Numbers, stem: str) -> Number:
    """The state of one number from its own files, read whole; raises OSError."""
    if stranger(item, numbers, stem):
        return Number(stem, [], [])
    if half := half_of(item, numbers, stem):
        return Number(stem, [Problem(FindingKind.ORPHAN, half)], [])
    found = Number(stem, [], [])
    skipped, device = False, b""
    kernels: tuple[str, ...] = ()
    try:
        if family_of(item) == "program":
            source = Source(item, stem)
            _judge_source(found, item, source)
            found.digest = source.sha256(Span(0, source.size_bytes))
            device, kernels = source.part(source.device, SHOWN_BYTES), source.kernels
        else:
            found.digest = item.key
            found.notes.append(f"a {family_of(item)} stores no key, so its directory was not compared")
        _judge_binary(found, Binary(item, stem), device, kernels)
    except DamagedError as damage:
        unread = damage.kind is FindingKind.UNTRUSTED
        found.problems.append(Problem(damage.kind, damage.detail, paths=() if unread else None))
        found.kills, skipped = damage.kills, not damage.stops
    except FormatError as error:
        detail = f"{error}, though programs may follow it"
        folder = any(stat.S_ISDIR(item.seen[name].st_mode) for name in numbers.files(stem))
        paths = () if folder else None
        found.problems.append(Problem(FindingKind.UNTRUSTED, detail, paths=paths))
    found.taken = bool(found.digest) and not skipped
    return found


def _judge_source(found: Number, item: Files, source: Source) -> None:
    """Whether a ``.src`` is the one that its directories are named after."""
    if source.trailing:
        detail = f"{source.trailing} unused bytes follow the images in its .src"
        found.problems.append(Problem(FindingKind.CORRUPT, detail))
    labels = ("device", "images", "spec constants", "build options")
    spans = (source.device, source.images, source.spec, source.options)
    small = []
    for label, span, name in zip(labels, spans, item.parts, strict=True):
        if span.length <= HASHED_BYTES:
            small.append((label, str(murmur64a(source.part(span))) != name))
        else:
            limit = format_size(HASHED_BYTES)
            found.notes.append(
                f"its {label} of {format_size(span.length)} were not hashed, being over {limit}"
            )
    unlike = [label for label, differs in small if differs]
    if len(unlike) == len(labels):
        found.notes.append("its directories are not named by libstdc++'s hash, so they were not compared")
    elif unlike:
        what = f"its {' and '.join(unlike)} do not hash to the directory it is in"
        detail = f"{what}, so no program looks for it"
        found.problems.append(Problem(FindingKind.MISPLACED, detail))


def _judge_binary(found: Number, binary: Binary, device: bytes, kernels: Sequence[str]) -> None:
    """Whether a ``.bin`` has one binary that fits the device and has the kernels of its images."""
    if binary.claimed != binary.held:
        detail = f"its .bin claims {binary.claimed} binaries and has {binary.held}: versions before 2025 fail"
        found.problems.append(Problem(FindingKind.CORRUPT, detail))
    if binary.trailing:
        detail = f"{format_size(binary.trailing)} that no program reads follow the binary in its .bin"
        found.problems.append(Problem(FindingKind.CORRUPT, detail))
    if unseen := binary.payload.unseen:
        found.notes.append(f"its binary of {format_size(binary.payload.length)} was {unseen}")
        return
    data = binary.part(binary.payload)
    info = describe(data, inside=2)
    platform = device.partition(b"/")[0].decode("utf-8", "replace")
    loadable = _LOADABLE.get(platform)
    missing = [name for name in kernels if name.encode() not in data]
    if info.problem:
        detail = f"its binary is broken, {info.problem}: {_BUILD_FAILS}"
    elif loadable is not None and info.kind not in loadable and not data.startswith(_OLD_GPU):
        start = data[:8].hex(" ")
        detail = f"its binary ({info.kind}, starting with {start}) is not of {platform}: {_BUILD_FAILS}"
    elif info.kind in (PayloadKind.UNKNOWN, PayloadKind.OFFLOAD_BUNDLE):
        found.notes.append("its binary is of an unknown kind")
        return
    elif missing:  # compilers keep the names by which programs request their kernels
        others = f" and {len(missing) - 1} more" if missing[1:] else ""
        detail = (
            f"its binary has no kernel {readable(missing[0])}{others}, unlike its images, so it belongs to "
            "another entry: every program that asks for it dies"
        )
    else:
        return
    found.problems.append(Problem(FindingKind.MISLABELLED, detail))
