"""libsycl's persistent cache: a directory named by hashes has the copies of a program's binary, by number.

Source: libsycl, ``persistent_device_code_cache.cpp``::

    <device>/<images>/<spec constants>/<build options>/<n>.bin .src _access_time.txt
    ext_kernel_compiler/<device>/<build options>/<source>/<n>.bin _access_time.txt
    ext_kernel_compiler/<Base64 of a 256-bit hash, / as ->/ir.bin ir_access_time.txt

``.src`` (the key) and ``.bin`` (one binary, before 2025 more) have the frames below; a time is nanoseconds in
decimal. Directories are named by ``std::hash<std::string>`` of libstdc++ on 64-bit machines in decimal. An
entry is such a directory, as its hashes cover the whole key. Programs look at 0, 1, 2... while either file of
a number exists; a number with a lock is passed over; the first whose ``.src`` equals the wanted key is taken,
even with a damaged ``.bin``. So everything wrong in a directory is repaired by removing the whole, which
programs write again. A lock is an empty file made with O_CREAT | O_EXCL and names no process: after ten
minutes it counts as abandoned. ``cache_size.txt`` is the total in decimal, by which libsycl evicts with
SYCL_CACHE_MAX_SIZE set.
"""

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files
from gpucache.caches.files import Files, Frame, Identity, LargeError, Parts, Rule, Span
from gpucache.caches.files_format import FilesFormat, needed
from gpucache.caches.format import Field, HeldError, TextsAlike, repair
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.caches.sycl.locations import FOLDER, LITTLE_BYTES, MAX_SIZE, Bounds, SyclPlaces
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.payload import PayloadKind, describe, spirv
from gpucache.payload.mangled import readable
from gpucache.units import format_age, format_size, printable

_KERNELS, _SIZE, _EVICTION = "ext_kernel_compiler", "cache_size.txt", "_eviction_in_progress"
_BINARY, _SOURCE, _TIME, _LOCK = ".bin", ".src", "_access_time.txt", ".lock"
_DEVICE = ("platform name", "device name", "device version", "driver version")
_OPTIONS, _SPEC = "build options", "spec constants"
_HASH = r"(0|[1-9][0-9]{0,18}|1[0-8][0-9]{18})"
# One hash in 20,000 has fewer than 15 digits, and other programs' numbers have: one may be short, not two.
_ONE_SHORT = r"(?!(?:.*?\b[0-9]{1,14}\b){2})"
_ENTRIES = (
    f"{_ONE_SHORT}{_HASH}/{_HASH}/{_HASH}/{_HASH}/",
    f"{_ONE_SHORT}({_KERNELS})/{_HASH}/{_HASH}/{_HASH}/",
    f"({_KERNELS})/([A-Za-z0-9+\\-]{{43}}=)/",
)
_FILE = r"(0|[1-9][0-9]{0,9}|ir)(\.bin|\.src|_access_time\.txt)(\.lock)?|(?:0|[1-9][0-9]{0,9}|ir)\.lock"
_ROOT_FILES = tuple(re.escape(name) for name in (_SIZE, _SIZE + _LOCK, _EVICTION, _EVICTION + _LOCK))
_NUMBER = re.compile(rb"[ \t\n\v\f\r]*\+?([0-9]{1,20})(?![0-9])")
_SIZE_LIKE = re.compile(rb"[\s\0+-]*+[0-9]*+[\s\0]*+")
"""The content that libsycl writes or a crash leaves; anything else belongs to another program."""
_STALE_NS = 600 * 10**9
_SHOWN_BYTES, _NAMED_BYTES, _HASHED_BYTES, _FRAMES_READ = 4096, 1 << 20, 64 << 20, 1024
_SLACK_BYTES, _SIZE_BYTES, _COUNT_USED = 64 << 10, 4096, 3
_LOST = "a program that asks for it gets nothing, tries no other copy and adds one at every run"
_FAILS = "the program gets the driver's error or dies, at every start"
_PASSED = "programs pass it over and keep another copy next to it"
_HANGS = "a program with SYCL_CACHE_MAX_SIZE set dies or waits for ever when it adds an entry"
_LOADABLE = {
    "Intel(R) OpenCL": (PayloadKind.INTEL_CPU, PayloadKind.ELF, PayloadKind.INTEL_GPU),
    "Intel(R) OpenCL Graphics": (PayloadKind.INTEL_GPU, PayloadKind.ELF),
    "NVIDIA CUDA BACKEND": (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.PTX),
}
"""By platform the binaries that it loads; of others nothing is known."""
_OLD_GPU = b"CTNI"
_SEED, _MULTIPLIER, _MASK = 0xC70F6907, 0xC6A4A7935BD1E995, (1 << 64) - 1


