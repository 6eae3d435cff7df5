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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files
from gpucache.caches.binary_format import needed
from gpucache.caches.comparison import Field, TextsAlike
from gpucache.caches.files import Files, Frame, Identity, LargeError, Parts, Rule
from gpucache.caches.format import Format, HeldError
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.caches.systems import SYCL_FOLDER, ImageBounds, SyclPlaces
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind, describe, spirv
from gpucache.payload.mangled import readable
from gpucache.units import format_age, format_size, printable

_KERNELS, _SIZE, _EVICTION = "ext_kernel_compiler", "cache_size.txt", "_eviction_in_progress"
_BINARY, _SOURCE, _TIME, _LOCK = ".bin", ".src", "_access_time.txt", ".lock"
_DEVICE = ("platform name", "device name", "device version", "driver version")
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
_SIZE_LIKE = re.compile(rb"[\s\0+-]*+[0-9]*+[\s\0]*+")
"""The content that libsycl writes or a crash leaves; anything else belongs to another program."""
_STALE_NS = 600 * 10**9
_SHOWN_BYTES, _NAMED_BYTES, _HASHED_BYTES, _SIZE_BYTES, _COUNT_USED = 4096, 1 << 20, 64 << 20, 4096, 3
_BINARIES_READ = 1024
_LOST = "a program that asks for it gets nothing or an error and adds a copy at every run"
_PASSED = "programs pass it over and keep another copy next to it"
_HANGS = "a program with SYCL_CACHE_MAX_SIZE set dies or waits for ever when it adds an entry"
_LOADABLE = {
    "Intel(R) OpenCL": (PayloadKind.INTEL_CPU, PayloadKind.ELF, PayloadKind.INTEL_GPU),
    "Intel(R) OpenCL Graphics": (PayloadKind.INTEL_GPU, PayloadKind.ELF),
    "NVIDIA CUDA BACKEND": (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.PTX),
}
"""The kinds of binaries that known platforms load."""
_OPAQUE = (PayloadKind.UNKNOWN, PayloadKind.OFFLOAD_BUNDLE)
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
    """The parts of a key whose hashes are not the names of its directories."""
    if any(span.length > _HASHED_BYTES for span in one.spans.values()):
        raise LargeError(f"not hashed: larger than {format_size(_HASHED_BYTES)}")
    parts = zip(("device", "images", "spec", "options"), one.item.parts, strict=True)
    return [label for label, name in parts if str(murmur64a(one.read(label))) != name]


def _misplaced(one: Parts) -> str:
    unlike = _unlike(one)
    return " and ".join(unlike) if len(unlike) < len(one.item.parts) else ""


def _miscounted(one: Parts) -> bool:
    """Whether the claimed binaries are not the rest of the file; versions before 2025 stored several."""
    claimed, end = one.numbers["count"], one.spans["binary"].end
    for _ in range(1, min(claimed, _BINARIES_READ)):
        if not 0 < (length := one.number(end)) <= one.size_bytes - end - 8:
            return True
        end += 8 + length
    return not 0 < claimed <= _BINARIES_READ or end != one.size_bytes


def _misfit(one: Parts) -> str:
    """Why a binary does not belong to the key next to it; compilers keep the names of kernels."""
    data = one.read("binary")
    info, key = describe(data, inside=2), _key(one.item, _stem(one.name))
    platform = printable(key.read("device", _SHOWN_BYTES).partition(b"/")[0], None) if key else ""
    if info.problem:
        return f"a broken binary, {info.problem}"
    if info.kind not in _LOADABLE.get(platform, (info.kind,)) and not data.startswith(_OLD_GPU):
        return f"a binary ({info.kind}, starting with {data[:8].hex(' ')}) that is not of {platform}"
    names = _kernels(key) if key and info.kind not in _OPAQUE else ()
    missing = next((name for name in names if name.encode() not in data), "")
    return f"no kernel {readable(missing)}, unlike its images" if missing else ""


def _kernels(key: Parts) -> tuple[str, ...]:
    """The mangled names of the kernels in the images, in order, as far as these are searched."""
    return spirv.kernel_names(key.read("images", _NAMED_BYTES))


