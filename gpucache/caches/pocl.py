"""PoCL's kernel cache: a directory for each program, with its bitcode and its compiled kernels.

A program's directory is named by the SHA-1 of its preprocessed source, options, and PoCL's version, build
time, LLVM and device; none of these is stored, and no checksum. So a kernel of the same name from another
program of the same compiler looks like the right one, as does a changed byte within bitcode or code. PoCL has
no limit, evicts nothing and takes no locks; files come by renaming. Tried with PoCL 3.0 and 3.1; PoCL 7 keeps
the same tree. Source: PoCL, lib/CL/pocl_cache.c (``build_program_compute_hash``,
``pocl_cache_kernel_cachedir_path``, ``pocl_hash_clipped_name``) and lib/CL/pocl_file_util.c
(``pocl_mk_tempname``, ``pocl_mk_tempdir``).

The leftovers in the root (temporary files, failed builds) are one finding, as there may be thousands. A
program's directory is renamed into the root before deletion, so that PoCL sees it whole or not at all."""

import errno
import hashlib
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files
from gpucache.caches.comparison import Field, compared
from gpucache.caches.files import HERE, MOST_FILES, Files, Identity
from gpucache.caches.format import HOUR_NS, Format
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import LINK, STRANGER, Layout, Left, Node, Role, Whose
from gpucache.caches.portable import Fact, Moving, PortableFile
from gpucache.caches.systems import PoclPlaces
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.model import BuildRequest, Toolchain
from gpucache.payload import PayloadKind, bitcode, describe, elf
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

_PROGRAMS = {"program.bc": "llvm-bitcode", "program.spv": "spir-v", "program.mlir": "mlir"}
"""The forms of a stored program, in newer PoCL SPIR-V or MLIR too; the first that exists counts."""
_LOG, _ACCESSED = "build.log", "last_accessed"
_BUSY_NS = 60 * 10**9
_LOG_BYTES, _READ_BYTES = 64 << 10, 256 << 20
_SHOWN, _ASKED = 32, 64
"""The most kernels and variants that are listed, and the most that a request can ask for."""
_BUSY = (
    "it was used within the last minute, and PoCL has no locks that show its user; end its programs and "
    "try again in a minute"
)
_SIZES = r"[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}(?:-goffs0)?(?:-smallgrid)?"
_TEMPORARY = (
    r"(?:tempfile|tempdir|_UNCACHED)_[A-Za-z0-9]{6}(?:\.[a-z.]{1,16}|\.preproc-[0-9a-f]{8}\.cl\.tmp)?"
    "|tempdir_gpucache_[0-9a-f]+"
)
"""Temporary files and directories in the root: ``tempfile_XXXXXX`` with or without a suffix (each start of
PoCL leaves an empty one), ``tempdir_XXXXXX``, ``_UNCACHED_XXXXXX`` for programs built while the cache
is off; and entries that are being removed."""
_LEFT = "leftovers"
_MOVED = ("program", "log", "accessed", "binary", "device")
_TRUSTED = ("program", "kernel", "variant", "binary", "device")
_TEMPORARY_BYTES = 64 << 10
_MADE = (
    b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x03\x02\x23\x07", b"ML\xefR", b"#define __llvm__ 1\n",
)  # fmt: skip
"""How files that PoCL makes begin: machine code, LLVM bitcode, also in a wrapper, SPIR-V, MLIR, and Clang's
macros before a preprocessed source."""
_VARIANT = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})(-goffs0)?(-smallgrid)?")
_CLIPPED = re.compile(r"(?s)(.+)[. ]([A-P]{40})")
_SYMBOL = re.compile(r"(?s)_?pocl_kernel_(.+)_workgroup")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_LOST = "?"
_MACHINES = {"x86_64": 62, "amd64": 62, "i386": 3, "i686": 3, "aarch64": 183, "arm64": 183, "riscv64": 243}
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_NO_PROGRAM = (
    "a program that builds it finds no kernel in it (CL_INVALID_KERNEL_NAME) or dies, at every start; "
    "PoCL never replaces it"
)
_NO_KERNEL = "a program that launches it dies, at every start; PoCL never replaces it"


