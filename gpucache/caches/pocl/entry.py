"""A program's directory in PoCL's cache: the names in it, their meaning, and the problems of its files.

Source: PoCL, lib/CL/pocl_cache.c (``build_program_compute_hash``, ``pocl_cache_kernel_cachedir_path``,
``pocl_hash_clipped_name``) and lib/CL/pocl_file_util.c (``pocl_mk_tempname``, ``pocl_mk_tempdir``). PoCL
keeps no checksum and no inputs. So a kernel of the same name from another program of the same compiler
looks like the right one, as does a changed byte within bitcode or code. Must change nothing."""

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpucache import payload as payloads
from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import places
from gpucache.caches.files import HERE, MOST_FILES, Files, Identity
from gpucache.caches.layout import LINK, STRANGER, Layout
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, bitcode, elf
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError
from gpucache.units import format_size, printable

PROGRAMS = ("program.bc", "program.spv", "program.mlir")
"""The form of a stored program: LLVM bitcode, in newer PoCL SPIR-V or MLIR; the first that exists counts."""
KINDS = dict(zip(PROGRAMS, ("llvm-bitcode", "spir-v", "mlir"), strict=True))
LOG, ACCESSED = "build.log", "last_accessed"
SHOWN = 32
"""How many kernels and variants of one program are listed."""
MINIMUM_AGE_NS = 600 * 10**9
"""Younger temporary files may be in use, as PoCL has no locks that would show it."""
READ_LIMIT_BYTES = 256 << 20
_SIZES = r"[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}(?:-goffs0)?(?:-smallgrid)?"
LAYOUT = Layout(
    "([A-P]{2})/([A-P]{37,38})/",
    key=lambda pair: key_of(*pair),
    inside=(
        ("temporary", r"(?:.+/)?[^/]+_[A-Za-z0-9]{6}\.temp"),
        ("program", r"program\.(?:bc|spv|mlir)"),
        ("log", r"build\.log"),
        ("accessed", ACCESSED),
        ("kernel", "[^/]+/"),
        ("variant", f"[^/]+/{_SIZES}/"),
        ("binary", rf"([^/]+)/{_SIZES}/\1\.(?:so|o)"),
        # Kept by POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES=1, and not used by PoCL.
        ("intermediate", rf"([^/]+)/{_SIZES}/(?:parallel\.bc|\1\.so\.o)"),
        # Files of devices other than the CPU for a kernel.
        ("device", rf"[^/]+/descriptor\.[^/]*|([^/]+)/{_SIZES}/(?:parallel\.bc|\1)\.[^/]*"),
    ),
)
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
_FOLDER = "is a directory in place of a file"
_NO_KERNEL = "a program that launches it dies, at every start; PoCL never replaces it"


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel compiled for one local size, and sometimes for particular launches alone."""

    kernel: str
    local_size: str
    """Such as ``64x1x1``; empty for the generic one, which takes every local size."""
    zero_offset: bool
    small_grid: bool

    @property
    def words(self) -> str:
        """The launches it is for."""
        limits = ["global offset 0"] * self.zero_offset + ["small grids"] * self.small_grid
        size = self.local_size or "any local size"
        return f"{size} ({', '.join(limits)} only)" if limits else size


def key_of(pair: str, rest: str) -> str:
    """A program's SHA-1 as hex, from the names of its directories.

    PoCL writes each byte as two letters, the low half first, and then puts the ``/`` over the third
    letter. So the fourth hex digit is on no disk; the key is the other 39, in their order.
    """
    letters = pair + (_LOST if len(rest) == 37 else "") + rest
    swapped = (letters[index ^ 1] for index in range(len(letters)))
    return "".join(f"{ord(letter) - ord('A'):x}" for letter in swapped if letter != _LOST)


def letters_of(digest: bytes) -> str:
    """A digest as PoCL writes it."""
    return "".join(chr(half + ord("A")) for byte in digest for half in (byte & 15, byte >> 4))


def variant_of(kernel: str, name: str) -> Variant | None:
    """The meaning of a directory below a kernel's; None for another name."""
    match = _VARIANT.fullmatch(name)
    if match is None:
        return None
    sizes = [str(int(text)) for text in match.group(1, 2, 3)]
    size = "" if sizes == ["0", "0", "0"] else "x".join(sizes)
    return Variant(kernel, size, match[4] is not None, match[5] is not None)