_KEY = Frame(
    r".+\.src", "device:p64 options:p64 spec:p64 images:p64 more:rest", _PASSED,
    (
        Rule(FindingKind.CORRUPT, lambda one: one.spans["more"].length, "has {} bytes behind its images"),
        Rule(FindingKind.MISPLACED, _misplaced, "has {} of another directory"),
        Rule(None, lambda one: len(_unlike(one)) == len(one.item.parts),
             "its directories are not named by libstdc++'s hash, so they were not compared"),
    ),
)  # fmt: skip
_CODE = Frame(
    r".+\.bin", "count:u64 binary:p64 more:rest", _LOST,
    (
        Rule(FindingKind.CORRUPT, _miscounted, "does not have as many binaries as it claims, and no more"),
        Rule(FindingKind.CORRUPT, lambda one: not one.spans["binary"].length, "has an empty binary"),
        Rule(FindingKind.MISLABELLED, _misfit, "has {}"),
        Rule(None, lambda one: describe(one.read("binary")).kind in _OPAQUE,
             "its binary is of an unknown kind"),
        Rule(None, lambda one: one.item.parts[0] == _KERNELS,
             "a kernel_compiler's binary stores no key, so its directory was not compared"),
    ),
)  # fmt: skip


def _stem(name: str) -> str:
    return re.split(r"\.|_", name, maxsplit=1)[0]


def _stems(item: Files) -> list[str]:
    """The numbers of a directory, in the order in which programs look at them: one file of two is enough."""
    found = {_stem(name) for name in item.names if _is_content(name) and _is_own(item, name)}
    return sorted(found, key=lambda one: -1 if one == "ir" else int(one))


def _is_content(name: str) -> bool:
    return name.endswith((_BINARY, _SOURCE)) and re.fullmatch(_FILE, name) is not None


def _is_own(item: Files, name: str) -> bool:
    """Whether a numbered file is libsycl's: one of two, or with a time, or beginning with a small count or
    length. Other programs number files too."""
    if sum(_stem(name) + one in item.seen for one in (_BINARY, _SOURCE)) > 1 or _time(item, _stem(name)) >= 0:
        return True
    with suppress(OSError, FormatError):
        return not any(item.part(name, 0, 8)[_COUNT_USED:])
    return True


def _identities(item: Files) -> Mapping[str, Identity]:
    stems = _stems(item)
    own = (name for name in item.names if _is_content(name) and _stem(name) in stems)
    return {name: Identity.of(item.seen[name]) for name in own}


def _key(item: Files, stem: str) -> Parts | None:
    """The key in a numbered entry's files; None if it is not complete."""
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


def _blob(raw: bytes, hashed: str) -> str:
    """Bytes for people: as hex, or by their hash, as in the directory's name, if they are many."""
    return (raw.hex() if len(raw) <= 32 else f"hash {hashed}") if raw else "none"


def _device(text: str) -> tuple[tuple[str, str], ...]:
    """The four parts of a device; other text is a name. Only the name may contain slashes."""
    platform, _, rest = text.partition("/")
    parts = (platform, *rest.rsplit("/", 2))
    return tuple(zip(_DEVICE, parts, strict=True)) if len(parts) == len(_DEVICE) else ((_DEVICE[1], text),)


