"""One cache file: its header, key, payload and name, and why Futhark would not restore it. Pure.

====== ===== =================================================================
offset bytes content
====== ===== =================================================================
0      8     magic ``FUTHARK\\0``
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
``char``, so bytes from 0x80 on count differently where ``char`` has no sign. Source: Futhark, rts/c/cache.h
(``cache_hash``, ``cache_store``, ``cache_restore``), rts/c/gpu_prototypes.h and rts/c/backends/.

CUDA and HIP add each build option by itself and the source, OpenCL one string of all options and the source.
A file stores no input, so if its key differs, each change of a single option that could explain the
difference is tried: options left out, well-known ones added, other architectures, directories and numbers. A
program's output with ``-L`` names its options and its file. Source:
Futhark, rts/c/backends/{cuda,hip,opencl}.h.
"""

import os
import platform
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import PurePath

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.format import once
from gpucache.caches.interface import Wanted
from gpucache.errors import FormatError, UsageError
from gpucache.keys import Difference
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_size, printable

KEY_BYTES = 32
COMPARED_BYTES = 8
"""The part that Futhark compares: the number of words is passed to memcmp as the number of bytes."""

_START = 5381
_WORD = 0xFFFF_FFFF
_UNSIGNED = tuple(range(256))
_SIGNED = tuple(byte - 256 * (byte > 127) for byte in range(256))
_UNSIGNED_MACHINES = ("aarch64", "arm", "ppc64", "riscv", "s390")
CUDA_ARCHITECTURES = {
    **{(3, minor): f"compute_3{minor}" for minor in (0, 2, 5, 7)},
    **{(5, minor): f"compute_5{minor}" for minor in (0, 2, 3)},
    **{(6, minor): f"compute_6{minor}" for minor in (0, 1, 2)},
    **{(7, minor): f"compute_7{minor}" for minor in (0, 2, 5)},
    **{(8, minor): "compute_80" for minor in (0, 6, 7, 9)},
    (9, 0): "compute_90",
    (10, 0): "compute_100",
    (10, 1): "compute_101",
    (12, 0): "compute_120",
    (12, 1): "compute_121",
}
"""The targets that Futhark passes to NVRTC, by compute capability, in rising order."""
CUDA_VARIABLES = ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH")
TR_OPTIONS = ("-DTR_BLOCK_DIM=16", "-DTR_TILE_DIM=32", "-DTR_ELEMS_PER_THREAD=8")
MAGIC = b"FUTHARK\0"
HEADER_BYTES = 48
RECOMPILED = "the program logs 'Failed to restore cache (errno: Success)', compiles again and writes over it"
_LAYOUT = struct.Struct(f"<8sq{KEY_BYTES}s")
PARTIAL = r"\.futhark-[0-9a-f]{16}\.gpucache-tmp"
_SOURCE = ".fut"
ENDING = ".cache"
"""Common endings of cache files' names, as in Futhark's documentation."""
_BACKENDS = {
    PayloadKind.PTX: "cuda",
    PayloadKind.CUBIN: "cuda",
    PayloadKind.FATBIN: "cuda",
    PayloadKind.LTOIR: "cuda",
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.UNKNOWN: "",
}
_AGAIN = "the driver refuses it, so the program compiles again and writes over the file"
_STOPS = "stops with 'Compilation of OpenCL program failed' and does not compile again; remove the file"
_CONSEQUENCES = {
    "cuda": _AGAIN,
    "hip": _AGAIN,
    "opencl": f"a program whose platform refuses it {_STOPS}",
    "": f"a CUDA or HIP program compiles again, an OpenCL program whose platform refuses it {_STOPS}",
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
    """The effect of several inputs, in any order."""
    added = 0
    for one in inputs:
        added ^= contribution(one, signed=signed)
    return added


def to_bytes(number: int) -> bytes:
    """A number of 256 bits as the 32 bytes in the file."""
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


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header."""

    declared_bytes: int
    """The size of the whole file; any number at all in a damaged one."""
    key: bytes


def encode(key: bytes, payload: bytes) -> bytes:
    """A whole cache file; raises FormatError for a key without 32 bytes."""
    if len(key) != KEY_BYTES:
        raise FormatError(f"a Futhark key has {KEY_BYTES} bytes and this one has {len(key)}")
    return _LAYOUT.pack(MAGIC, HEADER_BYTES + len(payload), key) + payload


def read_header(start: bytes) -> Header | None:
    """The header in the first bytes of a file; None if they are too few or begin differently."""
    if len(start) < HEADER_BYTES or not is_futhark(start):
        return None
    _magic, declared, key = _LAYOUT.unpack_from(start)
    return Header(declared, key)


def is_futhark(start: bytes) -> bool:
    """Whether the first bytes of a file are a Futhark cache file's."""
    return start.startswith(MAGIC)


def damage(start: bytes, size_bytes: int) -> Problem | None:
    """The problem of a file with this size that begins with these (at least 48, if it has them) bytes."""
    header = read_header(start)
    if header is not None:
        return _wrong_size(header.declared_bytes, size_bytes)
    if not size_bytes:
        return Problem(FindingKind.TRUNCATED, f"it is empty; {RECOMPILED}")
    if is_futhark(start) or MAGIC.startswith(start):
        what = f"it ends inside its header, after {size_bytes} of {HEADER_BYTES} bytes"
        return Problem(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = "it does not begin with the bytes of a Futhark cache file"
    return Problem(FindingKind.CORRUPT, f"{what}; a program that is given it writes over it")


def _wrong_size(declared: int, size_bytes: int) -> Problem | None:
    if declared == size_bytes:
        return None
    if declared > size_bytes:
        what = f"it has {size_bytes} of the {declared} bytes it says"
        return Problem(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = f"it says that it has {declared} bytes and has {size_bytes}, so two writers may have met"
    return Problem(FindingKind.CORRUPT, f"{what}; {RECOMPILED}")


def target_of(payload: PayloadInfo) -> str:
    """A payload's target, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``; empty if unknown."""
    backend = _backend(payload)
    return f"{backend}:{payload.architecture}" if payload.architecture else backend


def consequence(payload: PayloadInfo) -> str:
    """The effect of a broken payload on a program."""
    return _CONSEQUENCES[_backend(payload)]


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC appends."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def _backend(payload: PayloadInfo) -> str:
    """The backend of Futhark that stores such a payload; empty if the bytes do not say.

    PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
    """
    return _BACKENDS.get(payload.kind, "opencl")


def program_of(name: str) -> str:
    """The program that a cache file is named after: ``foo.fut`` of ``foo.fut.cache``."""
    return PurePath(name).stem or name


def source_of(name: str) -> str | None:
    """The source next to which ``futhark bench --cache-extension`` left the file; None for other names.

    Source: Futhark, src/Futhark/Test.hs (``determineCache``).
    """
    program = program_of(name)
    return program if program != name and program.endswith(_SOURCE) and program != _SOURCE else None


def is_partial(name: str) -> bool:
    """Whether our writer did not finish a file, or is writing it."""
    return re.fullmatch(PARTIAL, name) is not None


BACKENDS = ("cuda", "hip", "opencl")
FIELDS: Mapping[str, str] = {
    "source": "the kernels, as the program's --dump-cuda, --dump-hip or --dump-opencl FILE writes them",
    "log": "the program's stderr with -L: gives its options, its backend and its file",
    "option": "a build option, repeated in the program's order, if there is no log",
    "backend": f"one of {', '.join(BACKENDS)}; else the log's, or that of the file's content",
}
OPTION_LIMIT = 100_000
EDIT_LIMIT = 200_000
ALTERNATIVES = 8
"""The most explanations that are kept of one difference."""
_JOINED_BYTES = 24 * 1024 * 1024  # of strings that are tried
_TOLD = 3
"""The most explanations of one difference that are shown."""
_OPENCL_ONLY = b"-cl-fp32-correctly-rounded-divide-sqrt"

# A program's output with -L. Any bytes are read; a log of several starts counts for its last one.


_LISTS = {b"NVRTC compile options:": "cuda", b"HIPRTC build options:": "hip"}
_JOINED = b"OpenCL compiler options: "
_ASKING = re.compile(rb"Restoring cache from from (.*?)(?:\.\.\.)?", re.DOTALL)
_NOT_STORED = re.compile(rb"Failed to cache (?:PTX|compiled code|binary): (.*)", re.DOTALL)
_STOPPED = b"Compilation of OpenCL program failed"


@dataclass(slots=True)
class LogReading:
    """The facts of a log's last start."""

    backend: str = ""
    options: tuple[bytes, ...] | None = None
    """None if the log has no list of options; one joined string for OpenCL."""
    asked_for: bytes = b""
    stopped: bool = False
    """Whether the platform refused a restored binary, after which Futhark ends."""
    store_error: bytes = b""

    def take(self, line: bytes) -> None:
        """A line about the file; lines about others are ignored."""
        if match := _ASKING.fullmatch(line):
            self.asked_for = match[1]
        elif match := _NOT_STORED.fullmatch(line):
            self.store_error = match[1]
        elif self.asked_for and _STOPPED in line:
            self.stopped = True


def read_log(log: bytes) -> LogReading:
    """The facts of a log. Raises nothing, for any bytes."""
    reading = LogReading()
    listed: list[bytes] | None = None
    for line in (one.removesuffix(b"\r") for one in log.split(b"\n")):
        if listed is not None and line.startswith(b"\t") and len(listed) < OPTION_LIMIT:
            listed.append(line[1:])
            continue
        if listed is not None:
            reading.options, listed = tuple(listed), None
        if line in _LISTS:
            reading, listed = LogReading(_LISTS[line]), []
        elif line.startswith(_JOINED):
            reading = LogReading("opencl", (line.removeprefix(_JOINED),))
        else:
            reading.take(line)
    if listed is not None:
        reading.options = tuple(listed)
    return reading


# The question.


@dataclass(frozen=True, slots=True)
class Question:
    """A program as it is built now."""

    source: bytes
    options: tuple[bytes, ...]
    """In order; for OpenCL the parts of its one string between its spaces."""
    backend: str
    """Empty if the question and its log do not say."""
    log: LogReading | None = None

    def of(self, backend: str) -> "Question":
        """The question for a backend, if it named none."""
        options = b" ".join(self.options).split(b" ") if backend == "opencl" else self.options
        return replace(self, backend=backend, options=tuple(options))

    @property
    def total(self) -> int:
        """The key, as a number."""
        joined = (b" ".join(self.options),) if self.backend == "opencl" else self.options
        return total((*joined, self.source), signed=native_signed())

    @property
    def words(self) -> str:
        """The question, in a few words."""
        size = format_size(len(self.source))
        return f"{self.backend} source of {size} with {len(self.options)} options".strip()


def read_question(wanted: Wanted) -> Question:
    """The question; raises UsageError for a field that is missing or has an unusable value."""
    source, log = once(wanted, "source"), once(wanted, "log")
    if source is None:
        raise UsageError("the field 'source' is missing; run the program with --dump-cuda FILE and give FILE")
    reading = None if log is None else read_log(log)
    options = wanted.get("option") or (reading.options if reading else None)
    if options is None:
        raise UsageError(
            "the build options are missing; give 'log', the program's stderr with -L (which lists them), "
            "or each as 'option'"
        )
    named = once(wanted, "backend")
    if named is not None and named.decode("utf-8", "replace") not in BACKENDS:
        raise UsageError(
            f"the field 'backend' cannot be {printable(named)!r}; give one of {', '.join(BACKENDS)}"
        )
    backend = named.decode() if named else reading.backend if reading else ""
    if not backend and any(_OPENCL_ONLY in option for option in options):
        backend = "opencl"
    return Question(source, options, "", reading).of(backend)


# The changes of one option that could explain a different key, the likely ones first.

_SMALL = range(4097)
_FIXED = (b"TR_", b"LOCKSTEP_WIDTH")
_SIZED = (b"max_", b"MAX_")
_FEW = frozenset(1 << power for power in range(8))
_SMALLEST_SIZE = 32
_DEFINE_LIMIT = 1000
_LISTED_LIMIT = 64
_DEFINE = re.compile(rb"-D([A-Za-z_]\w{0,200})=(-?\d{1,20})")
_CUDA_ARCHITECTURE = re.compile(rb"((?:-arch=|--gpu-architecture=)?)(?:compute|sm)_\d{1,4}[af]?")
_HIP_ARCHITECTURE = re.compile(rb"(--gpu-architecture=|--offload-arch=)gfx[0-9a-f]{3,8}[:+\w-]{0,64}")
_FLAGS = (
    b"-default-device", b"-G", b"-lineinfo", b"--disable-warnings", b"--use_fast_math", b"-O3",
    b"-ffast-math", b"-DEMULATE_F16", b"-cl-fast-relaxed-math", b"-cl-mad-enable", _OPENCL_ONLY,
    *(option.encode() for option in TR_OPTIONS),
)  # fmt: skip
_FOLDERS = ("/usr/local/cuda", "/usr/lib/cuda", "/opt/cuda", "/usr", "/opt/rocm")
_GFX = (
    "900 906 908 90a 940 941 942 950 1010 1012 1030 1031 1032 1034 1035 1036 1100 1101 1102 1103 "
    "1150 1151 1152 1200 1201"
)
_GFX_FEATURES = ("", ":xnack-", ":sramecc+:xnack-", ":sramecc-:xnack-", ":sramecc+:xnack+", ":sramecc+")
_KEPT_BACK = (0, 16, 20, 4)


@dataclass(frozen=True, slots=True)
class Edit:
    """One option that differs: as the file was made, and as requested; None if it is absent."""

    stored: bytes | None
    wanted: bytes | None
    place: int
    """The place of the wanted option in the list; of the stored one, where it would have been."""

    @property
    def difference(self) -> Difference:
        """Left as the file was made, right as requested."""
        option = self.stored or self.wanted or b""
        label = b"-arch" if re.fullmatch(rb"(?:compute|sm)_\w+", option) else option.partition(b"=")[0]
        name = option[:2] if option.startswith((b"-I", b"-L")) else label
        return Difference(printable(name), _text(self.stored), _text(self.wanted))

    def made(self, options: Sequence[bytes]) -> str:
        """The option of the file, and the option given now, as a clause."""
        if self.stored is None and options.count(self.wanted or b"") > 1:
            return f"with {_text(self.wanted)} once more or once less than now"
        if self.stored is None:
            return f"without {_text(self.wanted)}"
        now = ", which is not given now" if self.wanted is None else f" and not {_text(self.wanted)}"
        return f"with {_text(self.stored)}{now}"


def _text(option: bytes | None) -> str | None:
    return None if option is None else printable(option)


def edits(question: Question) -> Iterator[Edit]:
    """Each option left out, each well-known one added, and each with other values; a bounded number."""
    return islice(chain(_likely(question), _numeric(question.options)), EDIT_LIMIT)


def _likely(question: Question) -> Iterator[Edit]:
    options = question.options
    for place, option in enumerate(options):
        yield Edit(None, option, place)
        yield from (Edit(value, option, place) for value in _others(option) if value != option)
    # In one joined string the place matters; in a list it does not, as the key ignores the order.
    places = range(len(options) + 1) if question.backend == "opencl" else (len(options),)
    for option in dict.fromkeys((*_FLAGS, *(_includes() if question.backend != "opencl" else ()))):
        if option not in options:
            yield from (Edit(option, None, place) for place in places)


def _includes() -> list[bytes]:
    """The directories of headers that this machine's programs are given, and common ones."""
    named = (os.environ[name] for name in (*CUDA_VARIABLES, "HIP_PATH") if name in os.environ)
    return [os.fsencode(f"-I{folder}/include") for folder in dict.fromkeys((*named, *_FOLDERS))]


def _others(option: bytes) -> Iterator[bytes]:
    if option.startswith(b"-I"):
        yield from _includes()
    elif match := _CUDA_ARCHITECTURE.fullmatch(option):
        virtual = (*CUDA_ARCHITECTURES.values(), "compute_90a", "compute_103", "compute_110")
        named = (
            f"{kind}_{major}{minor}" for kind in ("compute", "sm") for major, minor in CUDA_ARCHITECTURES
        )
        yield from (match[1] + name.encode() for name in dict.fromkeys((*virtual, *named)))
    elif match := _HIP_ARCHITECTURE.fullmatch(option):
        names = (f"gfx{one}{feature}" for one in _GFX.split() for feature in _GFX_FEATURES)
        yield from (match[1] + name.encode() for name in names)


def _numeric(options: Sequence[bytes]) -> Iterator[Edit]:
    """Each numeric option with values common for people and devices, then with every small number."""
    found = ((place, _DEFINE.fullmatch(option)) for place, option in enumerate(options))
    defines = [(place, match[1], int(match[2])) for place, match in found if match][:_DEFINE_LIMIT]
    listed = sorted({value for _, _, value in defines})[:_LISTED_LIMIT]
    # One value of each in turn, so that no option is left out when the number of changes is limited.
    for turn in zip_longest(*(_values(name, value, listed) for _, name, value in defines)):
        for (place, name, _), value in zip(defines, turn, strict=True):
            if value is not None:
                yield Edit(b"-D%s=%d" % (name, value), options[place], place)


def _values(name: bytes, value: int, listed: Sequence[int]) -> Iterator[int]:
    """The candidate values of a number, each once: fewer candidates make fewer look-alike changes."""
    if name.startswith(b"set_"):
        yield from (1 - value,) if value in (0, 1) else ()
        return
    near = (value + 1, value - 1, *(value * times for times in (2, 3, 4, 8)), value // 2, value // 4)
    powers = (1 << power for power in range(32))
    multiples = (*range(0, 1025, 32), *range(1024, 8193, 512), *range(8192, 262_145, 8192))
    shared: Iterator[int] = iter(())
    if name == b"max_shared_memory":  # whole KiB, in OpenCL minus some bytes that Futhark reserves
        shared = (kib * 1024 - kept for kept in _KEPT_BACK for kib in range(8, 257))
    fixed, sized = name.startswith(_FIXED), name.startswith(_SIZED)
    every = () if fixed or sized else _SMALL
    for one in dict.fromkeys((*near, *range(17), *powers, *multiples, *listed, *shared, *every)):
        possible = one in _FEW if fixed else one >= _SMALLEST_SIZE or not sized
        if possible and one != value and abs(one) < 2**64:
            yield one


# Which of them does.


def added(question: Question) -> Callable[[Edit], int]:
    """The effect of a change on the key, as a function: CUDA and HIP hash each option, OpenCL one string."""
    options, signed = question.options, native_signed()
    if question.backend != "opencl":
        return lambda edit: total(filter(None, (edit.stored, edit.wanted)), signed=signed)
    now = contribution(b" ".join(options), signed=signed)

    def of_string(edit: Edit) -> int:
        stored, rest = [edit.stored or b""], options[edit.place + (edit.wanted is not None) :]
        changed = (*options[: edit.place], *stored[edit.stored is None :], *rest)
        return now ^ contribution(b" ".join(changed), signed=signed)

    return of_string


def search(question: Question, differences: Collection[int]) -> dict[int, list[Edit]]:
    """The changes that each explain a difference of two keys, the likeliest first, a few at most."""
    found: dict[int, dict[tuple[bytes | None, bytes | None], Edit]] = {one: {} for one in differences}
    if not found:
        return {}
    effect, length = added(question), len(b" ".join(question.options))
    limit = _JOINED_BYTES // max(1, length) if question.backend == "opencl" else EDIT_LIMIT
    # All are tried even if an earlier one explains the key: only that shows that it is the only one.
    for edit in islice(edits(question), limit):
        ways = found.get(effect(edit))
        if ways is not None and len(ways) < ALTERNATIVES:
            ways.setdefault((edit.stored, edit.wanted), edit)
    return {one: list(ways.values()) for one, ways in found.items()}


# The results.


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache file that a program may be given."""

    name: str
    key: bytes
    """Empty if the file is damaged."""
    entry: str
    backend: str
    damage: str
    """Why Futhark does not restore it, for any key; empty if it does."""
    readable: bool
    """False for a link, and for an unreadable file."""
    payload_problem: Callable[[], str]
    """The problem of its content, checked only if the key fits."""

    @property
    def number(self) -> int:
        """The key, as a number."""
        return int.from_bytes(self.key, "little")


def explain(question: Question, candidates: Sequence[Candidate]) -> Iterator[Reach]:
    """One answer per file; of several files the one that the log names, if it names one."""
    log = question.log
    asked = PurePath((log.asked_for if log else b"").decode("utf-8", "surrogateescape")).name
    named = [one for one in candidates if one.name == asked]
    chosen = named or list(candidates)
    if not chosen:
        remedy = "start the program with --cache-file, in a directory that exists, to make it"
        if log is not None and log.store_error:
            said = printable(log.store_error)
            remedy = f"the log says that it could not be written ({said}); name another file"
        detail = f"no cache file exists; {remedy}"
        yield Reach("futhark", question.words, Verdict.NEVER_BUILT, detail)
        return
    if not question.backend:
        question = question.of(next((one.backend for one in chosen if one.backend), "cuda"))
    expected = question.total
    found = search(question, {one.number ^ expected for one in chosen if not one.damage} - {0})
    for one in chosen:
        if one.damage or one.number == expected:
            answer = _fits(question, one, "" if named else asked)
        else:
            answer = _differs(one, expected, *_explained(question, found[one.number ^ expected]))
        verdict, detail, changed = answer
        words = f"{one.name}: {question.words}"
        yield Reach("futhark", words, verdict, detail, changed, one.entry)


_Answer = tuple[Served | Verdict, str, tuple[Difference, ...]]


def _fits(question: Question, one: Candidate, elsewhere: str) -> _Answer:
    """The answer for a file that is damaged, or has the key; ``elsewhere`` is the file in the log instead."""
    if not one.readable:
        return Verdict.OPAQUE_KEY, f"{one.damage}, so its key is not known", ()
    if one.damage:
        return Verdict.CORRUPT, one.damage, ()
    if problem := one.payload_problem():
        return Verdict.CORRUPT, f"the key matches, but {problem}", ()
    if question.log is not None and question.log.stopped:
        detail = "the platform refuses to build the restored binary, and Futhark does not compile again"
        return Verdict.REJECTED, f"{detail}; remove the file", ()
    if elsewhere:
        detail = f"the key matches, but the program asked for {elsewhere}; start it with --cache-file"
        return Verdict.NOT_CONSULTED, f"{detail} {one.name}", ()
    return Served.HIT, "all 32 bytes of its key match, so Futhark restores it", ()


def _differs(one: Candidate, expected: int, why: str, changed: tuple[Difference, ...]) -> _Answer:
    if one.key[:COMPARED_BYTES] != to_bytes(expected)[:COMPARED_BYTES]:
        return Verdict.KEY_CHANGED, f"{why}; {RECOMPILED}", changed
    detail = (
        "Futhark compares only the first eight bytes of the key, so it will accept this file "
        f"although it was made from other inputs ({why}); remove it"
    )
    return Served.FALSE_HIT, detail, changed


def _explained(question: Question, ways: Sequence[Edit]) -> tuple[str, tuple[Difference, ...]]:
    """The explanation of a different key, in words, and as a difference if it is the only one."""
    told = [f"it was made {one.made(question.options)}" for one in ways[:_TOLD]]
    if len(ways) == 1:
        alone = "no other change of an option that was tried explained the key"
        return f"most likely {told[0]}, as {alone}", (ways[0].difference,)
    if ways:
        more = "" if len(ways) <= _TOLD else ", or in yet another way"
        some = ", or ".join(told)
        return (
            f"several changes explain the key, which does not distinguish them, likely first: {some}{more}",
            (),
        )
    return (
        "the source or several options differ, as no change of one option explains the key, and the file "
        "stores no source to compare",
        (),
    )
