"""PyOpenCL's compiler cache: a folder per Python version, in it a folder for each program and device.

Source: PyOpenCL, ``pyopencl/cache.py`` and ``pyopencl/__init__.py`` of 2026.1. ``names`` owns where the
folders lie, ``entry_files`` the three files of an entry, ``pickled`` the reading of ``info`` without
unpickling it, ``keys`` the MD5 that names an entry, ``headers`` the files it was made with, ``locks`` the
global lock, ``checks`` what can be wrong, ``explaining`` what a build would meet.

PyOpenCL does not use this cache for PoCL and NVIDIA. The SQLite dictionaries of pytools, where PyOpenCL keeps
the invokers it generates, are another cache and are not read. PyOpenCL itself is never imported.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files, interpreters
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import HeldError, Look
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout
from gpucache.caches.pyopencl import checks, entry_files, explaining, headers, locks, names, sources
from gpucache.caches.pyopencl.checks import Fault
from gpucache.caches.pyopencl.keys import LABELS
from gpucache.caches.pyopencl.locations import PyOpenclPlaces
from gpucache.caches.pyopencl.question import FIELDS, read_question
from gpucache.errors import FormatError
from gpucache.keys import digest
from gpucache.model import BuildRequest, KeyField, Toolchain
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

_NOT_ITS_OWN = (
    "nothing in its folder shows that PyOpenCL made it, nor does the name of the folder above; "
    "remove it yourself if it is PyOpenCL's"
)
_ORDER = (names.INFO, names.BINARY, names.SOURCE)
"""``info`` goes first: should a removal end there, PyOpenCL finds an entry without it and builds it again."""
_SCANNED_BYTES = 4 << 20
"""Of a larger binary a scan reads no more than its beginning, which gives its kind."""


class PyOpencl(PyOpenclPlaces, FilesFormat):
    """What programs keep that build OpenCL sources with PyOpenCL, but for PoCL and NVIDIA.

    A root is a folder with entries, or one with such folders by the versions of Python. Nothing is traced:
    hits and misses go to Python's logging at DEBUG, which no variable turns on.
    """

    layout = Layout([f"{names.ANY_VERSION}/({names.KEY})/", f"({names.KEY})/"])
    wanted = FIELDS
    leaves_to_owner = False
    """PyOpenCL unpickles what lies in an entry, whoever wrote it."""

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """The source with its options, on the device."""
        told = dict(toolchain.fields)
        return {
            "source": (request.program.source,),
            "options": tuple(option.encode(errors="surrogateescape") for option in request.options),
            "device": tuple(told.get(label, "").encode(errors="surrogateescape") for label in LABELS),
        }

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a folder is one Python's, holds entries, or holds such folders."""
        if not path.is_dir():
            return False
        return bool(names.python_of(path.name) or names.version_folders(path)) or names.holds_entries(path)

    def is_foreign(self) -> bool:
        """Whether neither its name nor anything in it is PyOpenCL's."""
        return names.is_foreign(self.root)

    def items(self, prefix: str) -> Iterator[Files]:
        """The entries of the folders that the root stands for: what lies beside versions is nobody's."""
        folders = list(names.cache_folders(self.root))
        return (item for item in super().items(prefix) if item.folder.parent in folders)

    def bars(self, item: Files) -> Problem | None:  # noqa: ARG002 - a link in it is one problem of several
        """Nothing: what is a link or no file in an entry's folder is told by itself."""
        return None

    def trust(self, item: Files) -> Iterator[Problem]:  # noqa: ARG002 - it keeps all else from being checked
        """Nothing beside what ``check`` says."""
        yield from ()

    def look(self, item: Files) -> Look:
        """Its kernels, the options that its log names, and what its binary is."""
        binary = item.seen.get(names.BINARY) or next(iter(item.seen.values()))
        described = source = info = None
        with item.open() as inner:
            with suppress(OSError, FormatError):
                described = payloads.describe(files.read_part(inner, names.BINARY, 0, _SCANNED_BYTES))
            with suppress(OSError, FormatError):
                source = entry_files.read_source(inner)
            with suppress(OSError, FormatError):
                info = entry_files.info_of(inner)
        options = entry_files.logged_options(info.log) if info else None
        kernels = tuple(kernel_names(source or b""))
        python = names.python_of(item.folder.parent.name)
        more = len(kernels) - 1
        others = f"and {more} more kernel{'s' if more > 1 else ''}" if more > 0 else ""
        fields = [("source", digest(source))] if source is not None else []
        if options is not None:
            fields.append(("options", options))
        return Look(
            program=kernels[0] if kernels else "",
            target=entry_files.device_of(described) if described else "",
            kind=described.kind.value if described else "",
            variant="; ".join(filter(None, (others, options))),
            fields=tuple(fields),
            problem=_damage(item),
            made_ns=binary.st_mtime_ns,
            used_ns=max(binary.st_atime_ns, binary.st_mtime_ns),
            stays="" if info is not None or self._is_shown(item) else _NOT_ITS_OWN,
            gone=f"Python {python}" if python and interpreters.is_gone(python) else "",
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """All three files, whom they belong to, and the headers, unless they may be half written."""
        found = self._faults(item)
        if self._is_busy(item):
            found = [fault for fault in found if not fault.mended]
        return (fault.problem for fault in found)

    def notes(self, item: Files) -> Iterator[str]:
        """What could not be told."""
        with item.open() as inner:
            found = [*checks.notes(inner)]
            if self._is_busy(item) and any(fault.mended for fault in self._faults(item)):
                lock = item.folder.parent / names.LOCK
                found.append(f"it may be half written, as PyOpenCL's lock {lock} is held; check again")
        return (f"{item.key[:12]}: {note}" for note in found)

    def unsound(self, item: Files) -> Problem | None:
        """The binary; the headers do not matter."""
        with item.open() as inner:
            found = checks.binary(inner, set(item.seen))
        return next((fault.problem for fault in found if fault.kind.wrong), None)

    def payload(self, item: Files) -> bytes:
        """The binary."""
        return item.read(names.BINARY, entry_files.LARGEST_BINARY_BYTES)

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """Source, headers with what became of them, binary and log."""
        try:
            with item.open() as inner:
                info = entry_files.info_of(inner)
                data = entry_files.read_binary(inner)
                source = entry_files.read_source(inner)
        except FileNotFoundError as error:
            missing = Path(error.filename or entry.path).name
            why = f"{entry.path} cannot be read: {missing} is missing; run 'gpucache verify'"
            raise FormatError(why) from error
        compared = headers.compare_all(info.dependencies)
        options = entry_files.logged_options(info.log)
        return EntryReport(
            entry=entry,
            key_fields=(
                KeyField("source", digest(source)),
                KeyField("size of the source", format_size(len(source))),
                *([KeyField("options", options)] if options is not None else []),
                *(
                    KeyField(f"header {one.path}", f"{one.dependency.md5}, {one.state.value}")
                    for one in compared
                ),
            ),
            payload=(*payloads.describe(data).pairs, ("SHA-256", digest(data))),
            build_log=info.log,
        )

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """PyOpenCL's lock of one Python's folder, held as PyOpenCL holds it."""
        return locks.held(item.path.parent, self.now_ns)

    def remove(self, item: Files) -> Kept | None:
        """Its three files, and the folder, unless something else is in it."""
        if not item.unchanged():
            return Kept()
        foreign = [name for name in item.names if name not in names.PARTS]
        if foreign:
            return Kept(
                f"its folder holds {printable(foreign[0], None)}, none of PyOpenCL's; remove that yourself"
            )
        return super().remove(item)

    def removal_order(self, present: Sequence[str]) -> Sequence[str]:
        """``info`` first."""
        return [name for name in _ORDER if name in present]

    def mend(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Remove an entry with broken parts, which PyOpenCL builds again, and a lock left behind."""
        if self.look(item).stays or not any(fault.mended for fault in self._faults(item)):
            return ()
        with files.open_folder(item.path.parent) as folder:
            locks.free_stale(folder, self.now_ns)
        with self.lock(item):
            kept = self.remove(item)
        if kept is not None and not kept.gone:
            raise HeldError(kept.reason)
        return problems

    def finish_removals(self) -> Sequence[str]:
        """Remove the folders of other Pythons that are empty now; PyOpenCL keeps no totals."""
        folders = list(names.cache_folders(self.root))
        return tuple(f"{folder} is empty and was removed" for folder in folders if _remove_empty(folder))

    def beside(self) -> Iterator[Checked]:
        """A lock left behind, folders of other Pythons, and what lies among the entries."""
        for path, problem in checks.beside(self.root):
            yield self.told(path, problem, printable(path.name, None))
        yield from (one for one in self.unread() if names.is_key(Path(one.entry).name))
        for path in names.cache_folders(self.root):
            try:
                with names.open_cache(self.root, path) as folder:
                    found = list(checks.leftovers(folder, self.now_ns))
            except PermissionError as error:
                why = f"{path} cannot be read ({error.strerror}), so what it holds is not known; {names.MOVE}"
                found = [(path, Problem(FindingKind.UNTRUSTED, why))]
            except FileNotFoundError:
                continue
            for place, problem in found:
                yield self.told(place, problem, printable(place.name, None))

    def clear(self, checked: Checked) -> Checked:
        """Remove a lock left behind, what is in the way of an entry, or an empty folder; nothing else."""
        path = Path(checked.entry)
        if names.python_of(path.name):
            return checked.mended() if _remove_empty(path) else checked
        with suppress(OSError, HeldError), names.open_cache(self.root, path.parent) as folder:
            if path.name == names.LOCK:
                return checked.mended() if locks.free_stale(folder, self.now_ns) else checked
            if names.is_key(path.name) and _holds_nothing(folder.lstat(path.name)):
                locks.free_stale(folder, self.now_ns)
                with locks.held(path.parent, self.now_ns), suppress(FileNotFoundError):
                    folder.unlink(path.name)
                return checked.mended()
        return checked

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """Whether PyOpenCL would serve a build."""
        try:
            here = Path.cwd()
        except OSError:  # it is gone
            here = Path(os.curdir)
        question = read_question(wanted, os.environ, here)
        return explaining.explain(question, list(names.cache_folders(self.root)), self.now_ns)

    def _faults(self, item: Files) -> list[Fault]:
        with item.open() as inner:
            return checks.faults(inner)

    def _is_busy(self, item: Files) -> bool:
        with suppress(OSError), files.open_folder(item.path.parent) as folder:
            age = locks.age_ns(folder, self.now_ns)
            return age is not None and age <= locks.STALE_NS
        return False

    def _is_shown(self, item: Files) -> bool:
        """Whether an entry is PyOpenCL's by the name of its cache or by its source, or holds nothing.

        Others, too, name folders by an MD5 and keep a file called ``info`` or ``binary`` in them.
        """
        if names.python_of(item.folder.parent.name) or not any(
            item.seen[name].st_size for name in item.names
        ):
            return True
        with suppress(OSError, FormatError):
            return sources.is_marked(item.read(names.SOURCE, entry_files.LARGEST_SOURCE_BYTES))
        return False


def _damage(item: Files) -> Problem | None:
    for name in (names.BINARY, names.INFO):
        if name not in item.seen:
            return Problem(FindingKind.TRUNCATED, f"{name} is missing")
        if item.seen[name].st_size == 0:
            return Problem(FindingKind.TRUNCATED, f"{name} is empty")
    return None


def _holds_nothing(status: os.stat_result) -> bool:
    """Whether nothing but a name goes with a link or a file."""
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size)


def _remove_empty(folder: Path) -> bool:
    """Remove the folder of another Python that has nothing in it; whether it is gone."""
    if names.python_of(folder.name) in ("", names.own_python()):
        return False
    with suppress(OSError):
        folder.rmdir()
        return True
    return False


FORMAT = PyOpencl
