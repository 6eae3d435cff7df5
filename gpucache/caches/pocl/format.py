"""PoCL's kernel cache: a directory for each program, with its bitcode and its compiled kernels.

A program's directory is named by the SHA-1 of its preprocessed source, options, and PoCL's version, build
time, LLVM and device; none of these is stored. PoCL keeps no checksum, has no limit, evicts nothing and
takes no locks; files come by renaming. Tried with PoCL 3.0 and 3.1; PoCL 7 keeps the same tree. Source: PoCL,
lib/CL/pocl_cache.c (its location: ``pocl_cache_init_topdir``) and lib/CL/pocl_runtime_config.c.

Everything else in the root (temporary files, failed builds, strangers) is reported in groups,
as there may be thousands of each. A program's directory is renamed into the root before deletion, so that
PoCL sees it whole or not at all."""

import errno
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import cast

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files
from gpucache.caches.files import Files, Tally
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import Field, compared
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Whose
from gpucache.caches.pocl.entry import (
    KINDS,
    LAYOUT,
    LOG,
    MINIMUM_AGE_NS,
    SHOWN,
    Program,
    short,
    variant_of,
)
from gpucache.caches.pocl.locations import PoclPlaces
from gpucache.caches.portable import Fact, Moving, PortableFile
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.model import BuildRequest, KeyField, Toolchain
from gpucache.payload import elf
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

BUSY_NS = 60 * 10**9
LOG_BYTES = 64 << 10
_LOOKED_AT = 300
"""Names of a directory that may be a cache; there are 256 directories of two letters."""
_VARIANTS = 64
_BUSY = (
    "it was used within the last minute, and PoCL has no locks that show its user; end its programs and "
    "try again in a minute"
)
_NO_INPUTS = "PoCL stores no source, no options and no build time of its own"
_PAIR, _REST = re.compile("[A-P]{2}"), re.compile("[A-P]{37,38}")
_IN_ROOT = re.compile(
    r"(tempfile|tempdir|_UNCACHED)_[A-Za-z0-9]{6}(?:\.[a-z.]{1,16}|\.preproc-[0-9a-f]{8}\.cl\.tmp)?"
    "|tempdir_gpucache_[0-9a-f]+"
)
"""Temporary files and directories in the root: ``tempfile_XXXXXX`` with or without a suffix (each start of
PoCL leaves an empty one), ``tempdir_XXXXXX``, ``_UNCACHED_XXXXXX`` for programs built while the cache
is off; and entries that are being removed."""
_FAILED, _BARE = f"*/*/{LOG}", "*/*/*.so"
_GROUPS = {
    "tempfile*": (FindingKind.LEFTOVER, "temporary files, of which every start of PoCL leaves an empty one"),
    "tempdir*": (FindingKind.LEFTOVER, "temporary directories of programs that died"),
    "_UNCACHED*": (
        FindingKind.LEFTOVER, "directories of programs that were built with POCL_KERNEL_CACHE=0 and died",
    ),
    _FAILED: (FindingKind.ORPHAN, "directories of builds that failed or were not finished"),
    _BARE: (
        FindingKind.ORPHAN,
        "directories with kernels but no program, which PoCL compiles again before it takes these",
    ),
}  # fmt: skip
"""Leftovers that are reported together, by the pattern below the root that names them."""
_MOVED = ("program", "log", "accessed", "binary", "device")
_TEMPORARY_BYTES, _TEMPORARY_MODE = 64 << 10, 0o600
_FUNCTION = re.compile(rb"\bvoid\s+\w+\s*\(")
"""How the heads of kernels continue, as they return nothing, after any word."""
_MADE = (
    b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x03\x02\x23\x07", b"ML\xefR", b"#define __llvm__ 1\n",
)  # fmt: skip
"""How machine code, LLVM bitcode with and without a wrapper, SPIR-V, MLIR and Clang's macros, which come in
front of a preprocessed source, begin."""


