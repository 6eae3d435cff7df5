"""Whether a program is what its folder says, file by file.

PoCL keeps no checksum and no inputs. So a kernel of the same name from another program of the same compiler
cannot be told from the right one, nor a byte that was changed within bitcode or code. Must change nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from gpucache import payload as payloads
from gpucache.caches import places
from gpucache.caches.pocl import entries, names
from gpucache.caches.pocl.entries import Broken, shown
from gpucache.caches.pocl.tree import FILE_LIMIT, Item, Role, Tree, is_named_by_pocl
from gpucache.errors import FormatError
from gpucache.outcomes import FindingKind
from gpucache.payload import PayloadKind, elf
from gpucache.payload.bitcode import Module
from gpucache.units import format_size

MINIMUM_AGE_NS = 600 * 10**9
"""Younger temporary files may be in use."""
_MACHINES = {"x86_64": 62, "amd64": 62, "i386": 3, "i686": 3, "aarch64": 183, "arm64": 183, "riscv64": 243}
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_NO_PROGRAM = (
    "a program that builds it finds no kernel in it (CL_INVALID_KERNEL_NAME) or dies, at every start; "
    "PoCL never replaces it"
)
_NO_KERNEL = "a program that launches it dies, at every start; PoCL never replaces it"


class Mend(Enum):
    """What takes a problem out of the way."""

    NONE = auto()
    FILE = auto()
    """Removing that file, which PoCL then makes anew where it needs it."""
    PROGRAM = auto()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a program's folder, and where."""

    kind: FindingKind
    detail: str
    mend: Mend = Mend.NONE
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A program under examination."""

    root: Path
    pair: str
    rest: str
    tree: Tree
    module: Module | Broken | None

    def read(self, item: Item) -> bytes:
        """A file of it; raises OSError, FormatError."""
        return entries.read(self.root, (self.pair, self.rest, *item.parts))


def problems(subject: Subject, now_ns: int) -> Iterator[Problem]:
    """Everything that is wrong or worth knowing; raises OSError."""
    yield from _trust(subject.tree)
    yield from _program(subject)
    for item in subject.tree.of(Role.BINARY):
        yield from _binary(subject, item)
    yield from _strangers(subject)
    yield from _left(subject.tree, now_ns)


def notes(tree: Tree, now_ns: int) -> Iterator[str]:
    """What could not be told."""
    if not tree.complete:
        yield f"it holds more than {FILE_LIMIT} files, and the rest was not looked at"
    large = [item for item in tree.items if item.status.st_size > entries.READ_LIMIT_BYTES]
    for item in large[:1]:
        yield f"{shown(item.place)} has {format_size(item.status.st_size)} and was not read"
    young = [item for item in tree.of(Role.TEMPORARY) if not _old(item, now_ns)]
    if young:
        yield f"temporary files in it that are younger than 10 minutes and left alone: {len(young)}"


def _trust(tree: Tree) -> Iterator[Problem]:
    why = places.distrust(tree.status, move="remove it")
    if why:
        yield Problem(FindingKind.UNTRUSTED, f"its folder cannot be believed: {why}")
    for item in tree.items:
        if item.role is Role.LINK:
            detail = f"{shown(item.place)} is a link, which PoCL follows and gpucache does not; remove it"
            if is_named_by_pocl(item.parts):
                yield Problem(FindingKind.UNTRUSTED, detail, Mend.FILE, (item,))
            else:
                yield Problem(FindingKind.UNTRUSTED, detail)
        elif item.role in (Role.PROGRAM, Role.FOLDER, Role.BINARY, Role.DEVICE):
            why = places.distrust(item.status, move="remove it")
            if why:
                yield Problem(FindingKind.UNTRUSTED, f"{shown(item.place)}: {why}")


def _program(subject: Subject) -> Iterator[Problem]:
    read = subject.module
    if isinstance(read, Broken):
        yield Problem(read.kind, f"{read.detail}; {_NO_PROGRAM}", Mend.PROGRAM)
        return
    program = subject.tree.program
    if program is None or program.status.st_size > entries.READ_LIMIT_BYTES:
        return
    if program.parts[0] == names.PROGRAMS[2]:  # text
        return
    info = payloads.describe(subject.read(program))
    expected = PayloadKind.SPIRV if read is None else PayloadKind.LLVM_BITCODE
    wrong = info.problem or (f"it is {info.kind}" if info.kind is not expected else "")
    if wrong:
        yield Problem(
            FindingKind.CORRUPT, f"{program.place} is damaged: {wrong}; {_NO_PROGRAM}", Mend.PROGRAM
        )


def _binary(subject: Subject, item: Item) -> Iterator[Problem]:
    if item.status.st_size > entries.READ_LIMIT_BYTES:
        return
    place = shown(item.place)
    data = subject.read(item)
    if data.startswith(_MACH_O):
        return
    kind, wrong = _damage(data)
    if wrong:
        yield Problem(kind, f"{place} {wrong}; {_NO_KERNEL}", Mend.FILE, (item,))
        return
    try:
        library = elf.read_exports(data)
    except FormatError as error:
        yield Problem(FindingKind.CORRUPT, f"{place} is damaged: {error}; {_NO_KERNEL}", Mend.FILE, (item,))
        return
    mistaken = next(_mistaken(subject, item, library), "")
    if mistaken:
        yield Problem(FindingKind.MISLABELLED, f"{place} {mistaken}", Mend.FILE, (item,))


def _damage(data: bytes) -> tuple[FindingKind, str]:
    """Kind and words of what is wrong with an ELF file's structure; no words where nothing is."""
    if not data:
        return FindingKind.TRUNCATED, "is empty"
    info = payloads.describe(data)
    if info.kind is not PayloadKind.ELF:
        return FindingKind.CORRUPT, f"is no library but {info.kind}"
    if info.problem:
        kind = FindingKind.TRUNCATED if elf.is_cut(data) else FindingKind.CORRUPT
        return kind, f"is damaged: {info.problem}"
    return FindingKind.CORRUPT, ""