def murmur64a(data: bytes) -> int:
    """``std::hash`` of some bytes, MurmurHash64A with another seed; some 20 MiB a second."""
    whole = len(data) & -8
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


# The rules of the two files.


def _unlike(one: Parts) -> list[str]:
    parts = zip(("device", "images", "spec", "options"), one.item.parts, strict=True)
    small = [(label, name) for label, name in parts if one.spans[label].length <= _HASHED_BYTES]
    return [label for label, name in small if str(murmur64a(one.read(label))) != name]


def _misplaced(one: Parts) -> str:
    unlike = _unlike(one)
    return " and ".join(unlike) if len(unlike) < len(one.item.parts) else ""


def _large(one: Parts) -> str:
    return ", ".join(label for label, span in one.spans.items() if span.length > _HASHED_BYTES)


def _frame_of_binary(one: Parts) -> str:
    """The bytes of a ``.bin`` besides the binaries it counts; versions before 2025 could store several."""
    claimed, held, end = one.numbers["count"], 1, one.spans["binary"].end
    while held < min(claimed, _FRAMES_READ) and 0 < (length := one.number(end)) <= one.size_bytes - end - 8:
        held, end = held + 1, end + 8 + length
    more = f"claims {claimed} binaries and has {held}" if claimed != held else ""
    return more or (
        f"has {one.size_bytes - end} unused bytes behind its binary" if end < one.size_bytes else ""
    )


def _misfit(one: Parts) -> str:
    data, info = one.read("binary"), describe(one.read("binary"), inside=2)
    if info.problem:
        return f"a broken binary, {info.problem}"
    key = _key(one.item, _stem(one.name))
    platform = printable(key.read("device", _SHOWN_BYTES).partition(b"/")[0], None) if key else ""
    loadable = _LOADABLE.get(platform, (info.kind,))
    if info.kind not in loadable and not data.startswith(_OLD_GPU):
        return f"a binary ({info.kind}, starting with {data[:8].hex(' ')}) that is not of {platform}"
    known = info.kind not in (PayloadKind.UNKNOWN, PayloadKind.OFFLOAD_BUNDLE)
    names = _kernels(key) if key and known else ()
    # Compilers keep the names by which programs request their kernels.
    missing = next((name for name in names if name.encode() not in data), "")
    return (
        f"no kernel {readable(missing)}, unlike its images, so it belongs to another entry" if missing else ""
    )


def _unknown(one: Parts) -> bool:
    kind = describe(one.read("binary")).kind
    return kind in (PayloadKind.UNKNOWN, PayloadKind.OFFLOAD_BUNDLE)


def _kernels(key: Parts) -> tuple[str, ...]:
    """The mangled names of the kernels in the images, in order, as far as these are searched."""
    return spirv.kernel_names(key.read("images", _NAMED_BYTES))


_KEY = Frame(
    r".+\.src", "device:p64 options:p64 spec:p64 images:p64 more:rest", _PASSED,
    (
        Rule(FindingKind.CORRUPT, lambda one: one.spans["more"].length, "has {} bytes behind its images"),
        Rule(FindingKind.MISPLACED, _misplaced, "has {} of another directory, so no program looks for it"),
        Rule(None, _large, "its {} were not hashed, being over 64.0 MiB"),
        Rule(None, lambda one: len(_unlike(one)) == len(one.item.parts),
             "its directories are not named by libstdc++'s hash, so they were not compared"),
    ),
)  # fmt: skip
_CODE = Frame(
    r".+\.bin", "count:u64 binary:p64 more:rest", _LOST,
    (
        Rule(FindingKind.CORRUPT, lambda one: not one.spans["binary"].length, "has an empty binary"),
        Rule(FindingKind.CORRUPT, _frame_of_binary, "{}", "versions before 2025 fail"),
        Rule(FindingKind.MISLABELLED, _misfit, "has {}", _FAILS),
        Rule(None, _unknown, "its binary is of an unknown kind"),
        Rule(None, lambda one: one.item.parts[0] == _KERNELS,
             "a kernel_compiler's binary stores no key, so its directory was not compared"),
    ),
)  # fmt: skip