@dataclass(slots=True)
class _Remains:
    """Files in the root that belong to no entry: those old enough to remove, with size, by group; and the
    rest."""

    old: dict[str, list[tuple[tuple[str, ...], int]]] = field(
        default_factory=lambda: {pattern: [] for pattern in _GROUPS}
    )
    young: int = 0
    links: list[str] = field(default_factory=list)
    strange: Tally = field(default_factory=lambda: Tally(8))

    def add(self, pattern: str, parts: tuple[str, ...], size_bytes: int, age_ns: int) -> None:
        if age_ns > MINIMUM_AGE_NS:
            self.old[pattern].append((parts, size_bytes))
        else:
            self.young += 1


class Pocl(PoclPlaces, FilesFormat):
    """Caches of PoCL's CPU and other devices. PoCL bounds none and never evicts."""

    layout = LAYOUT
    barred_by_links = False
    wanted = {
        "kernel": "the name of a kernel; may be repeated",
        "local-size": "a local size that it is launched with, such as 64x1x1; may be repeated",
        "llvm": "the version of LLVM in PoCL's platform version, such as 15.0.6",
    }
    compared = {"kernel": Field(8, lambda *_: 0.0, 1.0), "local size": Field(2), "LLVM": Field(4)}
    served = (
        "PoCL stores no source and no options, so it may be another program's kernel of that name, and "
        "inspect shows the global offsets and grids that it is for"
    )
    moving = Moving(
        tells="paths, and source text in build logs",
        sources=True,
        untold=("PoCL's build", Fact.CPU),
    )

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        kernels = tuple(name.encode() for name in islice(kernel_names(request.program.source), _VARIANTS))
        sizes = tuple("x".join(map(str, (*size, 1, 1)[:3])).encode() for size in request.local_sizes)
        return {name: values for name, values in (("kernel", kernels), ("local-size", sizes)) if values}

    @classmethod
    def whose(cls, path: Path) -> Whose:
        names = [one.name for one in islice(path.iterdir(), _LOOKED_AT)]
        ours = all(_PAIR.fullmatch(name) or _IN_ROOT.fullmatch(name) for name in names)
        with files.open_folder(path) as top:
            if not ours and not any(_holds_program(top, name) for name in filter(_PAIR.fullmatch, names)):
                return Whose.FOREIGN
        found = (LAYOUT.roles(item) for item in islice(LAYOUT.items(path), _LOOKED_AT))
        roles = ("program", "log", "accessed", "binary", "device")
        own = any(one[role] for one in found for role in roles)
        named = ours and path.parts[-2:] == (cls.name, "kcache")
        return Whose.OWN if own or named else Whose.UNKNOWN

    # Entries.

    def items(self, prefix: str) -> Iterator[Files]:
        """The directories of programs, and of failed builds, for which ``look`` returns None."""
        return super().items(prefix.lower())

    def look(self, item: Files) -> CacheEntry | None:
        found = Program.of(item)
        if not found.main:
            return None
        sizes = dict.fromkeys(one.local_size or "any" for one in found.variants)
        return self.entry(item)._replace(
            program=found.title,
            target=f"{self.name}:{found.triple}" if found.triple else self.name,
            artifact_kind=KINDS[found.main],
            variant=f"local size {', '.join(list(sizes)[:SHOWN])}" if sizes else "",
            fields=tuple(found.fields()),
            damage=found.broken,
            created_ns=item.seen[found.main].st_mtime_ns,
            last_used_ns=found.accessed_ns,
            toolchain=(("LLVM", found.llvm),) if found.llvm else (),
        )

    def stays(self, item: Files) -> str:
        return Program(item, LAYOUT.roles(item)).stays

    def trust(self, item: Files) -> Iterator[Problem]:
        now = item.again()
        return Program(now, LAYOUT.roles(now)).trust()

    def check(self, item: Files) -> Iterator[Problem]:
        return self._now(item).check(self.now_ns())

    def unsound(self, item: Files) -> Problem | None:
        return next(self._now(item).damage(), None)

    def notes(self, item: Files) -> Iterator[str]:
        now = item.again()
        return Program(now, LAYOUT.roles(now)).notes(self.now_ns())

    def payload(self, item: Files) -> bytes:
        found = self._now(item)
        return found.read(found.main)

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        found = Program.of(item)
        if found.broken:
            why = found.broken.detail
            raise FormatError(f"{entry.path} cannot be read: {why}; run 'gpucache verify'")
        source = found.module.source if found.module else ""
        lost = ", of which the fourth digit is on no disk" if len(entry.key) == 39 else ""
        told = (KeyField(label, value) for label, value in found.fields())
        log = ""
        with suppress(OSError, FormatError):
            if LOG in item.seen:
                log = item.part(LOG, 0, LOG_BYTES).decode("utf-8", "replace")
        return EntryReport(
            entry,
            key_fields=(KeyField(f"SHA-1{lost}", entry.key), KeyField("inputs", _NO_INPUTS), *told),
            payload=tuple(_payload(found)),
            build_log=log,
            provenance=(("compiled from", source),) if source else (),
        )

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether a kernel was compiled for a local size: all that PoCL stores of a program's inputs."""
        kernels, versions = wanted.get("kernel", ()), wanted.get("llvm", ())
        if not kernels or not all(kernels) or len(versions) > 1:
            raise UsageError(
                "PoCL does not store a program's inputs, so ask for a kernel by name, and for one LLVM: "
                "'gpucache inspect --cache pocl --why --want kernel=NAME'"
            )
        for kernel in map(printable, kernels):
            for size in map(printable, wanted.get("local-size", ()) or (b"",)):
                launch = {"local size": f"{kernel} {size}"} if size else {}
                llvm = {"LLVM": printable(versions[0])} if versions else {}
                found = compared(self, {**llvm, "kernel": kernel, **launch})
                if found.hit and not size:
                    told = f"{found.detail}; give local-size=SIZE to ask for a launch"
                    found = replace(found, verdict=Verdict.NOT_RECORDED, detail=told)
                yield found

    def stored(self, entry: CacheEntry) -> Mapping[str, Sequence[str]]:
        found = Program.of(cast("Files", entry.handle))
        known = (*(found.module.kernels if found.module else ()), *found.folders)
        launches = [f"{short(one.kernel)} {one.local_size or 'any local size'}" for one in found.variants]
        return {"kernel": known, "local size": launches, "LLVM": [found.llvm]}

    def _now(self, item: Files) -> Program:
        """A program as it is now; raises OSError, FileNotFoundError if it is gone."""
        found = Program.of(item.again())
        if not found.main:
            raise FileNotFoundError(errno.ENOENT, "it is gone")
        return found

    # Removal.

    def unchanged(self, item: Files) -> bool:
        """Whether the program is as the scan saw it, and PoCL has not found it built since."""
        return self._same(item) is not None

    def _same(self, item: Files) -> Program | None:
        """The program as it is now; None if it was replaced or used since the scan."""
        now = item.again()
        found, before = Program(now, LAYOUT.roles(now)), Program(item, LAYOUT.roles(item))
        return found if found.main and found.identity == before.identity else None

    def remove(self, item: Files) -> Kept | None:
        found = self._same(item)
        busy = found is not None and abs(self.now_ns() - found.accessed_ns) < BUSY_NS
        return Kept(_BUSY) if busy else self.discard(item)

    def discard(self, item: Files) -> Kept | None:
        """Remove its directory even if it was just used: PoCL makes it anew."""
        found = self._same(item)
        if found is None:
            return Kept()
        why = found.stays or self._take_out(item.parts)
        return Kept(why) if why else None

    def _take_out(self, parts: Sequence[str]) -> str:
        """Remove a program's directory, and its two-letter parent if that is empty then; why it
        stays, as a clause, if it has files that are not PoCL's. Files that cannot be deleted after the rename
        are left as temporary."""
        (pair, rest), new_name = parts, f"tempdir_gpucache_{secrets.token_hex(8)}"
        with files.open_folder(self.root) as top, top.folder(pair) as group:
            if not stat.S_ISDIR(group.lstat(rest).st_mode):
                raise NotADirectoryError(f"{self.root / pair / rest} is not a directory")
            group.move(rest, top, new_name)
            if why := _delete(top, new_name):  # it came between the look and the rename
                top.move(new_name, group, rest)
            with suppress(OSError):
                top.rmdir(pair)
            return why

    # On the way to another machine.

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """Its LLVM and target; PoCL's version and the CPU's name are only in the hash."""
        found = Program.of(item)
        yield from (pair for pair in (("LLVM", found.llvm), ("target triple", found.triple)) if pair[1])

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """PoCL's files without the leftovers of its compiler; the program is first, as PoCL takes kernels
        from anyone who built the same program, and compiles those that are missing."""
        found = {one.name: one for one in super().files_to_move(item)}
        roles, above = LAYOUT.roles(item), "/".join(item.parts)
        names = [name for role in _MOVED for name in roles[role]]
        return [found[f"{above}/{name}"] for name in names]

    # Leftovers, and the whole cache.

    def beside(self) -> Iterator[Checked]:
        yield from self.unread()
        found = self._gathered()
        for pattern, (kind, what) in _GROUPS.items():
            if old := found.old[pattern]:
                detail = f"{what}: {len(old)} ({format_size(sum(size for _, size in old))})"
                yield self.told(self.root / pattern, Problem(kind, detail), pattern)
        for name in found.links:
            detail = "it is a link, which PoCL follows and gpucache does not; remove it"
            yield self.told(self.root / name, Problem(FindingKind.UNTRUSTED, detail), printable(name))
        if found.strange.count:
            detail = f"{found.strange}: not PoCL's; keep it elsewhere"
            yield self.told(self.root, Problem(FindingKind.LEFTOVER, detail))
        if found.young:
            note = (
                f"temporary or unfinished files and directories in {self.root} younger than 10 minutes, "
                f"so they may be in use and are left alone: {found.young}"
            )
            yield Checked(str(self.root), notes=(note,), counts=False)

    def clear(self, checked: Checked) -> Checked:
        pattern, gone = checked.entry.removeprefix(f"{self.root}/"), True
        try:
            places = self._gathered().old.get(pattern, [])
            for parts, _ in places:
                with suppress(FileNotFoundError):  # another process removes it, too
                    gone &= not self._take_out(parts) if len(parts) == 2 else self._take_temporary(parts[0])
        except (OSError, FormatError):
            return checked
        return checked.fixed() if places and gone else checked

    def _gathered(self) -> _Remains:
        """Everything that is not an entry; raises OSError if the root cannot be read."""
        found = _Remains()
        with files.open_folder(self.root) as top:
            for name in sorted(entry.name for entry in top.entries()):
                with suppress(FileNotFoundError):
                    self._sort(top, name, found)
        for item in self.layout.items(self.root):
            one = Program(item, LAYOUT.roles(item))
            newest = max(status.st_mtime_ns for status in item.seen.values())
            if one.stays and not one.main:
                found.strange.add("/".join(item.parts))
            elif not one.main:
                pattern = _BARE if one.compiled else _FAILED
                found.add(pattern, item.parts, _size_bytes(one), self.now_ns() - newest)
        return found

    def _sort(self, top: Folder, name: str, found: _Remains) -> None:
        status, temporary = top.lstat(name), _IN_ROOT.fullmatch(name)
        if stat.S_ISLNK(status.st_mode):
            found.links.append(name) if _PAIR.fullmatch(name) else found.strange.add(name)
        elif temporary and _is_own_temporary(top, name):
            age_ns = self.now_ns() - status.st_mtime_ns
            found.add(f"{temporary[1] or 'tempdir'}*", (name,), files.allocated_bytes(status), age_ns)
        elif _PAIR.fullmatch(name) and stat.S_ISDIR(status.st_mode):
            with suppress(OSError), top.folder(name) as folder:
                for inner in sorted(entry.name for entry in folder.entries()):
                    mode = folder.lstat(inner).st_mode
                    if _REST.fullmatch(inner) and stat.S_ISLNK(mode):
                        found.links.append(f"{name}/{inner}")
                    elif not _REST.fullmatch(inner) or not stat.S_ISDIR(mode):
                        found.strange.add(f"{name}/{inner}")
        else:
            found.strange.add(name)

    def _take_temporary(self, name: str) -> bool:
        """Remove a temporary file or directory directly in the root; whether it was removed."""
        with files.open_folder(self.root) as top:
            if not _is_own_temporary(top, name):
                return False
            if stat.S_ISDIR(top.lstat(name).st_mode):
                return not _delete(top, name)
            top.unlink(name)
            return True