def is_called(folder: str, kernel: str) -> bool:
    """Whether a directory is a kernel's: its name, or for a long name its beginning and SHA-1."""
    if folder == kernel:
        return True
    clipped = _CLIPPED.fullmatch(folder)
    if clipped is None or not kernel.startswith(clipped[1]):
        return False
    raw = kernel.encode("utf-8", "surrogateescape")
    return letters_of(hashlib.sha1(raw, usedforsecurity=False).digest()) == clipped[2]


def short(folder: str) -> str:
    """A kernel's readable name from its directory's: without the digest if it was clipped."""
    clipped = _CLIPPED.fullmatch(folder)
    return f"{clipped[1]}…" if clipped else folder


@dataclass(frozen=True, slots=True)
class Program:
    """A program's directory, and its bitcode if it can be parsed."""

    files: Files
    roles: Mapping[str, Sequence[str]]
    module: Module | None = None
    """None if it is not bitcode, or cannot be read now."""
    broken: Problem | None = None

    @classmethod
    def of(cls, item: Files) -> "Program":
        """A program as its files were seen, with the facts that its bitcode gives now."""
        found = cls(item, LAYOUT.roles(item))
        main = found.main
        if main in found.roles["kernel"]:
            return cls(
                item, found.roles, broken=Problem(FindingKind.CORRUPT, f"{main} {_FOLDER}", paths=(main,))
            )
        size = item.seen[main].st_size if main else 0
        if main and not size:
            return cls(item, found.roles, broken=Problem(FindingKind.TRUNCATED, f"{main} is empty"))
        if main != PROGRAMS[0] or size > READ_LIMIT_BYTES:
            return found
        try:
            return cls(item, found.roles, bitcode.read_module(found.read(main)))
        except CutError as error:
            broken = Problem(FindingKind.TRUNCATED, f"{main} is cut: {error}")
        except FormatError as error:
            broken = Problem(FindingKind.CORRUPT, f"{main} is damaged: {error}")
        except OSError:
            return found
        return cls(item, found.roles, broken=broken)

    @property
    def main(self) -> str:
        """The program's file in the form that PoCL takes first, or a directory in its place; else empty."""
        there = (*self.roles["program"], *self.roles["kernel"])
        return next((name for name in PROGRAMS if name in there), "")

    @property
    def compiled(self) -> Sequence[str]:
        """The compiled kernels' files."""
        return (*self.roles["binary"], *self.roles["device"])

    @property
    def accessed_ns(self) -> int:
        """When PoCL last built it or found it built."""
        return self.files.seen[ACCESSED if self.roles["accessed"] else HERE].st_mtime_ns

    @property
    def identity(self) -> tuple[Identity | None, int]:
        """Changes when PoCL builds it anew or finds it built."""
        return (Identity.of(self.files.seen[self.main]) if self.main else None), self.accessed_ns

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that kernels were compiled for."""
        places = (name.split("/") for name in self.compiled if name.count("/") == 2)
        found = (variant_of(kernel, size) for kernel, size, _ in places)
        return tuple(dict.fromkeys(variant for variant in found if variant))

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the kernels' directories, clipped as PoCL clips them."""
        return tuple(name for name in self.roles["kernel"] if name not in PROGRAMS)

    @property
    def unknown(self) -> list[str]:
        """The kernels' directories whose names its bitcode does not have, if that has any."""
        known = self.module.kernels if self.module else ()
        return [one for one in self.folders if known and not any(is_called(one, name) for name in known)]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the program's kernels: from its bitcode, else the compiled ones."""
        found = (self.module and self.module.kernels) or map(short, self.folders)
        return tuple(printable(name) for name in found)

    @property
    def title(self) -> str:
        """The name people know it by."""
        kernels = self.kernels
        if len(kernels) < 2:
            return kernels[0] if kernels else "a program without kernels"
        return f"{kernels[0]} and {len(kernels) - 1} more"

    @property
    def triple(self) -> str:
        """The target it is compiled for; empty if it does not say."""
        return self.module.triple if self.module else ""

    @property
    def llvm(self) -> str:
        """The LLVM that made it, such as ``15.0.6``; empty if unknown."""
        return self.module.producer.removeprefix("LLVM") if self.module else ""

    @property
    def stays(self) -> str:
        """Why its directory is not removed, as a clause; empty if PoCL made everything in it."""
        strange = (*self.roles[STRANGER], *self.roles[LINK])
        if strange:
            return f"its directory contains {printable(strange[0])}, which is not PoCL's; move that elsewhere"
        return "" if self.files.complete else "its directory has too many files to check; remove it yourself"

    def fields(self) -> Iterator[tuple[str, str]]:
        """The known facts about its inputs, by label."""
        for kernel in self.kernels[:SHOWN]:
            yield "kernel", kernel
        for variant in self.variants[:SHOWN]:
            yield "work-group variant", f"{printable(short(variant.kernel))} {variant.words}"
        yield from (
            (label, value) for label, value in (("LLVM", self.llvm), ("target triple", self.triple)) if value
        )

    def read(self, name: str) -> bytes:
        """A file of it; raises OSError, FormatError."""
        return self.files.read(name, READ_LIMIT_BYTES)

    def is_large(self, name: str) -> bool:
        """Whether a file is too large to be read."""
        return self.files.seen[name].st_size > READ_LIMIT_BYTES

    # Problems.

    def trust(self) -> Iterator[Problem]:
        """Files that others own or can write to, and links."""
        if why := places.distrust(self.files.seen[HERE], move="remove it"):
            yield Problem(FindingKind.UNTRUSTED, f"its directory is not trustworthy: {why}", paths=())
        for name in self.roles[LINK]:
            detail = f"{printable(name)} is a link, which PoCL follows and gpucache does not; remove it"
            # A kernel's directory may have any name, so a link in its place may belong to another program.
            named = LAYOUT.role(name, folder=False) != STRANGER or LAYOUT.role(name, folder=True) == "variant"
            yield Problem(FindingKind.UNTRUSTED, detail, paths=(name,) if named else ())
        for role in ("program", "kernel", "variant", "binary", "device"):
            for name in self.roles[role]:
                if why := places.distrust(self.files.seen[name], move="remove it"):
                    yield Problem(FindingKind.UNTRUSTED, f"{printable(name)}: {why}", paths=())

    def damage(self) -> Iterator[Problem]:
        """The problem of the program itself; raises OSError."""
        main = self.main
        if self.broken is not None:
            yield self.broken._replace(detail=f"{self.broken.detail}; {_NO_PROGRAM}")
        elif main and not self.is_large(main) and main != PROGRAMS[2]:  # which is text
            info = payloads.describe(self.read(main), inside=1)
            expected = PayloadKind.SPIRV if self.module is None else PayloadKind.LLVM_BITCODE
            if wrong := info.problem or (f"it is {info.kind}" if info.kind is not expected else ""):
                yield Problem(FindingKind.CORRUPT, f"{main} is damaged: {wrong}; {_NO_PROGRAM}")
            elif self.folders and len(self.unknown) == len(self.folders):
                what = (
                    f"{main} has none of the kernels that were compiled from it, so it is another program's"
                )
                yield Problem(FindingKind.MISLABELLED, f"{what}; {_NO_PROGRAM}")

    def check(self, now_ns: int) -> Iterator[Problem]:
        """The problems of, and notes on, everything in its directory; raises OSError."""
        yield from self.damage()
        for name in self.roles["binary"]:
            if not self.is_large(name) and (wrong := self._binary(name)):
                kind, detail = wrong
                yield Problem(kind, f"{printable(name)} {detail}", paths=(name,))
        folders = (one for one in self.roles[STRANGER] if stat.S_ISDIR(self.files.seen[one].st_mode))
        # In place of a kernel's machine code.
        blocking = [one for one in folders if LAYOUT.role(one, folder=False) in ("binary", "device")]
        for name in blocking:
            yield Problem(FindingKind.CORRUPT, f"{printable(name)} {_FOLDER}; {_NO_KERNEL}", paths=(name,))
        if strange := [one for one in self.roles[STRANGER] if one not in blocking]:
            more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
            detail = f"{printable(strange[0])}{more} in its directory is not PoCL's; keep it elsewhere"
            yield Problem(FindingKind.LEFTOVER, detail, paths=())
        for folder in self.unknown if len(self.unknown) < len(self.folders) else ():
            detail = f"{printable(folder)} is not the name of a kernel of {PROGRAMS[0]}, so no launch uses it"
            yield Problem(FindingKind.ORPHAN, detail, paths=())
        if old := self.aged("temporary", now_ns):
            detail = f"temporary files of writers that died: {len(old)}, such as {printable(old[0])}"
            yield Problem(FindingKind.LEFTOVER, detail, paths=old)
        if old := self.aged("intermediate", now_ns):
            size = format_size(sum(self.files.seen[name].st_size for name in old))
            what = "intermediate files that POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES keeps and no launch needs"
            yield Problem(FindingKind.LEFTOVER, f"{what}: {len(old)} ({size})", paths=old)

    def notes(self, now_ns: int) -> Iterator[str]:
        """The parts that could not be checked."""
        if not self.files.complete:
            yield (
                f"it has more than {MOST_FILES} files, and the rest was not checked"
                if len(self.files.seen) > MOST_FILES
                else "not all of its directories could be read, so their contents were not checked"
            )
        large = next(filter(self.is_large, self.files.names), "")
        if large:
            yield f"{printable(large)} has {format_size(self.files.seen[large].st_size)} and was not read"
        if young := len(self.roles["temporary"]) - len(self.aged("temporary", now_ns)):
            yield f"temporary files in it that are younger than 10 minutes and left alone: {young}"

    def aged(self, role: str, now_ns: int) -> tuple[str, ...]:
        """The files of a role that are no longer in use."""
        seen = self.files.seen
        return tuple(one for one in self.roles[role] if now_ns - seen[one].st_mtime_ns > MINIMUM_AGE_NS)

    def _binary(self, name: str) -> tuple[FindingKind, str] | None:
        data = self.read(name)
        info = payloads.describe(data)
        if data.startswith(_MACH_O) or (
            info.kind is PayloadKind.ELF and info.problem and elf.is_loadable(data)
        ):
            return None
        kind = FindingKind.TRUNCATED if not data or elf.is_cut(data) else FindingKind.CORRUPT
        if not data or info.kind is not PayloadKind.ELF or info.problem:
            what = info.problem or (info.kind.value if data else "empty")
            return kind, f"is not a whole library ({what}); {_NO_KERNEL}"
        try:
            library = elf.read_exports(data)
        except FormatError as error:
            return FindingKind.CORRUPT, f"is not a whole library ({error}); {_NO_KERNEL}"
        mistaken = self._mistaken(name.partition("/")[0], library)
        return (FindingKind.MISLABELLED, mistaken) if mistaken else None

    def _mistaken(self, kernel: str, library: elf.Exports) -> str:
        """How a sound ELF file differs from the expected one; empty if it does not."""
        held = sorted(match[1] for match in map(_SYMBOL.fullmatch, library.symbols) if match)
        if not any(is_called(kernel, one) for one in held):
            what = f"kernel {printable(held[0])}" if held else "no kernel"
            return f"contains {what} instead of {printable(short(kernel))}; {_NO_KERNEL}"
        others = self.module and _MACHINES.get(self.triple.partition("-")[0]) not in (None, library.machine)
        made = library.compilers and _VERSION.fullmatch(self.llvm) and self.llvm not in library.compilers
        if others or made:
            by = f"by clang {library.compilers[0]}" if made else "for another machine"
            return f"was made {by}, unlike its program, so it is another PoCL's; its results may be wrong"
        return ""