def _mistaken(subject: Subject, item: Item, library: elf.Exports) -> Iterator[str]:
    """In what an ELF file that is sound is not the one that belongs here."""
    kernel = item.parts[0]
    held = sorted(found for found in map(names.kernel_of, library.symbols) if found)
    if not any(names.is_called(kernel, one) for one in held):
        what = f"kernel {shown(held[0])}" if held else "no kernel"
        yield f"holds {what} where {shown(names.short(kernel))} is expected; {_NO_KERNEL}"
    module = subject.module
    if not isinstance(module, Module):
        return
    machine = _MACHINES.get(module.triple.partition("-")[0])
    if machine not in (None, library.machine):
        yield f"is for another machine than {module.triple}; {_NO_KERNEL}"
    llvm = module.producer.removeprefix("LLVM")
    if library.compilers and _is_version(llvm) and llvm not in library.compilers:
        yield (
            f"was made by clang {library.compilers[0]} and its program by {module.producer}, so it is "
            "another PoCL's; what it computes may be wrong"
        )


def _is_version(text: str) -> bool:
    return text.count(".") == 2 and text.replace(".", "").isdigit()


def _strangers(subject: Subject) -> Iterator[Problem]:
    tree, module = subject.tree, subject.module
    foreign = tree.of(Role.FOREIGN)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        yield Problem(
            FindingKind.LEFTOVER,
            f"{shown(foreign[0].place)}{more} in its folder is none of PoCL's; keep it elsewhere",
        )
    if not isinstance(module, Module) or not module.kernels:
        return
    for folder in tree.kernels:
        if not any(names.is_called(folder, kernel) for kernel in module.kernels):
            yield Problem(
                FindingKind.ORPHAN,
                f"{shown(folder)} is the name of no kernel of {names.PROGRAMS[0]}, so nothing asks for it",
            )


def _left(tree: Tree, now_ns: int) -> Iterator[Problem]:
    old = tuple(item for item in tree.of(Role.TEMPORARY) if _old(item, now_ns))
    if old:
        yield Problem(
            FindingKind.LEFTOVER,
            f"temporary files of writers that died: {len(old)}, such as {shown(old[0].place)}",
            Mend.FILE,
            old,
        )
    kept = tuple(item for item in tree.of(Role.INTERMEDIATE) if _old(item, now_ns))
    if kept:
        size = sum(item.status.st_size for item in kept)
        yield Problem(
            FindingKind.LEFTOVER,
            "intermediate files that POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES keeps and no launch needs: "
            f"{len(kept)} ({format_size(size)})",
            Mend.FILE,
            kept,
        )


def _old(item: Item, now_ns: int) -> bool:
    return now_ns - item.status.st_mtime_ns > MINIMUM_AGE_NS