def key_of(pair: str, rest: str) -> str:
    """A program's SHA-1 as hex, from the names of its directories.

    PoCL writes each byte as two letters, the low half first, and then puts the ``/`` over the third
    letter. So the fourth hex digit is on no disk; the key is the other 39, in their order.
    """
    letters = pair + (_LOST if len(rest) == 37 else "") + rest
    swapped = (letters[index ^ 1] for index in range(len(letters)))
    return "".join(f"{ord(letter) - ord('A'):x}" for letter in swapped if letter != _LOST)


def letters_of(digest: bytes) -> str:
    return "".join(chr(half + ord("A")) for byte in digest for half in (byte & 15, byte >> 4))


class Variant(NamedTuple):
    """A kernel compiled for one local size, and sometimes for particular launches alone."""

    kernel: str
    local_size: str
    """The local size, such as ``64x1x1``; empty for the generic variant, which takes every size."""
    words: str


def variant_of(kernel: str, name: str) -> Variant | None:
    """The meaning of a directory below a kernel's; None for another name."""
    match = _VARIANT.fullmatch(name)
    if match is None:
        return None
    sizes = [str(int(text)) for text in match.group(1, 2, 3)]
    size = "" if sizes == ["0", "0", "0"] else "x".join(sizes)
    limits = ["global offset 0"] * bool(match[4]) + ["small grids"] * bool(match[5])
    words = size or "any local size"
    return Variant(kernel, size, f"{words} ({', '.join(limits)} only)" if limits else words)


def is_called(folder: str, kernel: str) -> bool:
    """Whether a directory is a kernel's: its name, or for a long name its beginning and SHA-1."""
    clipped = _CLIPPED.fullmatch(folder)
    if folder == kernel or clipped is None or not kernel.startswith(clipped[1]):
        return folder == kernel
    raw = kernel.encode("utf-8", "surrogateescape")
    return letters_of(hashlib.sha1(raw, usedforsecurity=False).digest()) == clipped[2]


def short(folder: str) -> str:
    """A kernel's readable name from its directory's: without the digest if it was clipped."""
    clipped = _CLIPPED.fullmatch(folder)
    return f"{clipped[1]}…" if clipped else folder


LAYOUT = Layout(
    "([A-P]{2})/([A-P]{37,38})/",
    left=[Left(f"(?:{_TEMPORARY})"), Left(f"(?:{_TEMPORARY})/")],
    key=lambda pair: key_of(*pair),
    inside=(
        # The rest is kept by POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES=1, and not used by PoCL.
        (
            "temporary",
            r"(?:.+/)?[^/]+_[A-Za-z0-9]{6}\.temp" rf"|([^/]+)/{_SIZES}/(?:parallel\.bc|\1\.so\.o)",
        ),
        ("program", r"program\.(?:bc|spv|mlir)"),
        ("log", r"build\.log"),
        ("accessed", _ACCESSED),
        ("kernel", "[^/]+/"),
        ("variant", f"[^/]+/{_SIZES}/"),
        ("binary", rf"([^/]+)/{_SIZES}/\1\.(?:so|o)"),
        # Files of devices other than the CPU for a kernel.
        ("device", rf"[^/]+/descriptor\.[^/]*|([^/]+)/{_SIZES}/(?:parallel\.bc|\1)\.[^/]*"),
    ),
)


