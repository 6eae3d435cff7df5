"""A PoCL kernel cache as a ``gpucache.caches.interface.Cache``."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpucache import payload as payloads
from gpucache.caches.files import Identity
from gpucache.caches.interface import Wanted
from gpucache.caches.pocl import ages, checks, entries, explaining, leftovers, names, removal, reporting
from gpucache.caches.pocl.checks import Mend, Problem, Subject
from gpucache.caches.pocl.entries import Broken, Seen
from gpucache.caches.pocl.explaining import Candidate
from gpucache.caches.pocl.tree import read_tree
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Finding, Kept, Location, Reach
from gpucache.payload.bitcode import Module

BUSY_NS = 60 * 10**9
Clock = Callable[[], int]
_BUSY = (
    "it was used within the last minute, and PoCL has no locks that would say by whom; end its programs and "
    "try again in a minute"
)


class PoclCache:
    """The programs below one root. Where the root does not exist there are none."""

    name = entries.NAME

    def __init__(self, location: Location, clock: Clock = time.time_ns) -> None:
        self._location = location
        self._root = Path(location.root)
        self._clock = clock
        self._emptied: set[str] = set()

    def location(self) -> Location:
        """Where it lives and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """Every program, one by one; raises CacheUnusableError where the root cannot be read."""
        for pair, rest in self._programs():
            entry = entries.look_at(self._root, pair, rest)
            if entry is not None:
                yield entry

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits."""
        wanted = (place for place in self._programs() if names.key_of(*place).startswith(prefix.lower()))
        found = (entries.look_at(self._root, pair, rest) for pair, rest in wanted)
        return [entry for entry in found if entry is not None]

    def report(self, entry: CacheEntry) -> EntryReport:
        """What the program says of itself, its variants and its build log; raises FormatError."""
        subject = self._subject(entry)
        if isinstance(subject.module, Broken):
            raise FormatError(f"{entry.path} cannot be read: {subject.module.detail}; run 'gpucache verify'")
        return reporting.report(entry, subject)

    def extract(self, entry: CacheEntry) -> bytes:
        """The program's bytes, such as LLVM bitcode; raises FormatError where they are not sound."""
        subject = self._subject(entry)
        program = subject.tree.program
        if isinstance(subject.module, Broken) or program is None:
            why = subject.module.detail if isinstance(subject.module, Broken) else "it is gone"
            raise FormatError(f"the program in {entry.path} cannot be taken: {why}; run 'gpucache verify'")
        try:
            data = subject.read(program)
        except OSError as error:
            raise FormatError(f"{entry.path} cannot be read ({error.strerror})") from error
        problem = payloads.describe(data).problem
        if problem:
            raise FormatError(f"the program in {entry.path} is damaged: {problem}; run 'gpucache verify'")
        return data

    def check(self, entry: CacheEntry) -> Checked:
        """Bitcode, kernels, owners and modes of a program, leaving its last use alone."""
        try:
            subject = self._look(entry)
            if subject.tree.program is None:
                return Checked(entry.key, notes=("its program was removed since the scan",), counts=False)
            now = self._clock()
            found = tuple(_finding(entry, problem) for problem in checks.problems(subject, now))
            return Checked(entry.key, found, notes=tuple(checks.notes(subject.tree, now)))
        except FileNotFoundError:
            return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)
        except (OSError, FormatError) as error:
            why = getattr(error, "strerror", None) or error
            return Checked(entry.key, notes=(f"it cannot be read ({why})",), counts=False)

    def leftovers(self) -> Iterator[Checked]:
        """Temporary files, failed builds, strangers, and programs of an LLVM that is gone."""
        try:
            found = leftovers.gather(self._root, self._clock())
        except FileNotFoundError:
            return
        except PermissionError as error:
            yield leftovers.unreadable(self._root, self._location.problems, error)
            return
        except OSError as error:
            raise self._unusable(error) from error
        yield from leftovers.told(found, self._root)
        yield from ages.out_of_reach(self.scan(), str(self._root), self._clock())

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - nothing records it
        """Remove a program's folder if it is unchanged since the scan and was not used just now."""
        seen = _seen(entry)
        try:
            tree = read_tree(self._root, seen.pair, seen.rest)
            program = tree.program
            if program is None or Identity.of(program.status) != seen.program:
                return Kept()
            if tree.accessed_ns != seen.accessed_ns:
                return Kept()
            if abs(self._clock() - tree.accessed_ns) < BUSY_NS:
                return Kept(_BUSY)
            if stays := entries.stays(tree):
                return Kept(stays)
            if stays := self._take_out(seen):
                return Kept(stays)
        except OSError as error:
            return Kept.by(error, self._root)
        return None

    def settle(self) -> Sequence[str]:
        """Remove the folders of two letters that removals left empty, as PoCL makes them anew."""
        for pair in self._emptied:
            removal.remove_empty(self._root, pair)
        self._emptied.clear()
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Remove damaged kernels alone, damaged programs whole, and what writers that died left.

        Removing is enough: PoCL makes what lacks anew at the next build or launch.
        """
        try:
            repaired = self._clear(checked) if entry is None else self._mend(checked, entry)
        except (OSError, FormatError):
            return checked
        self.settle()
        marked = (replace(one, repaired=one.repaired or one.detail in repaired) for one in checked.findings)
        return replace(checked, findings=tuple(marked))

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """Which kernels are there for which local sizes; raises UsageError."""
        return explaining.explain(wanted, [self._candidate(entry) for entry in self.scan()], self.check)

    def _programs(self) -> Iterator[tuple[str, str]]:
        try:
            yield from entries.programs(self._root)
        except (FileNotFoundError, PermissionError):  # the second is told as a problem and a leftover
            return
        except OSError as error:
            raise self._unusable(error) from error

    def _look(self, entry: CacheEntry) -> Subject:
        seen = _seen(entry)
        tree = read_tree(self._root, seen.pair, seen.rest)
        program = tree.program
        module = entries.read_module(self._root, seen.pair, seen.rest, program) if program else None
        return Subject(self._root, seen.pair, seen.rest, tree, module)

    def _subject(self, entry: CacheEntry) -> Subject:
        try:
            return self._look(entry)
        except OSError as error:
            raise FormatError(f"{entry.path} cannot be read ({error.strerror})") from error

    def _candidate(self, entry: CacheEntry) -> Candidate:
        try:
            subject = self._look(entry)
        except OSError:
            return Candidate(entry, frozenset(), ())
        told = subject.module.kernels if isinstance(subject.module, Module) else ()
        return Candidate(entry, frozenset((*told, *subject.tree.kernels)), subject.tree.variants)

    def _take_out(self, seen: Seen) -> str:
        """Remove a program's folder; why it stays, as a clause, where it does."""
        stays = removal.remove_program(self._root, seen.pair, seen.rest)
        self._emptied.add(seen.pair)
        return stays

    def _clear(self, checked: Checked) -> frozenset[str]:
        """Remove a group of leftovers; the details that are no longer true."""
        pattern = checked.entry.removeprefix(f"{self._root}/")
        group = leftovers.gather(self._root, self._clock()).groups.get(pattern)
        gone = group is not None
        for place in group.places if group else ():
            with suppress(FileNotFoundError):  # another one removes it, too
                gone &= removal.remove_place(self._root, place)
                self._emptied.update(place[:-1])
        return frozenset(one.detail for one in checked.findings) if gone else frozenset()

    def _mend(self, checked: Checked, entry: CacheEntry) -> frozenset[str]:
        """Remove what can be made anew of a program; the details that are no longer true."""
        try:
            subject = self._look(entry)
            found = list(checks.problems(subject, self._clock()))
        except FileNotFoundError:  # it is gone, and with it all that was wrong
            return frozenset(one.detail for one in checked.findings)
        if any(problem.mend is Mend.PROGRAM for problem in found):
            if entries.stays(subject.tree) or self._take_out(_seen(entry)):
                return frozenset()
            return frozenset(problem.detail for problem in found)
        return frozenset(problem.detail for problem in found if self._remove_items(subject, problem))

    def _remove_items(self, subject: Subject, problem: Problem) -> bool:
        place = (subject.pair, subject.rest)
        removed = [removal.remove_item(self._root, place, item) for item in problem.items]
        return problem.mend is Mend.FILE and all(removed)

    def _unusable(self, error: OSError) -> CacheUnusableError:
        return CacheUnusableError(
            f"{self._root} cannot be read ({error.strerror}); mend its rights or set POCL_CACHE_DIR"
        )


def _finding(entry: CacheEntry, problem: Problem) -> Finding:
    return Finding(entry.cache, entry.key, problem.kind, problem.detail, entry.program, entry.target)


def _seen(entry: CacheEntry) -> Seen:
    if not isinstance(entry.handle, Seen):
        raise TypeError("an entry of another cache")
    return entry.handle