class Sycl(SyclPlaces, Format):
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
        "device": "platform/device/version/driver as inspect shows them, empty parts not compared; or the "
        "device's name",
        **dict.fromkeys(_DEVICE, "one part of the device"),
        "options": "compile and link options as one text",
        "spec": "the specialisation constants as inspect shows them: hex digits, or 'none'",
        "image": "the bytes of a device image, such as SPIR-V, or its hash as inspect shows it",
        "kernel": "the name of a kernel in the image, mangled or readable",
    }
    compared = {
        **dict.fromkeys(_DEVICE, Field()), "options": Field(3, TextsAlike()), "spec": Field(3),
        "image": Field(4), "kernel": Field(3),
    }  # fmt: skip

    @classmethod
    def whose(cls, path: Path) -> Whose:
        found = cls.layout.whose(path)
        return Whose.OWN if path.name == SYCL_FOLDER and not any(path.iterdir()) else found

    # Entries.

    def look(self, item: Files) -> CacheEntry | None:
        if not (stems := _stems(item)):
            return None
        stem, damage = self._served(item)
        times = [max(one.st_mtime_ns, _read_ns(one)) for one in item.seen.values()]
        used_ns = max(*times, *(_time(item, one) for one in stems))
        entry = self.entry(item)._replace(damage=damage, last_used_ns=used_ns)
        with suppress(FormatError, OSError, KeyError):
            start = self.parts(item, stem + _BINARY, _CODE).read("binary", _SHOWN_BYTES)
            entry = entry._replace(artifact_kind=describe(start).kind.value)
        if item.parts[0] == _KERNELS:
            what = "binary" if stem != "ir" else "IR"
            return entry._replace(program=f"kernel_compiler {what} {item.key[:12]}")
        entry = entry._replace(unique=False)
        with suppress(FormatError, OSError, KeyError):
            key = self.parts(item, stem + _SOURCE, _KEY)
            return entry if key.cut else self._described(entry, key)
        return entry

    def _described(self, entry: CacheEntry, key: Parts) -> CacheEntry:
        device, names = _device(printable(key.read("device", _SHOWN_BYTES), _SHOWN_BYTES)), _kernels(key)
        options = printable(key.read("options", _SHOWN_BYTES), None)
        image, spec = (f"{int(name):016x}" for name in key.item.parts[1:3])
        more = f" and {len(names) - 1} more" if names[1:] else ""
        kind = describe(key.read("images", _SHOWN_BYTES)).kind if key.spans["images"].length else None
        # Kernels of two programs may share a name, so only the image identifies another version.
        shown = f" spec {spec[:12]}" if key.spans["spec"].length else ""
        return entry._replace(
            program=readable(names[0]) + more if names else f"{kind} image" if kind else "",
            target="/".join(value for label, value in device if label in _DEVICE[:2]),
            variant=f"{options[:200]}{shown} image {image[:12]}".strip(),
            toolchain=device if device[1:] else (),
            toolchain_identity=_DEVICE[:2] if device[1:] else (),
            fields=(
                *device,
                ("options", options),
                ("spec", _blob(key.read("spec", _SHOWN_BYTES), spec)),
                ("image", image),
                *(("kernel", name) for name in names[:16]),
            ),
        )

    def _served(self, item: Files) -> tuple[str, Problem | None]:
        """The number that programs use: the first parsable one without a lock; else the first, and why."""
        stems, first = _stems(item), None
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
            yield (lock := self._lock(item, name, _PASSED))
            if lock.kind is FindingKind.LOCKED:
                return  # what is being written is not judged
        needed = (_BINARY,) if item.parts[0] == _KERNELS else (_SOURCE, _BINARY)
        if gone := next((stem + one for one in needed if stem + one not in item.seen), ""):
            yield Problem(FindingKind.ORPHAN, f"{gone} is missing: programs miss and write it again")
            return
        for one in needed:
            yield from self.judged(item, stem + one, whole=whole)
        hole = next(number for number in range(len(stems) + 1) if str(number) not in stems)
        if stem != "ir" and int(stem) > hole:
            why = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
            yield Problem(FindingKind.MISPLACED, why)

    def check(self, item: Files) -> Iterator[Problem]:
        now = item.again()
        stems = _stems(now)
        for stem in stems:
            yield from self._of_number(now, stem, stems, whole=True)
        yield from (problem for _, problem in self._around(now))

    def trust(self, item: Files) -> Iterator[Problem]:
        seen = {name: one for name, one in item.seen.items() if not stat.S_ISLNK(one.st_mode)}
        return (one._replace(paths=()) for one in super().trust(item._replace(seen=seen)))

    def unsound(self, item: Files) -> Problem | None:
        stem, _ = self._served(item)
        names = (one for one in (stem + _SOURCE, stem + _BINARY) if one in item.seen)
        found = (problem for name in names for problem in self.judged(item, name))
        return next((one for one in found if one.kind and one.kind.wrong), None)

    def payload(self, item: Files) -> bytes:
        return Parts(item, self._served(item)[0] + _BINARY, _CODE.words).read("binary")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if not entry.fields:
            yield "inputs of the key", "not stored by a kernel_compiler; only their hashes are known"

    # Names that belong to no entry.

    def _around(self, item: Files) -> Iterator[tuple[str, Problem]]:
        """Locks, and names that belong to no number, in a directory of entries, each with its effect."""
        stems = _stems(item)
        for name in (one for one in item.names if "/" not in one):
            lone, timed = _stem(name) not in stems, name.endswith(_TIME) and _time(item, _stem(name)) >= 0
            if not re.fullmatch(_FILE, name) or (lone and not (timed or name.endswith(_LOCK))):
                detail = f"{name} is not libsycl's, so it stays; keep it elsewhere"
                yield name, Problem(FindingKind.LEFTOVER, detail, paths=())
            elif name.endswith(_LOCK) and (lone or "_" in name):
                yield name, self._lock(item, name, "programs pass its number over or no longer note uses")
            elif name.endswith(_TIME) and (lone or not timed):
                detail = f"{name} has no time of an entry, so libsycl evicts by nothing"
                yield name, Problem(FindingKind.ORPHAN, detail)

    def _lock(self, item: Files, name: str, effect: str) -> Problem:
        """The problem of a lock: an abandoned one can be removed, a young one or another file not."""
        age = format_age(self.now_ns() - item.seen[name].st_mtime_ns)
        if self._is_abandoned(item, name):
            return Problem(FindingKind.MISPLACED, f"{name} is {age} old, so its program was killed: {effect}")
        detail = f"{name} is less than 10 min old or not empty, so a program may have it; else {effect}"
        return Problem(FindingKind.LOCKED, detail, "wait, or remove it once no program runs", ())

    def _is_abandoned(self, item: Files, name: str) -> bool:
        """Whether a file with a lock's name is an old lock: libsycl makes empty files."""
        status = item.seen[name]
        old = self.now_ns() - status.st_mtime_ns > _STALE_NS
        return stat.S_ISREG(status.st_mode) and not status.st_size and old

    # Explanations.

    def asked(self, wanted: Wanted) -> Mapping[str, str]:
        """The fields as an entry has them; a device by its parts, images by the hash of their directory."""
        asked = dict(super().asked(wanted))
        # libsycl sorts images by their first kernel.
        images = sorted(wanted.get("image", ()), key=lambda one: min(spirv.kernel_names(one), default=""))
        if len(image := b"".join(images)) != 16 and "image" in asked:
            asked["image"] = f"{murmur64a(image):016x}"
        if "spec" in asked:
            asked["spec"] = asked["spec"] or "none"
        if device := asked.pop("device", ""):
            parts = device.split("/") if "/" in device else ["", device]
            whole = dict(_device(device) if len(parts) >= len(_DEVICE) else zip(_DEVICE, parts, strict=False))
            asked = {label: value for label, value in whole.items() if value} | asked
        if not asked or any(len(wanted.get(label, ())) > 1 for label in ("device", *_DEVICE)):
            raise UsageError("a program runs on one device; give platform/device/version/driver once")
        return asked

    def stored(self, entry: CacheEntry, asked: Mapping[str, str]) -> Mapping[str, Sequence[str] | None]:
        found = dict(super().stored(entry, asked))
        return {**found, "kernel": [*(names := found.get("kernel") or ()), *map(readable, names)]}

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        size_bytes = sum(map(len, wanted.get("image", ())))
        refusal = ImageBounds.of(os.environ).refusal(size_bytes) if size_bytes > 16 else ""
        for one in super().answer(wanted) or ():
            yield one._replace(verdict=Verdict.UNCACHEABLE, detail=refusal) if refusal else one

    def hinders(self, entry: CacheEntry) -> Problem | None:
        item = cast("Files", entry.handle)
        return self._served(item)[1] or self.unsound(item)

    # On the way to another machine.

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        told = dict(look.toolchain)
        platform = told.get(_DEVICE[0], "")
        for label, fact in ((_DEVICE[1], Fact.ARCHITECTURE), (_DEVICE[3], Fact.DRIVER)):
            if label in told:  # other backends name and count otherwise
                yield fact if "OpenCL" in platform else f"{label} of {platform}", told[label]
        yield from needed(self.payload(item)[:_SHOWN_BYTES])

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
        if not (own := _identities(now)) or own != _identities(item):
            return Kept()
        with now.open() as folder, ExitStack() as taken:
            for stem in _stems(now):
                try:
                    taken.enter_context(files.held_by_name(folder, stem + _LOCK, 0o200))
                except FileExistsError as error:
                    remedy = "run it again later, or 'gpucache verify --repair' if no program runs"
                    raise HeldError(f"a program may be writing, as {stem}{_LOCK} exists; {remedy}") from error
            stems = _stems(now)
            times = {_stem(one): one for one in now.names if one.endswith(_TIME) and re.fullmatch(_FILE, one)}
            gone = [name for stem, name in times.items() if stem in stems or _time(now, stem) >= 0]
            for name in (*sorted(own, reverse=True), *gone):  # the key first
                folder.unlink(name)
        self._resize(-sum(now.seen[name].st_size for name in own))
        self.tidy(item.parts, len(item.parts))
        return None

    def discard(self, item: Files) -> Kept | None:
        now = item.again()
        with now.open() as folder:
            locks = [one for one in now.names if one.endswith(_LOCK) and re.fullmatch(_FILE, one)]
            if held := next((name for name in locks if not self._is_abandoned(now, name)), ""):
                raise HeldError(f"a program may be writing, as {held} exists")
            for name in locks:
                folder.unlink(name)
        return self.remove(item)

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
        eviction = [f"{self.root}{slash}{_EVICTION}{end}" for end in ("", _LOCK) for slash in ("", os.sep)]
        for path in (self.root / (_SIZE + _LOCK), *map(Path, eviction)):
            if item := _file(path):
                problem = self._lock(item, path.name, _HANGS)
                if path.name.endswith(_EVICTION):
                    problem = Problem(FindingKind.MISPLACED, f"{path.name} exists: {_HANGS}")
                yield self.told(path, problem)

    def clear(self, checked: Checked) -> Checked:
        path = Path(checked.entry)
        with suppress(OSError, FormatError, ValueError):
            if path == self.root / _SIZE:
                return checked.fixed() if self._resize(0, whole=True) else checked
            if not (item := _file(path)):
                return checked
            parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
            named = re.fullmatch(_FILE, path.name) or path.name.endswith((_SIZE + _LOCK, _EVICTION + _LOCK))
            ended = (
                path.name.endswith(_EVICTION) and not item.seen[path.name].st_size
            )  # no program removes it
            time = path.name.endswith(_TIME) and _time(item, _stem(path.name)) >= 0
            old = time or self._is_abandoned(item, path.name)
            if ended or (named and old):
                path.unlink()
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
        if (number := _size_of(data)) is None:
            shown = printable(data[:20], None)
            other = "" if _SIZE_LIKE.fullmatch(data) else "; libsycl did not write it, so move it elsewhere"
            return Problem(FindingKind.CORRUPT, f"{_SIZE} has {shown!r}, not a size: {_HANGS}{other}")
        summed = self._summed()
        if abs(number - summed) <= max(64 << 10, summed // 4):
            return None  # libsycl itself counts in two ways
        effect = "evicts too early" if number > summed else "lets the cache grow too large"
        told = f"{_SIZE} says {format_size(number)} and the entries take {format_size(summed)}"
        return Problem(FindingKind.ORPHAN, f"{told}, so libsycl {effect}")

    def _resize(self, change: int, *, whole: bool = False) -> bool:
        """Add a change to a size that is sound, or write the true one; whether that is done."""
        with suppress(OSError, FormatError), Folder.at(self.root) as folder:
            if whole and not stat.S_ISREG(folder.lstat(_SIZE).st_mode):
                folder.unlink(_SIZE)  # libsycl makes a new one
                return True
            folder.lstat(_SIZE)
            with files.held_by_name(folder, _SIZE + _LOCK, 0o200):
                data = files.read(folder, _SIZE, _SIZE_BYTES)
                number = _size_of(data)
                if whole and _SIZE_LIKE.fullmatch(data):
                    number = self._summed()
                if number is not None:
                    files.overwrite(folder, _SIZE, str(max(0, number + change)).encode(), whole=True)
                    return True
        return False


def _read_ns(status: os.stat_result) -> int:
    """The time of a read. A copy or a move sets the access time as well as the change time: no read."""
    return status.st_atime_ns if status.st_atime_ns > max(status.st_mtime_ns, status.st_ctime_ns) else 0


def _size_of(data: bytes) -> int | None:
    """The first line as ``std::stoull`` reads it; an empty file counts as 0."""
    number = re.match(rb"[ \t\n\v\f\r]*\+?([0-9]{1,20})(?![0-9])", data.partition(b"\n")[0])
    if not data:
        return 0
    return int(number[1]) if number and int(number[1]) < 1 << 64 else None


def _file(path: Path) -> Files | None:
    """A file that belongs to no entry; None if it does not exist."""
    with suppress(OSError, ValueError):
        return Files(path.parent, (), "", {path.name: path.lstat()})
    return None