@dataclass(frozen=True, slots=True)
class ProgramFolder:
    """A program's directory, and its bitcode if it can be parsed."""

    files: Files
    roles: Mapping[str, Sequence[str]]
    module: Module | None = None
    broken: Problem | None = None

    @classmethod
    def of(cls, item: Files) -> "ProgramFolder":
        """A program with its bitcode as it is now; raises OSError."""
        found = cls(item, LAYOUT.roles(item))
        main, broken = found.main, None
        if main in found.roles["kernel"]:
            broken = Problem(FindingKind.CORRUPT, f"{main} is a directory in place of a file", paths=(main,))
        elif main and not item.seen[main].st_size:
            broken = Problem(FindingKind.TRUNCATED, f"{main} is empty")
        elif main.endswith(".bc") and not found.is_large(main):
            try:
                return replace(found, module=bitcode.read_module(found.read(main)))
            except CutError as error:
                broken = Problem(FindingKind.TRUNCATED, f"{main} is cut: {error}")
            except FormatError as error:
                broken = Problem(FindingKind.CORRUPT, f"{main} is damaged: {error}")
            except PermissionError:
                return found
        return replace(found, broken=broken)

    @property
    def main(self) -> str:
        """The program's file in the form that PoCL takes first, or a directory in its place; else empty."""
        there = (*self.roles["program"], *self.roles["kernel"])
        return next((name for name in _PROGRAMS if name in there), "")

    @property
    def accessed_ns(self) -> int:
        """The time when PoCL last built the program or found it built."""
        return self.files.seen[_ACCESSED if self.roles["accessed"] else HERE].st_mtime_ns

    @property
    def identity(self) -> tuple[Identity | None, int]:
        """A value that changes when PoCL builds the program again or finds it built."""
        return (Identity.of(self.files.seen[self.main]) if self.main else None), self.accessed_ns

    @property
    def variants(self) -> tuple[Variant, ...]:
        places = (one.split("/") for one in (*self.roles["binary"], *self.roles["device"]))
        found = (variant_of(*one[:2]) for one in places if len(one) == 3)
        return tuple(dict.fromkeys(variant for variant in found if variant))

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the kernels' directories, clipped as PoCL clips them."""
        return tuple(name for name in self.roles["kernel"] if name not in _PROGRAMS)

    @property
    def unknown(self) -> list[str]:
        """The kernels' directories that the program's bitcode does not name, if it names kernels."""
        known = self.module.kernels if self.module else ()
        return [one for one in self.folders if known and not any(is_called(one, name) for name in known)]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the program's kernels: from its bitcode, else the compiled ones."""
        found = (self.module and self.module.kernels) or map(short, self.folders)
        return tuple(printable(name) for name in found)

    @property
    def triple(self) -> str:
        """LLVM's name of the target it is compiled for; empty if it has none."""
        return self.module.triple if self.module else ""

    @property
    def llvm(self) -> str:
        """The version of LLVM that made it, such as ``15.0.6``; empty if unknown."""
        return self.module.producer.removeprefix("LLVM") if self.module else ""

    @property
    def stays(self) -> str:
        """Why its directory is not removed, as a clause; empty if PoCL made everything in it."""
        strange = (*self.roles[STRANGER], *self.roles[LINK])
        if strange:
            return f"its directory contains {printable(strange[0])}, which is not PoCL's; move that elsewhere"
        return "" if self.files.complete else "its directory has too many files to check; remove it yourself"

    def fields(self) -> Iterator[tuple[str, str]]:
        yield from (("kernel", kernel) for kernel in self.kernels[:_SHOWN])
        for variant in self.variants[:_SHOWN]:
            yield "work-group variant", f"{printable(short(variant.kernel))} {variant.words}"
        yield from (pair for pair in (("LLVM", self.llvm), ("target triple", self.triple)) if pair[1])

    def read(self, name: str) -> bytes:
        """A file of it; raises OSError, FormatError."""
        return self.files.read(name, _READ_BYTES)

    def is_large(self, name: str) -> bool:
        return self.files.seen[name].st_size > _READ_BYTES

    # Problems.

    def damage(self) -> Iterator[Problem]:
        """The problem of the program itself; raises OSError."""
        main = self.main
        if self.broken is not None:
            yield self.broken._replace(detail=f"{self.broken.detail}; {_NO_PROGRAM}")
        elif main and not self.is_large(main) and not main.endswith(".mlir"):  # which is text
            info = describe(self.read(main), inside=1)
            expected = PayloadKind.SPIRV if self.module is None else PayloadKind.LLVM_BITCODE
            if wrong := info.problem or (f"it is {info.kind}" if info.kind is not expected else ""):
                yield Problem(FindingKind.CORRUPT, f"{main} is damaged: {wrong}; {_NO_PROGRAM}")
            elif self.folders and len(self.unknown) == len(self.folders):
                what = f"{main} has none of its compiled kernels, so it is another program's"
                yield Problem(FindingKind.MISLABELLED, f"{what}; {_NO_PROGRAM}")

    def check(self, old_ns: int) -> Iterator[Problem]:
        """The problems of, and notes on, everything in its directory; raises OSError."""
        yield from self.damage()
        for name in self.roles["binary"]:
            if not self.is_large(name) and (wrong := self._binary(name)):
                yield Problem(wrong[0], f"{printable(name)} {wrong[1]}; {_NO_KERNEL}", paths=(name,))
        for name in self.roles[STRANGER]:
            is_folder = stat.S_ISDIR(self.files.seen[name].st_mode)
            if is_folder and LAYOUT.role(name, folder=False) in ("binary", "device"):
                detail = f"{printable(name)} is a directory in place of a file; {_NO_KERNEL}"
                yield Problem(FindingKind.CORRUPT, detail, paths=(name,))
            else:
                detail = f"{printable(name)} in its directory is not PoCL's; keep it elsewhere"
                yield Problem(FindingKind.LEFTOVER, detail, paths=())
        seen = self.files.seen
        if old := tuple(one for one in self.roles["temporary"] if seen[one].st_mtime_ns < old_ns):
            size = format_size(sum(seen[one].st_size for one in old))
            detail = f"files of PoCL's compiler that no launch needs: {len(old)} ({size})"
            yield Problem(FindingKind.LEFTOVER, detail, paths=old)

    def _binary(self, name: str) -> tuple[FindingKind, str] | None:
        """Why a file is not the machine code of its kernel, to follow its name; None if it is."""
        data, kernel = self.read(name), name.partition("/")[0]
        info = describe(data)
        loadable = info.kind is PayloadKind.ELF and info.problem and elf.is_loadable(data)
        if data.startswith(_MACH_O) or loadable:
            return None
        try:
            if not data or info.kind is not PayloadKind.ELF or info.problem:
                raise FormatError(info.problem or (info.kind.value if data else "empty"))
            library = elf.read_exports(data)
        except FormatError as error:
            kind = FindingKind.TRUNCATED if not data or elf.is_cut(data) else FindingKind.CORRUPT
            return kind, f"is not a whole library ({error})"
        held = sorted(match[1] for match in map(_SYMBOL.fullmatch, library.symbols) if match)
        if not any(is_called(kernel, one) for one in held):
            what = f"kernel {printable(held[0])}" if held else "no kernel"
            return FindingKind.MISLABELLED, f"contains {what} instead of {printable(short(kernel))}"
        others = self.module and _MACHINES.get(self.triple.partition("-")[0]) not in (None, library.machine)
        made = library.compilers and _VERSION.fullmatch(self.llvm) and self.llvm not in library.compilers
        if others or made:
            by = f"by clang {library.compilers[0]}" if made else "for another machine"
            return FindingKind.MISLABELLED, f"was made {by}, unlike its program"
        return None