def _holds_program(top: Folder, pair: str) -> bool:
    with suppress(OSError), top.folder(pair) as folder:
        return any(_REST.fullmatch(entry.name) for entry in folder.entries())
    return False


def _size_bytes(one: Program) -> int:
    held = (status for status in one.files.seen.values() if not stat.S_ISDIR(status.st_mode))
    return sum(map(files.allocated_bytes, held))


def _is_own_temporary(top: Folder, name: str) -> bool:
    """Whether a file or directory in the root with PoCL's temporary name has such content.

    People's names may end in six letters too. PoCL's are: an empty file, one that begins as a compiled or
    preprocessed one, a kernel's source, and a directory with PoCL's names alone. A source may take the word
    for a kernel from a header; it then has a function's head, and the mode of PoCL's temporary files.
    Raises nothing.
    """
    try:
        status = top.lstat(name)
        if stat.S_ISDIR(status.st_mode):
            with top.folder(name) as folder:
                return not _read(folder).stays
        if not stat.S_ISREG(status.st_mode):
            return False
        start = files.read_part(top, name, 0, _TEMPORARY_BYTES)
    except (OSError, FormatError):
        return False
    if not start or start.startswith(_MADE):
        return True
    private = stat.S_IMODE(status.st_mode) == _TEMPORARY_MODE
    return name.endswith(".cl") and (b"kernel" in start or (private and bool(_FUNCTION.search(start))))


