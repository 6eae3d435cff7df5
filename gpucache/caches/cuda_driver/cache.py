"""A driver's compute cache as a ``gpucache.caches.interface.Cache``: one opaque entry."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gpucache.caches.cuda_driver import findings
from gpucache.caches.cuda_driver.clearing import clear
from gpucache.caches.cuda_driver.settings import DISABLE, MAXSIZE, NAME
from gpucache.caches.cuda_driver.tree import Survey, survey
from gpucache.caches.files import open_folder
from gpucache.caches.interface import Wanted
from gpucache.errors import CacheUnusableError, FormatError, UsageError
from gpucache.model import KeyField
from gpucache.outcomes import (
    ALL,
    CacheEntry,
    Checked,
    EntryReport,
    Finding,
    FindingKind,
    Kept,
    Location,
    Problem,
    Reach,
    Verdict,
)

KEY = hashlib.sha256(b"ComputeCache").hexdigest()
"""Of the one entry, wherever it lies."""
PROGRAM = "(opaque: the whole cache)"
BUSY_NS = 60 * 10**9
"""A cache that was written to so lately is in use."""
_BOUNDED = f"the driver bounds this cache itself: set {MAXSIZE}; {ALL} removes it whole"
_OPAQUE = (
    "what the driver's keys are made from is not documented, and a new driver starts anew; "
    "gpucache.cuda.compile_program keeps a cubin that needs no such cache, and explains its misses"
)


class CudaDriverCache:
    """The tree below one root; nothing in it is told apart, as nothing about it is documented."""

    name = NAME

    def __init__(self, location: Location, clock: Callable[[], int] = time.time_ns) -> None:
        self._location = location
        self._root = Path(location.root)
        self._clock = clock

    def location(self) -> Location:
        """Where it lives and what is wrong with the place."""
        return self._location

    def scan(self) -> Iterator[CacheEntry]:
        """The whole cache; none where it holds no files. Raises CacheUnusableError."""
        found = self._survey()
        if found is not None and found.files:
            yield _entry(self._root, found, self._clock())

    def find(self, prefix: str) -> list[CacheEntry]:
        """The whole cache, for the beginning of its key."""
        return list(self.scan()) if KEY.startswith(prefix) else []

    def report(self, entry: CacheEntry) -> EntryReport:
        """How much there is, and that no more can be told."""
        return EntryReport(entry, (KeyField("key", "opaque: its format is not documented"),), entry.fields)

    def extract(self, entry: CacheEntry) -> bytes:
        """Refused: raises FormatError, as the format is not documented."""
        raise FormatError(f"{entry.path} is opaque: the driver's format is not documented; copy it whole")

    def check(self, entry: CacheEntry) -> Checked:
        """Links, owners and modes in the tree; with a note that the rest cannot be checked."""
        found = self._survey()
        if found is None or not found.files:
            return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)
        if found.foreign:
            return Checked(entry.key, notes=(f"{self._root}: {findings.FOREIGN}",), counts=False)
        return Checked(entry.key, _findings(entry.key, findings.untrusted(found)), (findings.OPAQUE,))

    def leftovers(self) -> Iterator[Checked]:
        """What is worth knowing of the cache as a whole."""
        yield from self._unreadable()
        found = self._survey()
        if found is not None:
            for problem in findings.worth_knowing(found, self._location.limit_bytes):
                yield Checked(str(self._root), _findings(self._root.name, [problem]), counts=False)

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - nothing records it
        """Empty the cache where no program uses it and nothing of others lies in it.

        A driver makes the files anew; whether it stands the loss of single ones is not documented, so
        nothing less is offered.
        """
        now_ns = self._clock()
        try:
            found = survey(self._root, now_ns, None)
            if why_not := _stays(self._root, found, now_ns):
                return Kept(why_not)
            if found.identity != _seen(entry).identity:
                return Kept()
            failed = clear(self._root, now_ns)
        except OSError as error:
            return Kept.by(error, self._root)
        if failed.count:
            return Kept(
                f"{failed.count} of its files could not be removed ({failed.first}); mend their rights"
            )
        return None

    def settle(self) -> Sequence[str]:
        """Nothing: the driver makes what it needs."""
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:  # noqa: ARG002 - nothing is done
        """Nothing: what the driver needs of its files is not documented, so findings stay."""
        return checked

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """That the cache is off, or that its keys are opaque; raises UsageError for any field."""
        for name in wanted:
            raise UsageError(
                f"the CUDA driver's cache has no field {name!r}, nor any other, as its keys are opaque; ask "
                "without one"
            )
        if not self._location.enabled:
            detail = f"{DISABLE}=1 turns it off, so every start compiles; unset it"
            yield Reach(NAME, "a program", Verdict.NOT_CONSULTED, detail)
        else:
            yield Reach(NAME, "a program", Verdict.OPAQUE_KEY, _OPAQUE)

    def _unreadable(self) -> Iterator[Checked]:
        try:
            open_folder(self._root).close()
        except PermissionError as error:
            problem = findings.unreadable(self._root, self._location.problems, error)
            yield Checked(str(self._root), _findings(self._root.name, [problem]), counts=False)
        except OSError:
            return

    def _survey(self) -> Survey | None:
        """The tree summed up; None where there is none. Raises CacheUnusableError."""
        try:
            return survey(self._root, self._clock(), self._location.limit_bytes)
        except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last is told by leftovers
            return None
        except OSError as error:
            raise CacheUnusableError(
                f"{self._root} cannot be read ({error.strerror}); mend its rights or name another folder"
            ) from error


def _stays(root: Path, found: Survey, now_ns: int) -> str:
    """Why a cache is not emptied, as a clause; empty where it may be."""
    if found.foreign:
        return findings.FOREIGN
    if found.strangers.count:
        return findings.strangers(root, found)
    if not found.telling:
        return findings.UNPROVEN
    if abs(now_ns - found.newest_ns) < BUSY_NS:
        return "a program is using it: it changed within the last minute; end that, or wait"
    return ""


def _entry(root: Path, found: Survey, now_ns: int) -> CacheEntry:
    wrong = None if found.foreign else next(findings.untrusted(found), None)
    return CacheEntry(
        cache=NAME,
        key=KEY,
        path=str(root),
        size_bytes=found.allocated_bytes,
        created_ns=found.oldest_ns,
        last_used_ns=found.newest_ns,
        program=PROGRAM,
        unique=True,
        fields=(
            ("files", str(found.files)),
            ("bytes", str(found.size_bytes)),
            ("index", "present" if found.has_index else "missing"),
            ("files of unusual names", str(found.strangers.count)),
        ),
        damage=Problem(*wrong) if wrong else None,
        stays=_stays(root, found, now_ns),
        indivisible=_BOUNDED,
        handle=found,
    )


def _findings(entry: str, problems: Iterable[tuple[FindingKind, str]]) -> tuple[Finding, ...]:
    return tuple(Finding(NAME, entry, kind, detail, PROGRAM) for kind, detail in problems)


def _seen(entry: CacheEntry) -> Survey:
    if not isinstance(entry.handle, Survey):
        raise TypeError("an entry of another cache")
    return entry.handle