def _stem(name: str) -> str:
    return re.split(r"\.|_", name, maxsplit=1)[0]


def _stems(item: Files) -> list[str]:
    """The numbers of a directory, in the order in which programs look at them: one file of two is enough."""
    found = {_stem(name) for name in item.names if _is_content(name)}
    return sorted(found, key=lambda one: -1 if one == "ir" else int(one))


def _is_named(name: str) -> bool:
    return re.fullmatch(_FILE, name) is not None


def _is_content(name: str) -> bool:
    return name.endswith((_BINARY, _SOURCE)) and _is_named(name)


def _key(item: Files, stem: str) -> Parts | None:
    """The key of a number; None if it has none that is whole."""
    with suppress(FormatError, OSError):
        if stem + _SOURCE in item.seen and not (found := Parts(item, stem + _SOURCE, _KEY.words)).cut:
            return found
    return None


def _time(item: Files, stem: str) -> int:
    """The time in an access time file, in nanoseconds; -1 if there is none."""
    with suppress(OSError, FormatError, KeyError):
        text = item.part(stem + _TIME, 0, 64).strip()
        return int(text) if text.isdigit() and len(text) < 20 else -1
    return -1


def _strange(item: Files, stem: str) -> str:
    """The name of a lone file that does not begin like libsycl's, with a small count or length; else empty.

    Other programs number files too. Two files of one number, or a time, mark it as libsycl's.
    """
    names = [one for one in (stem + _SOURCE, stem + _BINARY) if one in item.seen]
    if len(names) != 1 or _time(item, stem) >= 0:
        return ""
    try:
        return names[0] if any(item.part(names[0], 0, 8)[_COUNT_USED:]) else ""
    except (OSError, FormatError):  # reported elsewhere
        return ""


def _of_others(name: str) -> str:
    return f"{name} does not begin like libsycl's files, so it may be another program's; move it elsewhere"


def _is_lock(item: Files, name: str) -> bool:
    """Whether a file with a lock's name is one: libsycl makes empty files."""
    return stat.S_ISREG(item.seen[name].st_mode) and not item.seen[name].st_size


def _shown(raw: bytes, hashed: str) -> str:
    return printable(raw, _SHOWN_BYTES) + (f" (hash {hashed})" if len(raw) >= _SHOWN_BYTES else "")


def _blob(raw: bytes, hashed: str) -> str:
    """The bytes for people: size and first ones, which differ if the bytes do."""
    return (
        f"{len(raw)} bytes {raw[:16].hex()}" + (f"... (hash {hashed})" if raw[16:] else "") if raw else "none"
    )


def _device(raw: bytes) -> tuple[tuple[str, str], ...]:
    """The four parts of a device; of another form its whole as name. Only the name may contain slashes."""
    platform, _, rest = printable(raw, _SHOWN_BYTES).partition("/")
    parts = (platform, *rest.rsplit("/", 2))
    return tuple(zip(_DEVICE, parts, strict=True)) if len(parts) == len(_DEVICE) else ()