def _read(folder: Folder) -> Program:
    """The names in a program's open directory now; raises OSError."""
    item = files.tree(folder, folder.path, (), "")
    return Program(item, LAYOUT.roles(item))


def _delete(above: Folder, name: str) -> str:
    """Delete a directory of PoCL's, best effort; why it stays whole if it has files that are not PoCL's."""
    with above.folder(name) as folder:
        found = _read(folder)
        if found.stays:
            return found.stays
        with suppress(OSError):
            for path in reversed(found.files.names):  # the contents of directories before them
                *below, last = path.split("/")
                with folder.folder(*below) if below else nullcontext(folder) as place:
                    is_folder = stat.S_ISDIR(found.files.seen[path].st_mode)
                    (place.rmdir if is_folder else place.unlink)(last)
    with suppress(OSError):
        above.rmdir(name)
    return ""


def _payload(found: Program) -> Iterator[tuple[str, str]]:
    if found.main:
        yield from payloads.describe(found.read(found.main)).pairs
    for name in found.compiled[:_VARIANTS]:
        kernel, *rest = name.split("/")
        variant = variant_of(kernel, rest[0]) if rest else None
        label = f"{printable(short(kernel))} {variant.words}" if variant else printable(name)
        clang = ""
        with suppress(OSError, FormatError):
            versions = elf.read_exports(found.read(name)).compilers if name in found.roles["binary"] else ()
            clang = f", clang {', '.join(versions)}" if versions else ""
        size = format_size(found.files.seen[name].st_size)
        yield label, f"{printable(name.rpartition('/')[2])}, {size}{clang}"
