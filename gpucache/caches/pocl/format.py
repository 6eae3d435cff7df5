"""PoCL's kernel cache: a folder for each program, with its bitcode and its compiled kernels.

A program's folder is named by the SHA-1 of its preprocessed source, its options, and PoCL's version, build
time, LLVM and device; nothing of these is stored. PoCL keeps no checksum, has no limit, evicts nothing and
takes no locks; files come by renaming. Tried with PoCL 3.0 and 3.1; PoCL 7 keeps the same tree. Source: PoCL,
lib/CL/pocl_cache.c (where it lies: ``pocl_cache_init_topdir``) and lib/CL/pocl_runtime_config.c.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, EntryReport, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import Clock, Look
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout
from gpucache.caches.pocl import checks, explaining, leftovers, names, program, removal
from gpucache.caches.pocl.locations import PoclPlaces
from gpucache.caches.pocl.program import Program, stays
from gpucache.caches.pocl.tree import Role, tree_of
from gpucache.errors import FormatError
from gpucache.model import BuildRequest, KeyField, Toolchain
from gpucache.payload import elf
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

BUSY_NS = 60 * 10**9
LOG_BYTES = 64 << 10
_LOOKED_AT = 300
"""Names of a folder that may be a cache; there are 256 folders of two letters."""
_VARIANTS = 64
"""Compiled kernels that a report lists."""
_BUSY = (
    "it was used within the last minute, and PoCL has no locks that would say by whom; end its programs and "
    "try again in a minute"
)
_NO_INPUTS = "PoCL stores neither source, options nor its own build time"


class Pocl(PoclPlaces, FilesFormat):
    """Caches of PoCL's CPU and other devices. PoCL bounds none and never evicts."""

    layout = Layout("([A-P]{2})/([A-P]{37,38})/", key=lambda pair: names.key_of(*pair))
    wanted = explaining.FIELDS

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self._emptied: set[str] = set()

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:  # noqa: ARG003 - not stored
        """The source's kernels, for the local sizes that are named."""
        kernels = tuple(name.encode() for name in islice(kernel_names(request.program.source), _VARIANTS))
        sizes = tuple("x".join(map(str, (*size, 1, 1)[:3])).encode() for size in request.local_sizes)
        return {name: values for name, values in (("kernel", kernels), ("local-size", sizes)) if values}

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a folder holds a program of PoCL, or is called as PoCL calls it and holds nothing else."""
        found = sorted(one.name for one in islice(path.iterdir(), _LOOKED_AT))
        if any(_is_program(item) for item in islice(cls.layout.items(path), _LOOKED_AT)):
            return True
        ours = all(names.is_pair(name) or names.temporary_group(name) for name in found)
        return ours and path.parts[-2:] == (PoclPlaces.name, "kcache")

    def is_foreign(self) -> bool:
        """Whether its folder holds other names than a cache's, and no program's folder."""
        return leftovers.is_foreign(self.root)

    def items(self, prefix: str) -> Iterator[Files]:
        """The folders of programs, and of builds that failed, which ``look`` takes for none."""
        return super().items(prefix.lower())

    def look(self, item: Files) -> Look | None:
        """Its kernels, the LLVM that made it and what it is compiled for; None without a program in it."""
        found = program.read_program(item)
        main = found.tree.program
        if main is None:
            return None
        sizes = dict.fromkeys(one.local_size or "any" for one in found.tree.variants)
        return Look(
            program=found.title,
            target=f"{PoclPlaces.name}:{found.triple}" if found.triple else PoclPlaces.name,
            kind=program.KINDS[main.parts[0]],
            variant=f"local size {', '.join(list(sizes)[: program.SHOWN])}" if sizes else "",
            fields=tuple(found.fields()),
            problem=found.broken,
            made_ns=main.status.st_mtime_ns,
            used_ns=found.tree.accessed_ns,
            toolchain=(("LLVM", found.llvm),) if found.llvm else (),
        )

    def bars(self, item: Files) -> Problem | None:  # noqa: ARG002 - a link in it is one problem of many
        """Nothing: what is a link or no file in a program's folder is mended by itself."""
        return None

    def stays(self, item: Files) -> str:
        """Its folder holds files that PoCL did not make."""
        return stays(tree_of(item))

    def trust(self, item: Files) -> Iterator[Problem]:
        """Owners and modes, of each file by its role, and links."""
        return (fault.problem for fault in checks.trust(tree_of(item.again())))

    def check(self, item: Files) -> Iterator[Problem]:
        """Bitcode and kernels of a program, and what else lies in its folder."""
        return (fault.problem for fault in checks.contents(self._now(item), self.now_ns()))

    def unsound(self, item: Files) -> Problem | None:
        """The program itself; its compiled kernels do not matter."""
        return next((fault.problem for fault in checks.program(self._now(item))), None)

    def notes(self, item: Files) -> Iterator[str]:
        """What could not be told, for its size or its age."""
        return checks.notes(tree_of(item.again()), self.now_ns())

    def payload(self, item: Files) -> bytes:
        """The program's bytes, such as LLVM bitcode."""
        found = self._now(item)
        main = found.tree.program
        assert main is not None
        return found.read(main)

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """What the program says of itself, its variants and its build log."""
        found = program.read_program(item)
        if found.broken:
            why = found.broken.detail
            raise FormatError(f"{entry.path} cannot be read: {why}; run 'gpucache verify'")
        source = found.module.source if found.module else ""
        lost = ", of which the fourth digit is on no disk" if len(entry.key) == 39 else ""
        told = (KeyField(label, value) for label, value in found.fields())
        return EntryReport(
            entry,
            key_fields=(KeyField(f"SHA-1{lost}", entry.key), KeyField("inputs", _NO_INPUTS), *told),
            payload=tuple(_payload(found)),
            build_log=_log(item),
            provenance=(("compiled from", source),) if source else (),
        )

    def unchanged(self, item: Files) -> bool:
        """The program is as the scan saw it, and PoCL has not found it built since."""
        before, now = tree_of(item), tree_of(item.again())
        return before.identity == now.identity

    def remove(self, item: Files) -> Kept | None:
        """Its folder, renamed first so that PoCL sees it whole or not at all, if it was not used just now."""
        now = tree_of(item.again())
        if now.program is None or now.identity != tree_of(item).identity:
            return Kept()
        if abs(self.now_ns() - now.accessed_ns) < BUSY_NS:
            return Kept(_BUSY)
        why = stays(now) or self._take_out(item)
        return Kept(why) if why else None

    def discard(self, item: Files) -> Kept | None:
        """Its folder, also where it was used just now: PoCL makes it anew."""
        now = tree_of(item.again())
        if now.identity != tree_of(item).identity:
            return Kept()
        why = stays(now) or self._take_out(item)
        self.finish_removals()
        return Kept(why) if why else None

    def take(self, item: Files, paths: Sequence[str]) -> bool:
        """Damaged kernels alone, and what is left over, as PoCL makes anew what it needs."""
        found = [one for one in tree_of(item.again()).items if one.place in paths]
        gone = [removal.remove_item(self.root, item.parts, one) for one in found]
        return all(gone)

    def finish_removals(self) -> Sequence[str]:
        """Remove the folders of two letters that removals left empty, as PoCL makes them anew."""
        for pair in self._emptied:
            removal.remove_empty(self.root, pair)
        self._emptied.clear()
        return ()

    def beside(self) -> Iterator[Checked]:
        """Temporary files, failed builds and strangers, a finding for all of a kind; what does not open."""
        yield from self.unread()
        found = leftovers.gather(self.root, self.layout, self.now_ns())
        for path, problem in leftovers.problems(found, self.root):
            place = "" if path == self.root else path.relative_to(self.root).as_posix()
            yield self.told(path, problem, printable(place))
        if note := found.young(self.root):
            yield Checked(str(self.root), notes=(note,), counts=False)

    def whole(self) -> Iterator[Checked]:
        """Programs of an LLVM that no PoCL of this machine seems to have."""
        made = (program.read_program(item) for item in self.layout.items(self.root))
        for path, problem in leftovers.out_of_reach(made, self.root, self.now_ns()):
            yield self.told(path, problem)

    def clear(self, checked: Checked) -> Checked:
        """Remove a group of leftovers."""
        pattern = checked.entry.removeprefix(f"{self.root}/")
        gone = True
        try:
            group = leftovers.gather(self.root, self.layout, self.now_ns()).groups.get(pattern)
            for place in group.places if group else ():
                with suppress(FileNotFoundError):  # another one removes it, too
                    gone &= removal.remove_place(self.root, place)
                    self._emptied.update(place[:-1])
        except (OSError, FormatError):
            return checked
        self.finish_removals()
        return checked.mended() if group and gone else checked

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """Which kernels are there for which local sizes."""
        questions = explaining.read_questions(wanted)
        found = [one for one in map(program.read_program, self._items()) if one.tree.program]

        def wrong(one: Program) -> Problem | None:
            problems = self.check(one.files)
            return next((each for each in problems if each.kind is not None and each.kind.wrong), None)

        return (explaining.answer(question, found, wrong) for question in questions)

    def _items(self) -> Iterator[Files]:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            yield from self.layout.items(self.root)

    def _now(self, item: Files) -> Program:
        """A program as it is now; raises OSError, FileNotFoundError where it is gone."""
        found = program.read_program(item.again())
        if found.tree.program is None:
            raise FileNotFoundError(errno.ENOENT, "it is gone")
        return found

    def _take_out(self, item: Files) -> str:
        """Remove a program's folder; why it stays, as a clause, where it does."""
        why = removal.remove_program(self.root, *item.parts)
        self._emptied.add(item.parts[0])
        return why


def _is_program(item: Files) -> bool:
    found = tree_of(item)
    return bool(found.program or found.variants or found.of(Role.LOG) or found.of(Role.ACCESSED))


def _payload(found: Program) -> Iterator[tuple[str, str]]:
    main = found.tree.program
    if main is not None:
        yield from payloads.describe(found.read(main)).pairs
    compiled = (*found.tree.of(Role.BINARY), *found.tree.of(Role.DEVICE))
    for item in compiled[:_VARIANTS]:
        variant = names.variant_of(*item.parts[:2]) if len(item.parts) > 1 else None
        label = (
            f"{printable(names.short(variant.kernel))} {variant.words}" if variant else printable(item.place)
        )
        clang = ""
        if item.role is Role.BINARY:
            with suppress(OSError, FormatError):
                versions = elf.read_exports(found.read(item)).compilers
                clang = f", clang {', '.join(versions)}" if versions else ""
        yield label, f"{printable(item.parts[-1])}, {format_size(item.status.st_size)}{clang}"


def _log(item: Files) -> str:
    if names.LOG not in item.seen:
        return ""
    with suppress(OSError, FormatError):
        return item.part(names.LOG, 0, LOG_BYTES).decode("utf-8", "replace")
    return ""


FORMAT = Pocl
