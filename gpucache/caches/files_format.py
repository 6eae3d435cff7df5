"""Formats whose entries are files, or directories of files, and those whose entries are one binary each.

Owns which users' files are trusted, the removal of an entry's files, the reports on everything that is not an
entry (links, unreadable directories, leftovers of dead writers, strangers), and the problems of a binary. A
system defines which files exist with its layout, and their content.

Owns the owners' files next to their entries that a removal must respect: a lock, and the sum of all sizes.
"""

import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches import files, interpreters, places
from gpucache.caches.files import (
    HERE,
    LARGEST_BYTES,
    Files,
    Frame,
    Identity,
    LargeError,
    NameTally,
    Parts,
    listed,
)
from gpucache.caches.format import HOUR_NS, Check, Format, HeldError
from gpucache.caches.layout import Layout, Node, Role, Whose
from gpucache.caches.portable import Fact, PortableEntry, PortableFile, Start
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.payload.elf import NEEDED
from gpucache.units import format_age, format_size, printable

OF_OPENCL = frozenset(
    {
        PayloadKind.POCLBIN, PayloadKind.INTEL_CPU, PayloadKind.INTEL_GPU, PayloadKind.PTX,
        PayloadKind.CUBIN, PayloadKind.AMDGPU, PayloadKind.RUSTICL, PayloadKind.LLVM_BITCODE,
    }
)  # fmt: skip
_BEGINNING_BYTES = 64 << 10
_PATIENCE_S = 10
_SUM_BYTES = 8


