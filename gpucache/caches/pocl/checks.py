"""Whether a program is what its folder says, file by file.

PoCL keeps no checksum and no inputs. So a kernel of the same name from another program of the same compiler
cannot be told from the right one, nor a byte that was changed within bitcode or code. Must change nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from gpucache import payload as payloads
from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import places
from gpucache.caches.files import MOST_FILES
from gpucache.caches.pocl import names
from gpucache.caches.pocl.program import READ_LIMIT_BYTES, Program
from gpucache.caches.pocl.tree import Item, Role, Tree, is_named_by_pocl
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, elf
from gpucache.units import format_size, printable

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
class Fault:
    """A problem of a program's folder, and which files mend it when they are removed."""

    kind: FindingKind
    detail: str
    mend: Mend = Mend.NONE
    items: tuple[Item, ...] = ()

    @property
    def problem(self) -> Problem:
        """The problem alone."""
        paths = tuple(item.place for item in self.items) if self.mend is Mend.FILE else ()
        return Problem(self.kind, self.detail, paths=None if self.mend is Mend.PROGRAM else paths)


def contents(subject: Program, now_ns: int) -> Iterator[Fault]:
    """What is wrong with, or worth knowing of, what the folder holds; raises OSError."""
    yield from program(subject)
    for item in subject.tree.of(Role.BINARY):
        yield from _binary(subject, item)
    yield from _strangers(subject)
    yield from _left(subject.tree, now_ns)


def notes(tree: Tree, now_ns: int) -> Iterator[str]:
    """What could not be told."""
    if not tree.complete:
        yield (
            f"it holds more than {MOST_FILES} files, and the rest was not looked at"
            if len(tree.items) >= MOST_FILES
            else "not all of its folders could be read, so what those hold was not looked at"
        )
    large = [item for item in tree.items if item.status.st_size > READ_LIMIT_BYTES]
    for item in large[:1]:
        yield f"{printable(item.place)} has {format_size(item.status.st_size)} and was not read"
    young = [item for item in tree.of(Role.TEMPORARY) if not _old(item, now_ns)]
    if young:
        yield f"temporary files in it that are younger than 10 minutes and left alone: {len(young)}"


def trust(tree: Tree) -> Iterator[Fault]:
    """What others own or may write to, and links."""
    why = places.distrust(tree.status, move="remove it")
    if why:
        yield Fault(FindingKind.UNTRUSTED, f"its folder cannot be believed: {why}")
    for item in tree.items:
        if item.role is Role.LINK:
            detail = f"{printable(item.place)} is a link, which PoCL follows and gpucache does not; remove it"
            if is_named_by_pocl(item.parts):
                yield Fault(FindingKind.UNTRUSTED, detail, Mend.FILE, (item,))
            else:
                yield Fault(FindingKind.UNTRUSTED, detail)
        elif item.role in (Role.PROGRAM, Role.FOLDER, Role.BINARY, Role.DEVICE):
            why = places.distrust(item.status, move="remove it")
            if why:
                yield Fault(FindingKind.UNTRUSTED, f"{printable(item.place)}: {why}")


def program(subject: Program) -> Iterator[Fault]:
    """What is wrong with the program itself; raises OSError."""
    if (broken := subject.broken) is not None and broken.kind is not None:
        yield Fault(broken.kind, f"{broken.detail}; {_NO_PROGRAM}", Mend.PROGRAM)
        return
    program = subject.tree.program
    if program is None or program.status.st_size > READ_LIMIT_BYTES:
        return
    if program.parts[0] == names.PROGRAMS[2]:  # text
        return
    info = payloads.describe(subject.read(program))
    expected = PayloadKind.SPIRV if subject.module is None else PayloadKind.LLVM_BITCODE
    wrong = info.problem or (f"it is {info.kind}" if info.kind is not expected else "")
    if wrong:
        yield Fault(FindingKind.CORRUPT, f"{program.place} is damaged: {wrong}; {_NO_PROGRAM}", Mend.PROGRAM)


def _binary(subject: Program, item: Item) -> Iterator[Fault]:
    if item.status.st_size > READ_LIMIT_BYTES:
        return
    place = printable(item.place)
    data = subject.read(item)
    if data.startswith(_MACH_O):
        return
    kind, wrong = _damage(data)
    if wrong:
        yield Fault(kind, f"{place} {wrong}; {_NO_KERNEL}", Mend.FILE, (item,))
        return
    try:
        library = elf.read_exports(data)
    except FormatError as error:
        yield Fault(FindingKind.CORRUPT, f"{place} is damaged: {error}; {_NO_KERNEL}", Mend.FILE, (item,))
        return
    mistaken = next(_mistaken(subject, item, library), "")
    if mistaken:
        yield Fault(FindingKind.MISLABELLED, f"{place} {mistaken}", Mend.FILE, (item,))


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


def _mistaken(subject: Program, item: Item, library: elf.Exports) -> Iterator[str]:
    """In what an ELF file that is sound is not the one that belongs here."""
    kernel = item.parts[0]
    held = sorted(found for found in map(names.kernel_of, library.symbols) if found)
    if not any(names.is_called(kernel, one) for one in held):
        what = f"kernel {printable(held[0])}" if held else "no kernel"
        yield f"holds {what} where {printable(names.short(kernel))} is expected; {_NO_KERNEL}"
    module = subject.module
    if module is None:
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


def _strangers(subject: Program) -> Iterator[Fault]:
    tree, module = subject.tree, subject.module
    foreign = tree.of(Role.FOREIGN)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        yield Fault(
            FindingKind.LEFTOVER,
            f"{printable(foreign[0].place)}{more} in its folder is none of PoCL's; keep it elsewhere",
        )
    if module is None or not module.kernels:
        return
    for folder in tree.kernels:
        if not any(names.is_called(folder, kernel) for kernel in module.kernels):
            yield Fault(
                FindingKind.ORPHAN,
                f"{printable(folder)} is the name of no kernel of {names.PROGRAMS[0]}, "
                "so nothing asks for it",
            )


def _left(tree: Tree, now_ns: int) -> Iterator[Fault]:
    old = tuple(item for item in tree.of(Role.TEMPORARY) if _old(item, now_ns))
    if old:
        yield Fault(
            FindingKind.LEFTOVER,
            f"temporary files of writers that died: {len(old)}, such as {printable(old[0].place)}",
            Mend.FILE,
            old,
        )
    kept = tuple(item for item in tree.of(Role.INTERMEDIATE) if _old(item, now_ns))
    if kept:
        size = sum(item.status.st_size for item in kept)
        yield Fault(
            FindingKind.LEFTOVER,
            "intermediate files that POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES keeps and no launch needs: "
            f"{len(kept)} ({format_size(size)})",
            Mend.FILE,
            kept,
        )


def _old(item: Item, now_ns: int) -> bool:
    return now_ns - item.status.st_mtime_ns > MINIMUM_AGE_NS