class Sycl(SyclPlaces, FilesFormat):
    """A directory of libsycl's device binaries."""

    layout = Layout(
        _ENTRIES,
        own=_ROOT_FILES,
        signs=(*(f"{entry}(?:{_FILE})" for entry in _ENTRIES), *_ROOT_FILES, _KERNELS,
               f"[0-9]{{15,20}}/{_HASH}", f"{_HASH}/[0-9]{{15,20}}"),
        key=lambda names: hashlib.sha256("/".join(names).encode()).hexdigest(),
    )  # fmt: skip
    frames = (_KEY, _CODE)
    barred_by_links = False
    moving = Moving(tells="names of kernels, build options, and images of programs")
    fixes = frozenset(FindingKind)
    wanted = {
        "device": "platform/device/version/driver as inspect shows them, such as 'Intel(R) OpenCL/Intel(R) "
        "Xeon(R) Processor/OpenCL 3.0 (Build 0)/2024.18.7.0', empty parts not compared; or the device's name",
        **dict.fromkeys(_DEVICE, "one part of the device"),
        **dict.fromkeys((_OPTIONS, "options"), "compile and link options as one text"),
        **dict.fromkeys((_SPEC, "spec"), "the bytes of the specialisation constants, or 'none'"),
        "image": "the bytes of a device image, such as SPIR-V, or its hash as inspect shows it",
        "kernel": "the name of a kernel in the image, mangled or readable",
    }
    compared = {
        **dict.fromkeys(_DEVICE, Field()), _OPTIONS: Field(3, TextsAlike()), _SPEC: Field(3),
        "image": Field(4), "kernel": Field(3),
    }  # fmt: skip

    @classmethod
    def whose(cls, path: Path) -> Whose:
        found = cls.layout.whose(path)
        return Whose.OWN if path.name == FOLDER and not any(path.iterdir()) else found

    # Entries.

    def look(self, item: Files) -> CacheEntry | None:
        if not (stems := _stems(item)):
            return None
        own = [stem for stem in stems if not _strange(item, stem)]
        entry = self.entry(item)
        if not own:
            return entry._replace(stays=_of_others(_strange(item, stems[0])), unique=False, shows=False)
        stem, damage = self._served(item, own)
        with suppress(FormatError, OSError, KeyError):
            start = self.parts(item, stem + _BINARY, _CODE).read("binary", _SHOWN_BYTES)
            entry = entry._replace(artifact_kind=describe(start).kind.value)
        entry = entry._replace(damage=damage, last_used_ns=max(_used_ns(item, one) for one in stems))
        if item.parts[0] == _KERNELS:
            what = "binary" if stem != "ir" else "IR"
            return entry._replace(program=f"kernel_compiler {what} {item.key[:12]}", unique=True)
        entry = entry._replace(unique=False)
        with suppress(FormatError, OSError, KeyError):
            key = self.parts(item, stem + _SOURCE, _KEY)
            return entry if key.cut else self._described(entry, key)
        return entry

    def _described(self, entry: CacheEntry, key: Parts) -> CacheEntry:
        device, names = key.read("device", _SHOWN_BYTES), _kernels(key)
        parts, (_, image, spec, options) = _device(device), key.item.parts
        told = dict(parts or ((_DEVICE[1], printable(device, _SHOWN_BYTES)),))
        fields = (
            *told.items(),
            (_OPTIONS, _shown(key.read("options", _SHOWN_BYTES), options)),
            (_SPEC, _blob(key.read("spec"), spec)),
            ("image", f"{int(image):016x}"),
            *(("kernel", name) for name in names[:16]),
        )
        more = f" and {len(names) - 1} more" if names[1:] else ""
        start = key.read("images", _SHOWN_BYTES)
        kind = f"{describe(start).kind.value} image" if start else ""
        # Kernels of two programs may share a name, so only the image identifies another version.
        spec_shown = f" spec {int(spec):016x}"[:18] if key.spans["spec"].length else ""
        variant = f"{dict(fields)[_OPTIONS][:200]}{spec_shown} image {int(image):016x}"
        return entry._replace(
            program=readable(names[0]) + more if names else kind,
            target="/".join(value for label, value in told.items() if label in _DEVICE[:2]),
            variant=variant[:-4].strip(),
            toolchain=parts,
            toolchain_identity=_DEVICE[:2] if parts else (),
            fields=fields,
        )

    def _served(self, item: Files, stems: Sequence[str]) -> tuple[str, Problem | None]:
        """The number that programs take, the first without a lock whose files can be parsed; else the first,
        and its problem."""
        first: Problem | None = None
        for stem in stems:
            if (found := next(self._of_number(item, stem, stems), None)) is None:
                return stem, None
            first = first or found
        return stems[0], first

    def _of_number(
        self, item: Files, stem: str, stems: Sequence[str], *, whole: bool = False
    ) -> Iterator[Problem]:
        """The problems of a number: lock, half, cut, or out of reach; if ``whole``, of its content too."""
        if (name := stem + _LOCK) in item.seen:
            yield (lock := self._lock(item, name, _PASSED, bars=True))
            if lock.kind is FindingKind.LOCKED:
                return  # what is being written is not judged
        needed = (_BINARY,) if item.parts[0] == _KERNELS else (_SOURCE, _BINARY)
        if gone := next((stem + one for one in needed if stem + one not in item.seen), ""):
            yield Problem(FindingKind.ORPHAN, f"{gone} is missing: programs miss and write it again")
            return
        for frame in self.frames:
            for name in (stem + one for one in needed if re.fullmatch(frame.names, stem + one)):
                yield from self.judged(item, name, whole=whole)
        hole = next(number for number in range(len(stems) + 1) if str(number) not in stems)
        if stem != "ir" and int(stem) > hole:
            why = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
            yield Problem(FindingKind.MISPLACED, why)

    def check(self, item: Files) -> Iterator[Problem]:
        now = item.again()
        stems, seen = _stems(now), set[str]()
        for stem in (one for one in stems if not _strange(now, one)):
            found = list(self._of_number(now, stem, stems, whole=True))
            yield from found
            if not found and stems[1:] and (key := _key(now, stem)):
                sha256 = key.sha256(Span(0, key.size_bytes))
                if sha256 in seen:
                    yield Problem(FindingKind.SUPERSEDED, f"{stem} is a copy that programs never get to")
                seen.add(sha256)
        yield from (problem for _, problem in self._around(now))

    def trust(self, item: Files) -> Iterator[Problem]:
        seen = {name: one for name, one in item.seen.items() if not stat.S_ISLNK(one.st_mode)}
        return (one._replace(paths=()) for one in super().trust(replace(item, seen=seen)))

    def unsound(self, item: Files) -> Problem | None:
        stem, _ = self._served(item, _stems(item))
        names = (one for one in (stem + _SOURCE, stem + _BINARY) if one in item.seen)
        found = (problem for name in names for problem in self.judged(item, name))
        return next((one for one in found if one.kind and one.kind.wrong), None)

    def payload(self, item: Files) -> bytes:
        name = self._served(item, _stems(item))[0] + _BINARY
        found = Parts(item, name, _CODE.words)
        length = found.spans["binary"].length
        if length > self.largest_bytes:
            limit = format_size(self.largest_bytes)
            raise FormatError(
                f"the binary in {name} has {format_size(length)}, over the {limit} that are extracted"
            )
        return found.read("binary", length)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if key := _key(item, self._served(item, _stems(item))[0]):
            span = key.spans["images"]
            yield "images", f"{format_size(span.length)}, SHA-256 {key.sha256(span)}"
        else:
            yield "inputs of the key", "not stored by a kernel_compiler; only their hashes are known"
        yield "directory", "/".join(item.parts)
        yield "numbers", ", ".join(_stems(item))

    def content(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        found = Parts(item, self._served(item, _stems(item))[0] + _BINARY, _CODE.words)
        try:
            data = found.read("binary")
        except LargeError as error:
            yield "binary", f"{format_size(found.spans['binary'].length)}, {error}"
            return
        yield from describe(data).pairs
        yield "SHA-256", digest(data)

    # Names that belong to no entry.

    def _around(self, item: Files) -> Iterator[tuple[str, Problem]]:
        """Names in a directory of entries that belong to no number, and locks, each with its effect."""
        stems = _stems(item)
        for name in (one for one in item.names if "/" not in one):
            lone = _stem(name) not in stems
            if not _is_named(name) or name == _strange(item, _stem(name)):
                yield name, Problem(FindingKind.LEFTOVER, _of_others(name), paths=())
            elif name.endswith(_LOCK) and (lone or name.endswith(_TIME + _LOCK)):
                effect = "programs no longer note uses" if not lone else _PASSED
                yield name, self._lock(item, name, effect)
            elif (name.endswith(_TIME) and (time := _time(item, _stem(name))) < 0) or (
                lone and name.endswith(_TIME)
            ):
                own = time >= 0 or not item.seen[name].st_size or not lone
                detail = f"{name} has no time of an entry, so libsycl evicts by nothing"
                yield name, Problem(FindingKind.ORPHAN, detail, paths=None if own else ())

    def _lock(self, item: Files, name: str, effect: str, *, bars: bool = False) -> Problem:
        """The meaning of a lock: one that is abandoned is removed, and misplaced if it stops programs."""
        age = format_age(self.now_ns() - item.seen[name].st_mtime_ns)
        if not _is_lock(item, name):
            detail = f"{name} is not empty as libsycl's locks are, so it stays: {effect}; move it elsewhere"
            return Problem(FindingKind.LOCKED, detail, paths=())
        if self._is_abandoned(item, name):
            kind = FindingKind.MISPLACED if bars else FindingKind.LOCKED
            return Problem(kind, f"{name} is {age} old, so its program was killed: {effect}")
        detail = f"{name} is less than 10 min old, so a program may have it; else {effect}"
        return Problem(FindingKind.LOCKED, detail, f"wait, or remove {name} once no program runs", ())

    def _is_abandoned(self, item: Files, name: str) -> bool:
        return _is_lock(item, name) and self.now_ns() - item.seen[name].st_mtime_ns > _STALE_NS

    # Explanations.

    def asked(self, wanted: Wanted) -> Mapping[str, str]:
        """The fields as an entry has them; a device by its parts, images by the hash of their directory."""
        asked = dict(super().asked(wanted))
        for label, alias in ((_OPTIONS, "options"), (_SPEC, "spec"), ("image", "image")):
            if raw := [one for name in {label, alias} for one in wanted.get(name, ())]:
                # libsycl sorts images by their first kernel.
                raw.sort(key=lambda one: min(spirv.kernel_names(one), default="") if label == "image" else "")
                data = b"".join(raw)
                asked.pop(alias, None)
                if label == _SPEC:
                    asked[label] = _blob(b"" if data == b"none" else data, str(murmur64a(data)))
                elif label == _OPTIONS:
                    asked[label] = _shown(data, str(murmur64a(data)))
                elif len(data) != 16:
                    asked[label] = f"{murmur64a(data):016x}"
        if device := asked.pop("device", ""):
            parts = device.split("/") if "/" in device else ["", device]
            whole = dict(_device(device.encode())) or dict(zip(_DEVICE, parts, strict=False))
            asked = {label: value for label, value in whole.items() if value} | asked
        if not asked or any(len(wanted.get(label, ())) > 1 for label in ("device", *_DEVICE)):
            raise UsageError("a program runs on one device; give platform/device/version/driver once")
        return asked

    def stored(self, entry: CacheEntry) -> Mapping[str, Sequence[str]]:
        found = dict(super().stored(entry))
        return {**found, "kernel": [*(names := found.get("kernel", ())), *map(readable, names)]}

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        size_bytes = sum(map(len, wanted.get("image", ())))
        refusal = Bounds.of(os.environ).refusal(size_bytes) if size_bytes > 16 else ""
        for one in super().answer(wanted) or ():
            yield replace(one, verdict=Verdict.UNCACHEABLE, detail=refusal) if refusal else one

    def hinders(self, entry: CacheEntry) -> Problem | None:
        item = cast("Files", entry.handle)
        return self._served(item, _stems(item))[1] or self.unsound(item)

    # On the way to another machine.

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        told = dict(look.toolchain)
        platform = told.get(_DEVICE[0], "")
        for label, fact in ((_DEVICE[1], Fact.ARCHITECTURE), (_DEVICE[3], Fact.DRIVER)):
            if label in told:  # other backends name and count otherwise
                yield fact if "OpenCL" in platform else f"{label} of {platform}", told[label]
        with suppress(FormatError, KeyError):
            yield from needed(
                Parts(item, f"{_stems(item)[0]}{_BINARY}", _CODE.words).read("binary", _SHOWN_BYTES)
            )

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        return sorted(one for one in super().files_to_move(item) if one.name.endswith((_BINARY, _SOURCE)))

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        if root != self.root or not os.path.lexists(self.root / _SIZE):
            return entry.files
        stems = [one.name.removesuffix(_BINARY) for one in entry.files if one.name.endswith(_BINARY)]
        now = str(self.now_ns()).encode()
        return [*(PortableFile(stem + _TIME, now, 0o644) for stem in stems), *entry.files]

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        if done := move():
            self._resize(sum(len(one.data) for one in entry.files))
        return done

    # Removal.

    def unchanged(self, item: Files) -> bool:
        return _identities(item) == _identities(item.again())

    def remove(self, item: Files) -> Kept | None:
        now = item.again()
        stems = _stems(now)
        own = [stem for stem in stems if not _strange(now, stem)]
        if _identities(now) != _identities(item) or not own:
            return Kept(_of_others(_strange(now, stems[0]))) if stems and not own else Kept()
        with now.open() as folder, self._held(folder, now, own):
            times = {_stem(name) for name in now.names if name.endswith(_TIME) and _is_named(name)}
            spent = {one for one in times if one not in stems and _time(now, one) >= 0}
            for name in (stem + one for stem in (*own, *spent) for one in (_SOURCE, _BINARY, _TIME)):
                if name in now.seen:
                    folder.unlink(name)
        self._resize(-sum(now.seen[name].st_size for name in _identities(now) if _stem(name) in own))
        self.tidy(item.parts, len(item.parts))
        return None

    def discard(self, item: Files) -> Kept | None:
        now = item.again()
        with now.open() as folder:
            locks = [name for name in now.names if name.endswith(_LOCK) and _is_named(name)]
            if held := next((name for name in locks if not self._is_abandoned(now, name)), ""):
                raise HeldError(f"a program may be writing, as {held} exists")
            for name in locks:
                folder.unlink(name)
        return self.remove(item)

    @contextmanager
    def _held(self, folder: Folder, item: Files, stems: Sequence[str]) -> Iterator[None]:
        """Take the locks of some numbers as libsycl does; raises HeldError, OSError."""
        with ExitStack() as taken:
            for name in (stem + _LOCK for stem in stems):
                try:
                    taken.enter_context(files.held_by_name(folder, name, 0o200))
                except FileExistsError as error:
                    remedy = "run it again later"
                    if name in item.seen and self._is_abandoned(item, name):
                        remedy = repair(self.location)
                    raise HeldError(f"a program may be writing, as {name} exists; {remedy}") from error
            yield

    # The whole cache.

    def beside(self) -> Iterator[Checked]:
        yield from super().beside()
        for item in (one for one in self.items("") if not _stems(one)):
            found = list(self._around(item))
            if not found:
                detail = f"{'/'.join(item.parts)} is empty, as eviction leaves it"
                yield self.told(item.folder, Problem(FindingKind.LEFTOVER, detail))
            yield from (self.told(item.folder / name, problem) for name, problem in found)

    def whole(self) -> Iterator[Checked]:
        """The size and its lock, and those of eviction: named by the root's path with a suffix, they are next
        to the root, or in it if SYCL_CACHE_DIR ends in a slash."""
        if problem := self._size_problem():
            yield self.told(self.root / _SIZE, problem)
        eviction = [Path(f"{self.root}{slash}{_EVICTION}") for slash in ("", os.sep)]
        for path in (
            self.root / (_SIZE + _LOCK),
            *eviction,
            *(one.with_name(one.name + _LOCK) for one in eviction),
        ):
            if item := _file(path):
                ends = path.name.endswith(_EVICTION + _LOCK)
                effect = "the cache is never evicted again" if ends else _HANGS
                problem = self._lock(item, path.name, effect, bars=not ends)
                if path.name.endswith(_EVICTION):  # no program creates it, and all wait for it
                    problem = problem._replace(kind=FindingKind.MISPLACED)
                yield self.told(path, problem)

    def limits(self) -> Iterator[str]:
        limit, bounds = self.location.limit_bytes, Bounds.of(os.environ)
        if self.location.decided_by == "--cache":
            return
        if limit and limit >= LITTLE_BYTES and (stored := self._summed()) > limit:
            yield (
                f"the limit is too small: {format_size(stored)} are stored and {MAX_SIZE} allows "
                f"{format_size(limit)}, so libsycl evicts when the next entry is added; "
                f"export {MAX_SIZE}={2 * stored}"
            )
        if bounds != Bounds():
            keys = [_key(item, _stems(item)[0]) for item in self.items("") if _stems(item)]
            sizes = [key.spans["images"].length for key in keys if key]
            if sizes and all(map(bounds.refusal, sizes)):
                names = " ".join(bounds.names)
                yield (
                    f"{names.replace(' ', ' and ')} keep out the images of all {len(sizes)} entries that are "
                    f"stored, so programs compile them at every run; unset {names}"
                )

    def clear(self, checked: Checked) -> Checked:
        path = Path(checked.entry)
        with suppress(OSError, FormatError, HeldError, ValueError):
            if path == self.root / _SIZE:
                return checked.fixed() if self._resize(0, whole=True) else checked
            if (item := _file(path)) is None:
                return checked
            lock = path.name.endswith(_EVICTION) and _is_lock(item, path.name)
            named = _is_named(path.name) or _EVICTION in path.name or path.name == _SIZE + _LOCK
            time = path.name.endswith(_TIME) and (
                not item.seen[path.name].st_size or _time(item, _stem(path.name)) >= 0
            )
            gone = time or (path.name.endswith(_LOCK) and self._is_abandoned(item, path.name))
            if lock or (named and gone):
                path.unlink()
            parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
            for folder in (parts, parts[:-1]):
                if self.layout.key_at(folder):
                    self.tidy(folder, len(folder))
            return checked if os.path.lexists(path) else checked.fixed()
        return checked

    def _summed(self) -> int:
        """The bytes of all entries as libsycl adds them up. Raises nothing."""
        with suppress(OSError):
            return sum(item.seen[name].st_size for item in self.items("") for name in _identities(item))
        return 0

    def _size_problem(self) -> Problem | None:
        """The problem of the size file; None if it is sound or missing."""
        try:
            with Folder.at(self.root) as folder:
                data = files.read(folder, _SIZE, _SIZE_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, FormatError) as error:
            return Problem(FindingKind.UNTRUSTED, f"{error}: {_HANGS}")
        number = _size_of(data)
        if number is None:
            strange = (
                ""
                if _SIZE_LIKE.fullmatch(data)
                else "; libsycl did not write it, so it stays; move it elsewhere"
            )
            shown = printable(data.partition(b"\n")[0][:20], None)
            return Problem(
                FindingKind.CORRUPT, f"{_SIZE} has {shown!r}, which is not a size: {_HANGS}{strange}"
            )
        summed = self._summed()
        if abs(number - summed) <= max(_SLACK_BYTES, summed // 4):
            return None  # libsycl itself counts in two ways
        effect = "evicts too early" if number > summed else "lets the cache grow too large"
        told = f"{_SIZE} says {format_size(number)} and the entries take {format_size(summed)}"
        return Problem(FindingKind.ORPHAN, f"{told}, so libsycl {effect}")

    def _resize(self, change: int, *, whole: bool = False) -> bool:
        """Add a change to a size that is sound, or write the true one; whether that is done."""
        path = self.root / _SIZE
        with suppress(OSError, FormatError, HeldError), Folder.at(self.root) as folder:
            if whole and not stat.S_ISREG(path.lstat().st_mode):
                path.unlink()  # libsycl makes a new one
                return True
            lock = _file(self.root / (_SIZE + _LOCK))
            folder.lstat(_SIZE)
            with self._held(folder, Files(self.root, (), "", lock.seen if lock else {}), [_SIZE]):
                data = files.read(folder, _SIZE, _SIZE_BYTES)
                number = _size_of(data)
                if whole and _SIZE_LIKE.fullmatch(data):
                    number, change = self._summed(), 0
                if number is not None:
                    files.overwrite(folder, _SIZE, str(max(0, number + change)).encode(), whole=True)
                    return True
        return False


def _used_ns(item: Files, stem: str) -> int:
    """The runtime's own note, which it renews only with eviction on, or a read that the disk noted."""
    seen = [_time(item, stem)]
    for status in (item.seen[stem + one] for one in (_BINARY, _SOURCE) if stem + one in item.seen):
        seen.append(status.st_mtime_ns)
        # A copy or a move sets the access time as well as the change time: only a later one is a read.
        if status.st_atime_ns > max(status.st_mtime_ns, status.st_ctime_ns):
            seen.append(status.st_atime_ns)
    return max(seen)


def _size_of(data: bytes) -> int | None:
    """The first line as ``std::stoull`` reads it; an empty file counts as 0."""
    number = _NUMBER.match(data.partition(b"\n")[0])
    if not data:
        return 0
    return int(number[1]) if number and int(number[1]) < 1 << 64 else None


def _identities(item: Files) -> Mapping[str, Identity]:
    return {name: Identity.of(status) for name, status in item.seen.items() if _is_content(name)}


def _file(path: Path) -> Files | None:
    """A file that belongs to no entry; None if it does not exist."""
    with suppress(OSError, ValueError):
        return Files(path.parent, (), "", {path.name: path.lstat()})
    return None