class FilesFormat(Format[Files]):
    """A cache whose entries are files, or directories of files, that a layout names.

    Everything in it that the layout does not name is a stranger: reported, and never touched.
    """

    layout: ClassVar[Layout]
    frames: ClassVar[Sequence[Frame]] = ()
    """Frames with the parts and rules of its files; the first frame whose names fit is used."""
    item: ClassVar[type] = Files
    wanted: ClassVar[Mapping[str, str]] = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    folders_removed: ClassVar[int] = 0
    """The number of directories above an entry's files that are removed with the last file in them."""
    bare: ClassVar[str] = ""
    """What the owner does with an entry's directory without its files, a clause that begins with a verb; if
    that is harmful, no entry is removed while its directory has other files."""

    largest_bytes: ClassVar[int] = LARGEST_BYTES
    links: ClassVar[Sequence[str]] = ()
    """The owner's packages on PyPI, whose environment has the libraries that cached ones need."""
    index: ClassVar[str] = ""
    """The file in the root with a row for each entry, which moves with its entry; empty if there is none."""
    barred_by_links: ClassVar[bool] = True
    """Whether a link or special file keeps an entry from being read; else it is one problem of many."""
    lock_name: ClassVar[str] = ""
    """The file that the owner's programs lock while they write, if one of them made it; empty for none."""
    lock_is_record: ClassVar[bool] = False
    """Whether the owner's programs take the lock with fcntl(2) instead of flock(2)."""
    sum_name: ClassVar[str] = ""
    """The file that begins with the sum of all sizes as u64, by which the owner evicts; empty for none."""
    sum_is_alone: ClassVar[bool] = False
    without_sum: ClassVar[str] = ""
    """What the owner does about an unreadable sum; a clause."""
    _was_held = False
    _uncorrected = ""
    _kept: list[Node] | None = None
    _said: tuple[str, dict[str, None]] = "", {}
    """The entry that was checked last, and the limits of that check."""
    _parts: tuple[Files | None, dict[str, Parts]] = None, {}
    """The entry that was judged last, as a scan saw it, and the parts of its files."""

    @classmethod
    def whose(cls, path: Path) -> Whose:
        return cls.layout.whose(path)

    def entry(self, item: Files) -> CacheEntry:
        return super().entry(item)._replace(files=len(item.seen))

    def items(self, prefix: str) -> Iterator[Files]:
        nodes: list[Node] | None = None if prefix or not self.keeps_beside else []

        def beside(node: Node) -> None:
            if node.error is not None:
                path, why = self.root.joinpath(*node.parts), node.error.strerror
                unread = f"{path} cannot be read ({why}), so its contents are unknown; fix its permissions"
                self.closed_folders[path] = unread
            if nodes is not None and (node.role is not Role.FOLDER or self._beside(node)):
                nodes.append(node)

        yield from self.layout.items(self.root, prefix, beside)
        self._kept = nodes

    def _nodes(self) -> Sequence[Node]:
        """All nodes but entries and trusted directories, from the last scan or a walk."""
        if self._kept is None:
            self.keeps_beside = True
            deque(FilesFormat.items(self, ""), maxlen=0)
        kept, self._kept, self.keeps_beside = self._kept or (), None, False
        return kept

    def bars(self, item: Files) -> Problem | None:
        for name, status in item.seen.items() if self.barred_by_links else ():
            expected = stat.S_ISREG(status.st_mode) or (HERE in item.seen and stat.S_ISDIR(status.st_mode))
            if not expected:
                return self.no_file(status, name if len(item.seen) > 1 else "it")
        return None

    def stays(self, item: Files) -> str:
        """Why the entry must not be removed: its directory, with other files, does harm without it."""
        if not self.bare:
            return ""
        with item.open() as folder:
            others = listed(found.name for found in folder.entries() if found.name not in item.seen)
        why = (
            f"its directory has {others} as well and would stay without it, and then {self.owner} {self.bare}"
        )
        return f"{why}; move that elsewhere" if others else ""

    def no_file(self, status: os.stat_result, what: str) -> Problem:
        """The problem of a link, a directory, a pipe or similar in place of one of the owner's files."""
        if stat.S_ISDIR(status.st_mode):
            return Problem(
                FindingKind.CORRUPT,
                f"{what} is a directory in place of a file: programs fail at it or compile again at every "
                f"start, and {self.owner} never replaces it; a repair moves it out of the way",
            )
        if stat.S_ISLNK(status.st_mode):
            return Problem(
                FindingKind.UNTRUSTED,
                f"{what} is a link, which {self.owner} follows: who can write to its target chooses the "
                "binary",
            )
        return Problem(
            FindingKind.UNTRUSTED,
            f"{what} is not a regular file: a program that opens it fails or waits for ever",
        )

    def trust(self, item: Files) -> Iterator[Problem]:
        for name, status in item.seen.items():
            if why := places.distrust(status, move=self.place.move):
                what = "" if len(item.seen) == 1 else "of its directory: " if name == HERE else f"{name}: "
                yield Problem(FindingKind.UNTRUSTED, what + why)

    def check(self, item: Files) -> Iterator[Problem]:
        if (entry := self.look(item)) and entry.damage:
            yield entry.damage
            return
        for name in item.names:
            yield from self.judged(item, name)

    def judged(self, item: Files, name: str, *, whole: bool = True) -> Iterator[Problem]:
        """The first problem of a file by its frame and, if ``whole``, its rules."""
        frame = next((one for one in self.frames if re.fullmatch(one.names, name)), None)
        if frame is None:
            return
        try:
            parts = Parts(item, name, frame.words)
            if self._parts[0] is not item:
                self._parts = item, {}
            self._parts[1][name] = parts
            if parts.cut:
                what = f"ends before its {parts.cut} does" if parts.size_bytes else "is empty"
                yield Problem(FindingKind.TRUNCATED, f"{name} {what}: {frame.effect}")
                return
            for rule in frame.rules if whole else ():
                with self._unless_large(item):
                    wrong = rule.broken(parts)
                    if wrong and rule.kind:
                        effect = rule.effect or frame.effect
                        yield Problem(rule.kind, f"{name} {rule.says.format(wrong)}: {effect}")
                        return
                    if wrong:
                        self._note(item, rule.says.format(wrong))
        except PermissionError as error:
            detail = f"{name} cannot be read ({error.strerror}): {frame.effect}"
            yield Problem(FindingKind.UNTRUSTED, detail, "its owner can make it readable", ())
        except FormatError as error:
            folder = stat.S_ISDIR(item.seen[name].st_mode)
            detail = f"{error}, though programs may follow it"
            yield Problem(FindingKind.UNTRUSTED, detail, paths=() if folder else None)

    def linked(self, item: Files, name: str, data: bytes, fails: str) -> Iterator[Problem]:
        """The problem of a library that needs another one that is gone; ``fails`` is the consequence.

        It is only noted for a driver's, and if none of the owner's packages is found, which may bring it.
        """
        gone = interpreters.lost(Path(item.folder, name), data)
        known = any(map(interpreters.versions_of, self.links))
        missing = [one for one in gone if known and not interpreters.DRIVER.fullmatch(one)]
        if missing:
            detail = f"{name} needs {', '.join(missing)}, which is in no directory of libraries; {fails}"
            remedy = f"install it, or remove the entry, so that {self.owner} compiles it again"
            yield Problem(FindingKind.TRUNCATED, detail, remedy)
        for one in gone if not missing else ():
            self._note(item, f"{name} needs {one}, which is in no directory of libraries that is known here")

    def _note(self, item: Files, note: str) -> None:
        if self._said[0] != item.key:
            self._said = item.key, {}
        self._said[1][note] = None

    def parts(self, item: Files, name: str, frame: Frame) -> Parts:
        """The parts of a file, as ``judged`` just read them of this item, or as they are now."""
        seen, found = self._parts
        return found[name] if seen is item and name in found else Parts(item, name, frame.words)

    @contextmanager
    def _unless_large(self, item: Files) -> Iterator[None]:
        try:
            yield
        except LargeError as error:
            self._note(item, f"it was {error}")

    def notes(self, item: Files) -> Iterator[str]:
        yield from self._said[1] if self._said[0] == item.key else ()

    def payload(self, item: Files) -> bytes:
        return item.read(item.names[0], self.largest_bytes)

    def unchanged(self, item: Files) -> bool:
        return item.unchanged()

    def remove(self, item: Files) -> Kept | None:
        if not item.unchanged():
            return Kept()
        for name in self.removal_order(item.names):
            *below, last = name.split("/")
            with suppress(FileNotFoundError), item.open(*below) as folder:
                if stat.S_ISDIR(item.seen[name].st_mode):
                    if HERE in item.seen:
                        folder.rmdir(last)
                    else:
                        self._move_away(folder, last)
                elif Identity.of(folder.lstat(last)) == Identity.of(item.seen[name]):
                    folder.unlink(last)
                else:  # the owner created it again meanwhile
                    return Kept()
        if item.path == item.folder:
            with files.open_folder(item.root, *item.parts[:-1]) as above:
                above.rmdir(item.parts[-1])
        self.tidy(item.parts, self.folders_removed)
        if self.sum_name:
            self._correct(-self.summed(item))
        return None

    def tidy(self, parts: Sequence[str], levels: int) -> None:
        """Remove a directory and its parents while they are empty, up to the root or so many."""
        with suppress(OSError):  # it has other files
            for depth in range(len(parts), max(0, len(parts) - levels), -1):
                with files.open_folder(self.root, *parts[: depth - 1]) as above:
                    above.rmdir(parts[depth - 1])

    def take(self, item: Files, paths: Sequence[str]) -> bool:
        gone = True
        for name in paths:
            *below, last = name.split("/")
            with suppress(FileNotFoundError), item.open(*below) as folder:
                same = Identity.of(folder.lstat(last)) == Identity.of(item.seen[name])
                gone &= same
                if same and stat.S_ISDIR(item.seen[name].st_mode):
                    self._move_away(folder, last)
                elif same:
                    folder.unlink(last)
        return gone

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        modes = {name: status.st_mode for name, status in item.seen.items() if stat.S_ISREG(status.st_mode)}
        return [
            PortableFile(
                "/".join((*item.parts, name)), item.read(name, self.largest_bytes), stat.S_IMODE(mode) & 0o777
            )
            for name in reversed(self.removal_order(item.names))
            if (mode := modes.get(name))
        ]

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        """The files of an entry from elsewhere as the owner would have written them in a root, in order."""
        return entry.files

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """Bring an entry from elsewhere into the cache with ``move``, which moves its files into place unless
        another process has them; and its row into the index. Raises HeldError, FormatError, OSError."""
        return move()

    def merge(self, item: Files, entry: PortableEntry) -> None:
        """Add to a sound entry the files it lacks of the same from elsewhere, if ``holds`` says that.

        Raises HeldError, FormatError, OSError.
        """

    def restoring(self, check: Check) -> AbstractContextManager[Start]:
        from gpucache.caches.restoring import restoring  # only pull needs it

        return restoring(self, check)

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The names of an entry in removal order: first the file that a program looks for first."""
        return sorted(names, reverse=True)

    @contextmanager
    def holding(self, *path: str, take: Callable[[int], str] | None = None, flags: int = 0) -> Iterator[None]:
        """Hold a lock that the owner takes while it writes, by the names from the root to its file; no lock
        if that is missing. ``take`` locks the open file, or says who has it; else it is taken by flock(2), as
        for a build. Raises HeldError, OSError."""
        try:
            with files.open_folder(self.root, *path[:-1]) as folder:
                fd = folder.open_file(path[-1], flags=flags)
        except FileNotFoundError:
            yield
            return
        try:
            building = f"{self.owner} is building it; try again once that is done"
            if why := take(fd) if take else "" if files.take_lock(fd, 0) else building:
                raise HeldError(why)
            yield
        finally:
            os.close(fd)

    def lock_place(self, item: Files) -> tuple[str, ...]:
        """The names of the directories from the root to the directory of an entry's lock."""
        return ()

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """Take the lock if it exists; only the first entry waits long, as a thousand would wait for hours."""

        def take(fd: int) -> str:
            if files.take_lock(fd, 0 if self._was_held else _PATIENCE_S, record=self.lock_is_record):
                return ""
            self._was_held = True
            return f"{self.owner}'s lock is held; try again once the program that has it is done"

        flags = os.O_RDWR if self.lock_is_record else 0
        place = (*self.lock_place(item), self.lock_name)
        return self.holding(*place, take=take, flags=flags) if self.lock_name else nullcontext()

    def summed(self, item: Files) -> int:
        """What an entry adds to the sum: its size on disk."""
        return item.size_bytes

    def whole(self) -> Iterator[Checked]:
        if not self.sum_name:
            return
        try:
            with files.open_folder(self.root) as folder:
                size = len(files.read_part(folder, self.sum_name, 0, _SUM_BYTES + 1))
        except FileNotFoundError:
            return
        except FormatError as error:
            if (self.root / self.sum_name).is_dir():  # reported with all other files that are not entries
                return
            why = str(error)
        else:
            if size == _SUM_BYTES or (size > _SUM_BYTES and not self.sum_is_alone):
                return
            why = f"it has not the {_SUM_BYTES} bytes of one"
        detail = f"it has the sum of all sizes and cannot be parsed ({why}), so {self.without_sum}"
        yield self.told(self.root / self.sum_name, Problem(FindingKind.CORRUPT, detail))

    def _correct(self, change: int) -> None:
        try:
            with suppress(FileNotFoundError), files.open_folder(self.root) as folder:
                old = files.read_part(folder, self.sum_name, 0, _SUM_BYTES)
                if len(old) == _SUM_BYTES:
                    new = max(0, int.from_bytes(old, sys.byteorder) + change)
                    files.overwrite(
                        folder, self.sum_name, new.to_bytes(_SUM_BYTES, sys.byteorder), whole=False
                    )
        except FormatError as error:
            self._uncorrected = f"{self.root}: {error}: the sum of sizes in it is out of date"

    def finish_removals(self) -> Sequence[str]:
        return (self._uncorrected,) if self._uncorrected else ()

    def beside(self) -> Iterator[Checked]:
        strange = NameTally()
        for node in self._nodes():
            told = self._beside(node)
            if told is not None:
                yield self.told(self.root.joinpath(*node.parts), told)
            elif node.role is Role.STRANGER or (node.role is Role.LEFT and not self._is_own(node)):
                strange.add(node.parts[0])
        if strange.count:
            detail = f"it also contains {strange}: {self.owner} does not read or remove it; keep it elsewhere"
            yield self.told(self.root, Problem(FindingKind.LEFTOVER, detail))

    def unread(self) -> Iterator[Checked]:
        """Directories among ``beside`` that this user may not read and that may be or contain entries."""
        for node in self._nodes():
            if node.role is Role.CLOSED and (told := self._beside(node)):
                yield self.told(self.root.joinpath(*node.parts), told)

    def stranger(self, node: Node) -> Problem:
        """The report on a stranger below the root; strangers directly in the root are reported together."""
        path, folder = printable("/".join(node.parts), None), "/".join(node.parts[:-1])
        beside_left = any(re.fullmatch(one.pattern.rpartition("/")[0], folder) for one in self.layout.left)
        return Problem(
            FindingKind.LEFTOVER,
            f"{path} is not {self.owner}'s by its name or by its content, so it stays; move it"
            if beside_left
            else f"{self.owner} does not read or remove {path}; keep it elsewhere",
        )

    def is_left(self, start: bytes) -> bool:
        """Whether a file named like a dead writer's leftover also begins like one; an empty one does. A
        user's file may have such a name by chance."""
        return not start

    def clear(self, checked: Checked) -> Checked:
        """Remove a dead writer's leftover, if it still is one; move away a directory in place of a file."""
        with suppress(OSError, ValueError):
            parts = Path(checked.entry).relative_to(self.root).parts
            if not parts:  # all strangers in the root, which stay
                return checked
            with files.open_folder(self.root, *parts[:-1]) as folder:
                node = Node(Role.LEFT, parts, folder.lstat(parts[-1]))
                if self._is_old(node) and self._is_own(node):
                    folder.unlink(parts[-1])
                elif self.layout.is_own(parts) and stat.S_ISDIR(node.status.st_mode):
                    self._move_away(folder, parts[-1])
                else:
                    return checked
            left = self.layout.left_at(parts)
            if left and "(?P<pid>" in left[0].pattern.rpartition("/")[0]:  # its own directory
                with suppress(OSError), files.open_folder(self.root, *parts[:-2]) as above:
                    above.rmdir(parts[-2])
            return checked.fixed()
        return checked

    def _move_away(self, folder: Folder, name: str) -> None:
        """Move a directory into the root under a name that no owner reads; remove it if it is empty."""
        with suppress(OSError):
            folder.rmdir(name)
            return
        with files.open_folder(self.root) as top:
            names = (f"{name}{mark}.old" for mark in ("", *(f" ({number})" for number in range(1, 1000))))
            there = {found.name for found in top.entries()}
            folder.move(name, top, next(one for one in names if one not in there))

    def _beside(self, node: Node) -> Problem | None:
        """The problem of a node that is not an entry; None if there is none, or it is reported later."""
        name = node.parts[-1] if node.parts else self.root.name
        match node.role:
            case Role.FOLDER:
                why = places.distrust(node.status, move=self.place.move)
                if not why or (node.parts and why == places.distrust(self.root.stat(), move=self.place.move)):
                    return None  # or it is said of the root
                return Problem(FindingKind.UNTRUSTED, f"of the directory {name}: {why}")
            case Role.LINK:
                detail = f"{name} is a link, which {self.owner} follows and gpucache does not"
                return Problem(FindingKind.UNTRUSTED, detail, "name its own place, or remove it yourself")
            case Role.CLOSED:
                error = node.error.strerror if node.error else ""
                path = self.root.joinpath(*node.parts)
                detail = f"{path} cannot be read ({error}), so its content is not known"
                return Problem(FindingKind.UNTRUSTED, detail, "fix its permissions")
            case Role.BLOCKING:
                return self.no_file(node.status, name)
            case Role.LEFT if self._is_own(node):
                if not self._is_old(node):
                    return None
                age = format_age(self.now_ns() - node.status.st_mtime_ns)
                size = format_size(node.status.st_size)
                return Problem(FindingKind.LEFTOVER, f"left by a writer that was stopped, {size}, {age} old")
        return self.stranger(node) if len(node.parts) > 1 else None

    def _is_old(self, node: Node) -> bool:
        left, writer = self.layout.left_at(node.parts) or (None, None)
        old = left is not None and node.status.st_mtime_ns < self.now_ns() - HOUR_NS
        return old and not (writer is not None and _runs(writer))

    def _is_own(self, node: Node) -> bool:
        left, writer = self.layout.left_at(node.parts) or (None, None)
        if left is None or not stat.S_ISREG(node.status.st_mode):
            return False
        if left.sure or writer is not None:
            return True
        try:
            with files.open_folder(self.root, *node.parts[:-1]) as folder:
                start = files.read_part(folder, node.parts[-1], 0, _BEGINNING_BYTES)
        except (OSError, FormatError):
            return False
        return not start or self.is_left(start)


