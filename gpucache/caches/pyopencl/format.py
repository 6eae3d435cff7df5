"""PyOpenCL's compiler cache: a directory per Python version, in it one for each program and device.

``entries`` owns the files of an entry, their problems, the headers and the lock, ``key`` the MD5 that names
an entry, ``locations`` the places of the directories. Source: PyOpenCL, ``pyopencl/cache.py`` and
``pyopencl/__init__.py`` of 2026.1.

PyOpenCL does not use this cache for PoCL and NVIDIA. The SQLite dictionaries of pytools, where PyOpenCL keeps
the invokers it generates, are another cache and are not read. PyOpenCL itself is never imported.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import cast

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches import files, interpreters
from gpucache.caches.binary_format import needed
from gpucache.caches.comparison import Field, TextsAlike, compared, once
from gpucache.caches.files import Files
from gpucache.caches.format import Format, HeldError, UnjudgedError
from gpucache.caches.interface import Wanted
from gpucache.caches.layout import Layout, Node, Role, Whose
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.caches.pyopencl import entries, locations
from gpucache.caches.pyopencl.key import LABELS, all_options, key_of, read_devices, version_numbers
from gpucache.caches.pyopencl.locations import PyOpenclPlaces
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.model import BuildRequest, Toolchain
from gpucache.payload import PayloadKind
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

_UNPROVEN = "nothing in it shows that PyOpenCL made it; remove it yourself if it is PyOpenCL's"
_SPIRV = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
_LEFT_TO_DRIVER = {
    "Portable Computing Language": "PoCL's own cache",
    "NVIDIA CUDA": "the CUDA driver's own cache",
}
_SCANNED_BYTES = 4 << 20
"""The beginning of a larger binary that a scan reads, which gives its kind."""


class PyOpencl(PyOpenclPlaces, Format):
    """The cache of programs that build OpenCL sources with PyOpenCL, except for PoCL and NVIDIA.

    A root is a directory with entries, or one with such directories by Python version. Nothing is traced:
    hits and misses go to Python's logging at DEBUG, which no variable turns on.
    """

    layout = Layout(
        [f"{locations.ANY_VERSION}/({locations.KEY})/", f"({locations.KEY})/"],
        own=[locations.LOCK, f"{locations.ANY_VERSION}/{locations.LOCK}"],
        signs=[f"{locations.KEY}/(?:source\\.cl|binary|info)", locations.ANY_VERSION],
    )
    wanted = {
        "source": "the OpenCL C text that the program builds, as it gives it to PyOpenCL",
        "options": "build options as the program gives them, in one text or repeated in their order; "
        "PyOpenCL's own options are added",
        "device": f"{'/'.join(LABELS)} as one text, or repeated seven times where a name has a slash; all as "
        "OpenCL reports them",
        "pyopencl": "PyOpenCL's version, such as 2026.1.4; else the one installed with gpucache",
    }
    compared = {"source": Field(4, TextsAlike(), 0.5), "options": Field(2), "device": Field(), "key": Field()}
    decides = "device"
    unstored = "device, driver or PyOpenCL's version, which an entry does not store"
    _key: Callable[[str], str]
    """The key of the requested source with these options."""
    fixes = frozenset(FindingKind)
    barred_by_links = False
    distribution = "pyopencl"
    moving = Moving(
        tells="paths and source text",
        sources=True,
        untold=(Fact.VERSION, Fact.DRIVER),
    )
    leaves_to_owner = False
    """PyOpenCL unpickles the files of an entry, whichever user wrote them."""

    @classmethod
    def question(cls, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        told = dict(toolchain.fields)
        return {
            "source": (request.program.source,),
            "options": tuple(option.encode(errors="surrogateescape") for option in request.options),
            "device": tuple(told.get(label, "").encode(errors="surrogateescape") for label in LABELS),
        }

    @classmethod
    def whose(cls, path: Path) -> Whose:
        if path.is_dir() and (locations.python_of(path.name) or locations.version_folders(path)):
            return Whose.OWN
        found = cls.layout.whose(path)
        return Whose.UNKNOWN if found is Whose.FOREIGN and path.name == cls.name else found

    def items(self, prefix: str) -> Iterator[Files]:
        folders = list(locations.cache_folders(self.root))
        return (item for item in super().items(prefix) if item.folder.parent in folders)

    def trust(self, item: Files) -> Iterator[Problem]:
        yield from ()

    def look(self, item: Files) -> CacheEntry:
        binary = item.seen.get(entries.BINARY) or next(iter(item.seen.values()))
        described = source = info = None
        with item.open() as inner:
            with suppress(OSError, FormatError):
                described = payloads.describe(files.read_part(inner, entries.BINARY, 0, _SCANNED_BYTES))
            with suppress(OSError, FormatError):
                source = entries.read_source(inner)
            with suppress(OSError, FormatError):
                info = entries.info_of(inner)
        options = info.options if info else None
        kernels = tuple(kernel_names(source or b""))
        python = locations.python_of(item.folder.parent.name)
        more = len(kernels) - 1
        others = f"and {more} more kernel{'s' if more > 1 else ''}" if more > 0 else ""
        fields = [("source", "missing" if source is None else digest(source))]
        if options is not None:
            fields.append(("options", options))
        return self.entry(item)._replace(
            program=kernels[0] if kernels else "",
            target=entries.device_of(described) if described else "",
            artifact_kind=described.kind.value if described else "",
            variant="; ".join(filter(None, (others, options))),
            fields=tuple(fields),
            damage=_damage(item),
            created_ns=binary.st_mtime_ns,
            last_used_ns=max(binary.st_atime_ns, binary.st_mtime_ns),
            stays="" if info is not None or self._shows(item) else _UNPROVEN,
            gone=f"Python {python}" if python and interpreters.is_gone(python) else "",
        )

    def check(self, item: Files) -> Iterator[Problem]:
        found = self._problems(item)
        return (one for one in found if one.paths is not None or not self._is_busy(item))

    def notes(self, item: Files) -> Iterator[str]:
        with item.open() as inner:
            found = [*entries.notes(inner)]
            if self._is_busy(item) and any(one.paths is None for one in self._problems(item)):
                lock = item.folder.parent / locations.LOCK
                found.append(f"it may be half written, as PyOpenCL's lock {lock} is held; check again")
        return (f"{item.key[:12]}: {note}" for note in found)

    def unsound(self, item: Files) -> Problem | None:
        with item.open() as inner:
            found = entries.binary(inner, set(item.seen))
        return next((one for one in found if one.kind and one.kind.wrong), None)

    def payload(self, item: Files) -> bytes:
        return item.read(entries.BINARY, entries.LARGEST_BINARY_BYTES)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        with item.open() as inner:
            headers = entries.info_of(inner).dependencies
            yield "size of the source", format_size(len(entries.read_source(inner)))
        states = dict.fromkeys(headers, "unchanged")
        states |= {one: "changed" for one, _, _ in entries.changed(headers)}
        for one, state in states.items():
            yield f"header {printable(one.path, None)}", f"{one.md5}, {state}"

    def log(self, item: Files) -> str:
        with item.open() as inner:
            return entries.info_of(inner).log

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """PyOpenCL's lock of one Python's directory, taken as PyOpenCL takes it, which makes that first."""
        from gpucache.caches.restoring import make_folder  # only pull needs it

        make_folder(item.path.parent)
        return entries.held(item.path.parent, self.now_ns)

    def remove(self, item: Files) -> Kept | None:
        if not item.unchanged():
            return Kept()
        foreign = [name for name in item.names if name not in entries.PARTS]
        if foreign:
            return Kept(
                f"its directory contains {printable(foreign[0], None)}, not PyOpenCL's; remove that yourself"
            )
        return super().remove(item)

    def removal_order(self, present: Sequence[str]) -> Sequence[str]:
        # If a removal stops there, PyOpenCL finds an entry without it and builds it again.
        return [name for name in reversed(entries.PARTS) if name in present]

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """Its Python, the device if the binary has it, and the place of PyOpenCL, whose headers' directory is
        an option of each build, if the log has the options."""
        if python := locations.python_of(item.folder.parent.name):
            yield Fact.PYTHON, python
        of_intel = look.artifact_kind in (PayloadKind.INTEL_CPU, PayloadKind.INTEL_GPU)  # without a name
        if look.target and not of_intel:
            yield Fact.ARCHITECTURE, look.target
        yield from needed(item.part(entries.BINARY, 0, _SCANNED_BYTES))
        if place := entries.installed_at(dict(look.fields).get("options", "")):
            yield Fact.PATH, place

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        above = f"{self.root.name}/" if locations.python_of(self.root.name) else ""
        moved = [one._replace(name=above + one.name) for one in super().files_to_move(item)]
        _require_headers(moved)
        return moved

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        """The files, unless they are of another Python, or of headers that differ on this machine: PyOpenCL
        compares those by their paths."""
        _require_headers(entry.files)
        above = f"{self.root.name}/" if locations.python_of(self.root.name) else ""
        if not all(one.name.startswith(above) for one in entry.files):
            raise UnjudgedError("it is of another Python, whose programs use another directory")
        return [one._replace(name=one.name.removeprefix(above)) for one in entry.files]

    def fix(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        with files.open_folder(item.path.parent) as folder:
            entries.free_stale(folder, self.now_ns)
        return super().fix(item, problems)

    def finish_removals(self) -> Sequence[str]:
        folders = list(locations.cache_folders(self.root))
        return tuple(f"{folder} is empty and was removed" for folder in folders if _remove_empty(folder))

    def beside(self) -> Iterator[Checked]:
        yield from super().beside()
        for path in locations.cache_folders(self.root):
            with suppress(OSError), self._opened(path) as folder:
                if found := entries.obstacle(folder, self.now_ns):
                    yield self.told(path / locations.LOCK, found)

    def _beside(self, node: Node) -> Problem | None:
        """The problem of a file in place of an entry; a group that may write is a problem of the root."""
        if (
            node.role is Role.STRANGER
            and locations.is_key(node.parts[-1])
            and not stat.S_ISDIR(node.status.st_mode)
        ):
            detail = f"it is not a directory but has an entry's name; move it away: {entries.DIES}"
            return Problem(FindingKind.CORRUPT, detail)
        return None if node.role is Role.FOLDER else super()._beside(node)

    def _opened(self, path: Path) -> Folder:
        """A directory of entries: the root, which may be a link, or one in it that is not. Raises OSError."""
        return files.open_folder(self.root, *(() if path == self.root else (path.name,)))

    def clear(self, checked: Checked) -> Checked:
        path = Path(checked.entry)
        with suppress(OSError, HeldError), self._opened(path.parent) as folder:
            if path.name == locations.LOCK:
                return checked.fixed() if entries.free_stale(folder, self.now_ns) else checked
            status = folder.lstat(path.name)
            # A link or a file without bytes is removed without losing more than its name.
            empty = stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size)
            if locations.is_key(path.name) and empty:
                entries.free_stale(folder, self.now_ns)
                with entries.held(path.parent, self.now_ns), suppress(FileNotFoundError):
                    folder.unlink(path.name)
                return checked.fixed()
        return checked

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """An answer for each device; without devices no key can be computed."""
        source, version = once(wanted, "source"), (once(wanted, "pyopencl") or b"").decode("utf-8", "replace")
        if source is None:
            raise UsageError("the field 'source' is missing; give the program's source with source=@FILE")
        given = [_text(one) for value in wanted.get("options", ()) for one in value.split(b" ")]
        devices = read_devices([_text(one) for one in wanted.get("device", ())])
        words = f"source of {format_size(len(source))}"
        if source.startswith(_SPIRV):
            detail = "PyOpenCL does not cache programs that are given as SPIR-V"
            yield Reach(self.name, words, Verdict.UNCACHEABLE, detail)
            return
        for folder in locations.cache_folders(self.root):
            with suppress(OSError), self._opened(folder) as opened:
                lock = entries.obstacle(opened, self.now_ns)
                if lock and lock.kind is not FindingKind.LOCKED:
                    yield Reach(self.name, words, Verdict.NOT_CONSULTED, lock.detail)
                    return
        text = source.decode("utf-8", "replace")
        options = all_options(given, os.environ)
        for device in devices:
            if other := _LEFT_TO_DRIVER.get(device.platform_name):
                detail = f"PyOpenCL leaves programs for {device.platform_name} to {other}"
                yield Reach(self.name, words, Verdict.NOT_CONSULTED, detail)
                continue
            self._key = partial(key_of, source, device=device, version=version_numbers(version))
            asked = {"source": text, "options": options, "device": device.name, "key": self._key(options)}
            yield compared(self, asked)
        if not devices:
            yield compared(self, {"source": text, "options": options})

    def stored(self, entry: CacheEntry, asked: Mapping[str, str]) -> Mapping[str, Sequence[str] | None]:
        """Source and options if they are known, and the key unless one of them explains that it differs."""
        source = options = None
        with cast("Files", entry.handle).open() as inner:
            with suppress(OSError, FormatError):
                source = entries.read_source(inner).decode("utf-8", "replace")
            with suppress(OSError, FormatError):
                options = entries.info_of(inner).options
        known = options is not None and "key" in asked and self._key(options) == entry.key
        explained = known or (source is not None and source != asked["source"])
        return {
            "source": None if source is None else [source],
            "options": None if options is None else [options],
            "device": None,
            "key": None if explained else [entry.key],
        }

    def hinders(self, entry: CacheEntry) -> Problem | None:
        found = self._problems(cast("Files", entry.handle))
        return next((one for one in found if not entries.served(one)), None)

    def _problems(self, item: Files) -> list[Problem]:
        with item.open() as inner:
            return entries.problems(inner)

    def _is_busy(self, item: Files) -> bool:
        with suppress(OSError), files.open_folder(item.path.parent) as folder:
            found = entries.obstacle(folder, self.now_ns)
            return found is not None and found.kind is FindingKind.LOCKED
        return False

    def _shows(self, item: Files) -> bool:
        """Whether an entry is PyOpenCL's by its cache's name or its source, or is empty.

        Other programs also name directories by an MD5 and keep a file ``info`` or ``binary`` in them.
        """
        if locations.python_of(item.folder.parent.name) or not any(
            item.seen[name].st_size for name in item.names
        ):
            return True
        with suppress(OSError, FormatError):
            source = item.read(entries.SOURCE, entries.LARGEST_SOURCE_BYTES)
            return len(entries.as_written(source)) < len(source)
        return False


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _require_headers(moved: Sequence[PortableFile]) -> None:
    """Raise UnjudgedError unless all headers of an entry are as they were at its build; FormatError."""
    found = {one.name.rpartition("/")[2]: one.data for one in moved}
    if not {entries.INFO, entries.SOURCE} <= found.keys():
        raise FormatError(f"it has no {entries.INFO} or no {entries.SOURCE}")
    headers = entries.read_info(found[entries.INFO]).dependencies
    if why := entries.differing(entries.as_written(found[entries.SOURCE]), headers):
        raise UnjudgedError(f"its headers have to be the same, and {why}")


def _damage(item: Files) -> Problem | None:
    for name in (entries.BINARY, entries.INFO):
        if name not in item.seen:
            return Problem(FindingKind.TRUNCATED, f"{name} is missing")
        if item.seen[name].st_size == 0:
            return Problem(FindingKind.TRUNCATED, f"{name} is empty")
    return None


def _remove_empty(folder: Path) -> bool:
    """Remove an empty directory of another Python; whether it is gone."""
    if locations.python_of(folder.name) in ("", locations.own_python()):
        return False
    with suppress(OSError):
        folder.rmdir()
        return True
    return False