class Pocl(PoclPlaces, Format):
    """Caches of PoCL's CPU and other devices. PoCL bounds none and never evicts."""

    layout = LAYOUT
    barred_by_links = False
    wanted = {
        "kernel": "the name of a kernel; may be repeated",
        "local-size": "a local size that it is launched with, such as 64x1x1; may be repeated",
        "llvm": "the version of LLVM in PoCL's platform version, such as 15.0.6",
    }
    decides = "local size"
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
        kernels = tuple(name.encode() for name in islice(kernel_names(request.program.source), _ASKED))
        sizes = tuple("x".join(map(str, (*size, 1, 1)[:3])).encode() for size in request.local_sizes)
        return {name: values for name, values in (("kernel", kernels), ("local-size", sizes)) if values}

    @classmethod
    def whose(cls, path: Path) -> Whose:
        found = cls.layout.whose(path)
        named = found is Whose.UNKNOWN and path.parts[-2:] == (cls.name, "kcache")
        return Whose.OWN if named else found

    # Entries.

    def items(self, prefix: str) -> Iterator[Files]:
        """The directories of programs, and of failed builds, for which ``look`` returns None."""
        return super().items(prefix.lower())

    def look(self, item: Files) -> CacheEntry | None:
        found = ProgramFolder.of(item)
        if not found.main:
            return None
        sizes, kernels = dict.fromkeys(one.local_size or "any" for one in found.variants), found.kernels
        more = f" and {len(kernels) - 1} more" if kernels[1:] else ""
        return self.entry(item)._replace(
            program=f"{kernels[0]}{more}" if kernels else "a program without kernels",
            target=f"{self.name}:{found.triple}" if found.triple else self.name,
            artifact_kind=_PROGRAMS[found.main],
            variant=f"local size {', '.join(list(sizes)[:_SHOWN])}" if sizes else "",
            fields=tuple(found.fields()),
            damage=found.broken,
            created_ns=item.seen[found.main].st_mtime_ns,
            last_used_ns=found.accessed_ns,
            toolchain=(("LLVM", found.llvm),) if found.llvm else (),
        )

    def stays(self, item: Files) -> str:
        return ProgramFolder(item, LAYOUT.roles(item)).stays

    def trust(self, item: Files) -> Iterator[Problem]:
        now = item.again()
        roles = LAYOUT.roles(now)
        for name in roles[LINK]:
            detail = f"{printable(name)} is a link, which PoCL follows and gpucache does not; remove it"
            # A kernel's directory may have any name, so a link in its place may belong to another program.
            named = LAYOUT.role(name, folder=False) != STRANGER or LAYOUT.role(name, folder=True) == "variant"
            yield Problem(FindingKind.UNTRUSTED, detail, paths=(name,) if named else ())
        own = (HERE, *(name for role in _TRUSTED for name in roles[role]))
        found = super().trust(now._replace(seen={name: now.seen[name] for name in own}))
        yield from (one._replace(detail=printable(one.detail, None), paths=()) for one in found)

    def check(self, item: Files) -> Iterator[Problem]:
        return self._now(item).check(self.now_ns() - HOUR_NS)

    def unsound(self, item: Files) -> Problem | None:
        return next(self._now(item).damage(), None)

    def notes(self, item: Files) -> Iterator[str]:
        if not item.complete:
            yield (
                f"it has more than {MOST_FILES} files, or not all of its directories could be read, so the "
                "rest was not checked"
            )
        if large := next((name for name in item.names if item.seen[name].st_size > _READ_BYTES), ""):
            yield f"{printable(large)} has {format_size(item.seen[large].st_size)} and was not read"

    def payload(self, item: Files) -> bytes:
        found = self._now(item)
        return found.read(found.main)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if (found := ProgramFolder.of(item)).broken:
            raise FormatError(f"{entry.path} cannot be read: {found.broken}; run 'gpucache verify'")
        yield "inputs", "PoCL stores no source, no options and no build time of its own"
        if found.module and found.module.source:
            yield "compiled from", found.module.source

    def log(self, item: Files) -> str:
        data = item.part(_LOG, 0, _LOG_BYTES) if LAYOUT.roles(item)["log"] else b""
        return data.decode("utf-8", "replace")

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
                yield compared(self, {**llvm, "kernel": kernel, **launch})

    def stored(self, entry: CacheEntry, asked: Mapping[str, str]) -> Mapping[str, Sequence[str] | None]:
        found = ProgramFolder.of(cast("Files", entry.handle))
        known = (*(found.module.kernels if found.module else ()), *found.folders)
        launches = [f"{short(one.kernel)} {one.local_size or 'any local size'}" for one in found.variants]
        return {"kernel": known, "local size": launches, "LLVM": [found.llvm]}

    def _now(self, item: Files) -> ProgramFolder:
        """A program as it is now; raises OSError, FileNotFoundError if it is gone."""
        found = ProgramFolder.of(item.again())
        if not found.main:
            raise FileNotFoundError(errno.ENOENT, "it is gone")
        return found

    # Removal.

    def unchanged(self, item: Files) -> bool:
        """Whether the program is as the scan saw it, and PoCL has not found it built since."""
        return self._same(item) is not None

    def _same(self, item: Files) -> ProgramFolder | None:
        """The program as it is now; None if it was replaced or used since the scan."""
        now = item.again()
        found, before = ProgramFolder(now, LAYOUT.roles(now)), ProgramFolder(item, LAYOUT.roles(item))
        return found if found.main and found.identity == before.identity else None

    def remove(self, item: Files) -> Kept | None:
        found = self._same(item)
        busy = found is not None and abs(self.now_ns() - found.accessed_ns) < _BUSY_NS
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
        return (pair for pair in look.fields if pair[0] in ("LLVM", "target triple"))

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """PoCL's files without the leftovers of its compiler; the program is first, as PoCL takes kernels
        from anyone who built the same program, and compiles those that are missing."""
        found = {one.name: one for one in super().files_to_move(item)}
        roles, above = LAYOUT.roles(item), "/".join(item.parts)
        return [found[f"{above}/{name}"] for role in _MOVED for name in roles[role]]

    # Leftovers, and the whole cache.

    def beside(self) -> Iterator[Checked]:
        yield from super().beside()
        for item in self.layout.items(self.root):
            found = ProgramFolder(item, LAYOUT.roles(item))
            if not found.main and found.stays:
                yield self.told(item.path, Problem(FindingKind.LEFTOVER, found.stays))
        if old := list(self._old()):
            size = format_size(sum(size for _, size in old))
            what = "of every start and of builds that failed or were stopped"
            problem = Problem(FindingKind.LEFTOVER, f"files and directories {what}: {len(old)} ({size})")
            yield self.told(self.root / _LEFT, problem)

    def clear(self, checked: Checked) -> Checked:
        if checked.entry != str(self.root / _LEFT):
            return super().clear(checked)
        try:
            gone = [self._gone(parts) for parts, _ in list(self._old())]
        except (OSError, FormatError):
            return checked
        return checked.fixed() if gone and all(gone) else checked

    def _old(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The place and size on disk of each leftover that no program can have in use."""
        for item in self.layout.items(self.root):
            found, newest = (
                ProgramFolder(item, LAYOUT.roles(item)),
                max(one.st_mtime_ns for one in item.seen.values()),
            )
            if not found.main and not found.stays and newest < self.now_ns() - HOUR_NS:
                yield item.parts, item.size_bytes
        for node in self._nodes():
            if node.role is Role.LEFT and self._is_old(node) and self._is_left(node):
                yield node.parts, files.allocated_bytes(node.status)

    def _gone(self, parts: Sequence[str]) -> bool:
        """Remove a leftover; returns whether it is gone."""
        with suppress(FileNotFoundError), files.open_folder(self.root) as top:
            if len(parts) > 1:
                return not self._take_out(parts)
            if stat.S_ISDIR(top.lstat(parts[0]).st_mode):
                return not _delete(top, parts[0])
            top.unlink(parts[0])
        return True

    def _beside(self, node: Node) -> Problem | None:
        return None if node.role is Role.LEFT else super()._beside(node)

    def _is_left(self, node: Node) -> bool:
        """Whether something in the root with PoCL's temporary name has such content.

        People's names may end in six letters too. PoCL's are: an empty file, one that begins as a compiled or
        preprocessed one, a source with the word for a kernel in any case, as macros have it, and a directory
        with PoCL's names alone. Raises nothing.
        """
        name = node.parts[-1]
        try:
            with files.open_folder(self.root) as top:
                if stat.S_ISDIR(node.status.st_mode):
                    with top.folder(name) as folder:
                        return not _read(folder).stays
                start = files.read_part(top, name, 0, _TEMPORARY_BYTES)
        except (OSError, FormatError):
            return False
        source = name.endswith(".cl") and b"kernel" in start.lower()
        return not start or start.startswith(_MADE) or source


def _read(folder: Folder) -> ProgramFolder:
    """The names in a program's open directory now; raises OSError."""
    item = files.tree(folder, folder.path, (), "")
    return ProgramFolder(item, LAYOUT.roles(item))


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