def _runs(process: int) -> bool:
    """Whether a process of this number runs on this machine; False if that is unknown."""
    if sys.platform == "win32":  # on which signal 0 ends a process
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def needed(start: bytes) -> Iterator[tuple[str, str]]:
    """The feature of the CPU without which Intel's runtime refuses a binary, as a fact, if it is Intel's."""
    found = dict(describe(start).detail).get(NEEDED)
    if found:
        yield Fact.FEATURE, found


def broken(
    name: str, data: bytes, kind: PayloadKind, end: str
) -> Generator[Problem, None, PayloadInfo | None]:
    """The problems of a whole file that should be a binary of some kind; ``end`` is their consequence.

    Returns the description of a binary without problems.
    """
    info = describe(data)
    if not data:
        yield Problem(FindingKind.TRUNCATED, f"{name} is empty; {end}")
    elif info.kind is not kind:
        detail = f"{name} contains {info.kind.value} instead of {kind.value}; {end}"
        yield Problem(FindingKind.MISLABELLED, detail)
    elif info.problem:
        yield Problem(FindingKind.CORRUPT, f"the {kind.value} in {name} is broken: {info.problem}; {end}")
    else:
        return info
    return None


class BinaryFormat(FilesFormat):
    """A cache whose entries are one file each: a compiled binary, with or without a wrapper.

    Content of another kind than ``kinds`` is not an entry's; content of these kinds identifies the owner.
    """

    kinds: ClassVar[frozenset[PayloadKind]]
    consequence: ClassVar[str]
    """The effect of a broken entry on a program; ends the sentences about that."""
    empty: ClassVar[str] = ""
    """The effect of an empty file on programs, if a broken file has another one."""
    checked_bytes: ClassVar[int] = 256 << 20
    """Of larger files only the beginning is checked."""
    scanned_bytes: ClassVar[int] = 64 << 10
    """The part of a file that a scan reads; a larger one may leave kernel names unknown."""
    _checked: tuple[str, PayloadKind] | None = None

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        """The binary in a file, or in its beginning if not ``whole``; and the problem of its wrapper."""
        return data, None

    def used_ns(self, status: os.stat_result) -> int:
        """The last use of an entry: when it was written or, if the disk notes that, read."""
        return max(status.st_atime_ns, status.st_mtime_ns)

    def is_left(self, start: bytes) -> bool:
        return describe(start).kind in self.kinds

    def look(self, item: Files) -> CacheEntry:
        name, status = next(iter(item.seen.items()))
        data = item.part(name, 0, self.scanned_bytes)
        whole = len(data) == status.st_size
        binary, problem = self.unwrap(data, whole=whole)
        info = describe(binary)
        known = info.kind in self.kinds
        return self.entry(item)._replace(
            program=next(iter(info.kernels or ()), ""),
            target=info.target if known else "",
            artifact_kind=info.kind.value if binary else "",
            damage=problem if known and problem else self._wrong(binary, info, whole=whole) or problem,
            last_used_ns=self.used_ns(status),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        name, status = next(iter(item.seen.items()))
        whole = status.st_size <= self.checked_bytes
        data = item.part(name, 0, self.checked_bytes if whole else self.scanned_bytes)
        binary, problem = self.unwrap(data, whole=whole)
        info = describe(binary, inside=2 * whole)
        self._checked = name, info.kind
        if problem := problem or self._wrong(binary, info, whole=whole):
            yield problem
        elif self.links and whole and info.kind is PayloadKind.ELF:
            yield from self.linked(item, name, binary, self.consequence)

    def notes(self, item: Files) -> Iterator[str]:
        yield from super().notes(item)
        name, status = next(iter(item.seen.items()))
        if status.st_size > self.checked_bytes:
            yield f"it is larger than {format_size(self.checked_bytes)}: only its beginning was looked at"
        if self._checked == (name, PayloadKind.LTOIR):
            yield "LTO-IR does not record its length, so a lost end cannot be detected"

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        yield from super().facts(item, look)
        if look.artifact_kind == PayloadKind.INTEL_CPU:
            data = item.part(item.names[0], 0, self.scanned_bytes)
            yield from needed(self.unwrap(data, whole=False)[0])

    def payload(self, item: Files) -> bytes:
        return self.unwrap(super().payload(item), whole=True)[0]

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        """The problem of a binary; of a beginning, only whether it is a binary."""
        if not binary:
            detail = self.empty or f"it is empty; {self.consequence}"
            return Problem(FindingKind.TRUNCATED, detail) if whole else None
        if info.kind not in self.kinds:
            start = dict(info.detail).get("starts with", "")
            unknown = info.kind is PayloadKind.UNKNOWN
            words = f"bytes of no known format ({start})" if unknown else info.kind.value
            detail = f"it contains {words} instead of a binary of {self.owner}'s; {self.consequence}"
            return Problem(FindingKind.MISLABELLED, detail)
        if whole and info.problem is not None:
            detail = f"its {info.kind.value} is broken: {info.problem}; {self.consequence}"
            return Problem(FindingKind.CORRUPT, detail)
        return None
