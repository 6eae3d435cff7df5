"""The files of an installed compiler: its libraries, and the headers and functions that it reads.

This module distinguishes builds of one compiler version, by content and never by path, at a cost that every
start of a program can bear. It must not know any compiler: a backend lists the files.

A library is identified by its build id. If it has none and is larger than 1 MiB (Intel's are 200 MB), 256
blocks spread over the file are read, because an insertion anywhere moves everything after it. Other files
are read whole, because bitcode keeps its length when a constant changes. They are hashed by XXH3, which
reads 80 MB in some 10 ms; a user who could write these files needs no collision. Results are remembered: the
next process does not read a file again whose status is unchanged.

Loaded libraries are found on Linux only; sources: dladdr(3), dlinfo(3) and proc_pid_maps(5).
"""

import ctypes
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import xxhash

from gpucache.errors import FormatError
from gpucache.host.file_stamps import is_settled, stamp_of
from gpucache.keys import NOT_FOUND, REPLACED, digest
from gpucache.payload.elf import Library
from gpucache.sources import Memos

_RTLD_DI_LINKMAP = 2
_WHOLE_BYTES = 1024**2
_BLOCKS = 256
_BLOCK_BYTES = 4096
_CHUNK_BYTES = 1024**2
SYSTEM = (
    *("ld-linux", "linux-vdso", "libc.", "libm.", "libmvec.", "libdl.", "librt.", "libpthread."),
    *("libstdc++.", "libc++.", "libc++abi.", "libgcc_s.", "libatomic.", "libgomp."),
    *("libz.", "libzstd.", "liblzma.", "libbz2.", "libxml2.", "libicu", "libtinfo.", "libncurses"),
    *("libedit.", "libbsd.", "libmd.", "libffi.", "libudev.", "libnuma.", "libhwloc", "libtbb", "libcap."),
    *("libdrm", "libX11", "libxcb", "libwayland", "libexpat.", "libelf.", "libz3.", "libsensors."),
)
"""How the names of libraries begin that compile nothing, so that their updates change no binary."""


class Installation(NamedTuple):
    """The files of one compiler that exist."""

    libraries: tuple[Path, ...]
    """The compiler's own libraries, first the one that programs call; empty if it was not found."""
    builtins: tuple[Path, ...] | None = None
    """The headers and bitcode that it also reads; None if it is known to read none."""
    configuration: tuple[Path, ...] | None = None
    """The configuration files of the compiler; None if it is known to have none."""

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The fields of a toolchain that distinguish this build, by label. Raises nothing."""
        fields = [("compiler build", _all(marks_here(self.libraries)))]
        for label, paths in (("compiler built-ins", self.builtins), ("configuration", self.configuration)):
            if paths is not None:
                read = contents_here(paths).items()
                fields.append((label, _all(f"{path.name} {one}" for path, one in read)))
        return tuple(fields)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the compiler, under the paths where they were found: some may be links."""
        return (*self.libraries, *(self.builtins or ()), *(self.configuration or ()))


class _Info(ctypes.Structure):
    """The C struct ``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _LinkMap(ctypes.Structure):
    """The beginning of ``struct link_map``."""

    _fields_ = (("address", ctypes.c_void_p), ("file", ctypes.c_char_p))


def library_at(address: int) -> Path | None:
    """The file of the loaded library that contains an address."""
    if sys.platform != "linux":
        return None
    info = _Info()
    tell = getattr(ctypes.CDLL(None), "dladdr", None)  # an old libc has it elsewhere
    found = tell and tell(ctypes.c_void_p(address), ctypes.byref(info))
    return Path(os.fsdecode(info.file)) if found and info.file else None


def loaded(name: str) -> Path | None:
    """The file of a loaded library whose name begins with ``name``."""
    if sys.platform != "linux":
        return None
    try:
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    beginning = f"/{name}".encode()
    found = (b"/" + line.partition(b"/")[2] for line in maps.split(b"\n") if beginning in line)
    named = (path for path in found if path.rpartition(b"/")[2].startswith(beginning[1:]))
    return next((Path(os.fsdecode(path)) for path in named), None)


def loaded_as(name: str) -> Path | None:
    """The file of the library that is loaded under the name other libraries need it by; loads nothing.

    dl_iterate_phdr(3) would also find it, but could hang: the loader is locked during its callback, a
    callback in Python waits for the interpreter, and the thread that holds the interpreter may wait for the
    loader.
    """
    link = _link_map(name)
    return None if link is None else Path(os.fsdecode(link.file or b""))


def _start_of(library: Path) -> int | None:
    """Where in memory the library begins that is loaded under a path, whatever is at that path by now."""
    link = _link_map(str(library))
    return None if link is None else link.address


def _link_map(name: str) -> _LinkMap | None:
    if sys.platform != "linux":
        return None
    tell = getattr(ctypes.CDLL(None), "dlinfo", None)  # an old libc has it elsewhere
    try:
        handle = ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)._handle
    except OSError:
        return None
    link = ctypes.POINTER(_LinkMap)()
    if tell is None or tell(ctypes.c_void_p(handle), _RTLD_DI_LINKMAP, ctypes.byref(link)):
        return None
    return link.contents


def with_needed(library: Path) -> tuple[Path, ...]:
    """A loaded library and those loaded with it, except the system's."""
    found = {library: None}
    for path in (pending := [library]):
        for name in read_library(path).needed:
            needed = None if name.startswith(SYSTEM) else loaded_as(name)
            if needed is not None and needed not in found:
                found[needed] = None
                pending.append(needed)
    return tuple(found)


def matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """The files below a directory that match some patterns, sorted, each once."""
    names: list[str] | None = None
    found: set[Path] = set()
    for pattern in patterns:
        begin, star, end = pattern.partition("*")
        if set("/*?[") & {*begin, *end}:
            found.update(folder.glob(pattern))
        elif not star:
            found.add(folder / pattern)
        else:  # the usual case, and faster than an expression
            if names is None:
                names = _names_in(folder)
            longest = len(pattern) - 1
            fitting = (
                one for one in names if one.startswith(begin) and one.endswith(end) and len(one) >= longest
            )
            found.update(folder / name for name in fitting)
    return tuple(sorted(filter(Path.is_file, found)))


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - at every start
    except OSError:
        return []


@contextmanager
def remembered(memos: Memos | None, name: str) -> Iterator[None]:
    """Use, within the context, facts that earlier processes found in a compiler's files, and keep new ones.

    ``name`` is the name of its library. ``memos`` keep facts by a file's stamp, see ``host.file_stamps``.
    """
    shelf = digest(f"files of the compiler {name}".encode(errors="surrogateescape"))
    data = memos.recall(shelf) if memos is not None else None
    if data is not None:
        lines = (line.split("\t") for line in data.decode("utf-8", "surrogateescape").split("\n"))
        _facts.update({(row[0], row[1]): (row[2], row[3]) for row in lines if len(row) == 4})
    _asked.clear()
    yield
    if memos is not None and memos.keeps and any(_asked.values()):
        rows = [(*of, *fact) for of, fact in list(_facts.items()) if of in _asked]
        text = "\n".join("\t".join(row) for row in rows if not {*"\t\n"} & {*"".join(row)})
        memos.remember(shelf, text.encode("utf-8", "surrogateescape"))


_facts: dict[tuple[str, str], tuple[str, str]] = {}
"""The known facts of files, by question and path: the stamp that the file had, and the answer."""
_asked: dict[tuple[str, str], bool] = {}
"""The questions about the last compiler's files, and for each whether the file had to be read."""


def _fact(question: str, path: Path, read: Callable[[], str]) -> str:
    """The answer to a question about a file, read again only if its stamp changed; raises OSError."""
    now_ns = time.time_ns()
    status = os.stat(path)  # noqa: PTH116 - called at every start
    stamp = " ".join(map(str, stamp_of(status)))
    of = question, str(path)
    known = _facts.get(of)
    if known is None or known[0] != stamp:
        answer = read()
        if is_settled(path, status, now_ns):
            _facts[of] = stamp, answer
            _asked[of] = True
        return answer
    _asked.setdefault(of, False)
    return known[1]


def read_library(path: Path) -> Library:
    """The facts in a library's headers; empty if it cannot be read or is not a library."""

    def read() -> str:
        from gpucache.payload import elf, reading  # usually not needed, as the facts are remembered

        try:
            with path.open("rb") as stream:
                found = elf.read_library(reading.OnDisk.of(stream))
        except FormatError:
            found = Library()
        return "\x1e".join([found.build_id or "", *map("\x1f".join, found[1:])])

    try:
        build_id, *lists = _fact("headers", path, read).split("\x1e")
    except OSError:
        return Library()
    needed, rpath, runpath = (tuple(filter(None, one.split("\x1f"))) for one in lists)
    return Library(build_id or None, needed, rpath, runpath)


def search_places(file: Path, name: str, library_path: str) -> list[Path]:
    """Where the loader looks for a library that a file needs, and that file's directory. Source: ld.so(8)."""
    library = read_library(file)
    origin = str(file.parent)
    # DT_RPATH counts before LD_LIBRARY_PATH, and only if there is no DT_RUNPATH.
    before = () if library.runpath else library.rpath
    places = [*before, *library_path.split(":"), *library.runpath]
    return [
        *(Path(place.replace("$ORIGIN", origin)) / name for place in places if place),
        file.parent / name,
    ]


def mark(library: Path) -> str:
    """The build id of a library, else a digest of its content, else why it cannot be read."""
    return read_library(library).build_id or _content(library, _WHOLE_BYTES)


def _all(marks: Iterable[str]) -> str:
    """The value of a field for several files; if one was replaced, REPLACED and its name."""
    found = sorted(marks)
    gone = next((one for one in found if REPLACED in one), "")
    told = gone[gone.find(REPLACED) :] if gone else digest("\n".join(found).encode())
    return told if found else NOT_FOUND


def marks_here(libraries: Sequence[Path]) -> list[str]:
    """The mark of each library as this process runs it; of one that is not loaded yet, of its file.

    An upgrade replaces a file below the feet of processes that go on with the old library: its build id is in
    their memory. Without one it has no mark: the text begins with REPLACED, and nothing is kept for it.
    """
    _marks.update(here := _marks_now(libraries))
    return list(here.values())


def contents_here(files: Iterable[Path]) -> dict[Path, str]:
    """The content of each other file of a compiler, which may have read it at any time in its process's life.

    Of a file that was replaced since the process began the text begins with REPLACED.
    """
    _contents.update(here := {file: _content_now(file) for file in files})
    return here


def loaded_builds(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The marks of the loaded ones of some libraries, by labels, found once in a process.

    A library that is loaded later, next to one of the others, counts by the file that will be loaded.
    """
    images = _images() if any(name not in _builds for name in names) else {}
    folders = [Path(image.path).parent for name in names for image in images.get(name, ())]
    for name in names:
        there = [Path(image.path.removesuffix(_GONE)) for image in images.get(name, ())]
        there += () if there else sorted(one for folder in folders for one in folder.glob(f"{name}.so*"))[:1]
        if there and name not in _builds:
            _builds[name] = marks_here(there[:1])[0]
    return tuple((f"{name} build", _builds[name]) for name in names if name in _builds)


_GONE = " (deleted)"
"""The end of a path whose file was replaced: see proc_pid_maps(5)."""
_builds: dict[str, str] = {}
_marks: dict[Path, str] = {}
"""The marks by which this process knows its compilers' libraries."""
_contents: dict[Path, str] = {}


def replaced_file() -> Path | None:
    """A file of a compiler that was replaced since this process loaded it; None if there is none.

    Compilers load some of their libraries when they compile, and read other files then; all may be replaced
    before that.
    """
    marks = _marks_now(tuple(_marks))
    found = (file for file, known in tuple(_marks.items()) if known != marks[file])
    read = (file for file, known in tuple(_contents.items()) if known != _content_now(file))
    return next(found, None) or next(read, None)


def _content_now(file: Path) -> str:
    content = _content(file)
    return f"{REPLACED}{file}" if content != _contents.get(file) and _is_late(file) else content


def _is_late(file: Path) -> bool:
    """Whether a file has changed since this process began, so that it may have read the old one."""
    try:
        return os.stat(file).st_ctime_ns > _began_ns()  # noqa: PTH116 - at every start
    except OSError:
        return False


@cache
def _began_ns() -> int:
    """When this process began, to a tick of the system's clock; it ran Python a while later."""
    if sys.platform != "linux":
        return time.time_ns()
    try:
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + (ticks + 1) * tick_ns
    except OSError:
        return time.time_ns()


class _Image(NamedTuple):
    path: str
    start: int
    file: str
    """Device and inode as /proc/self/maps has them."""


def _marks_now(libraries: Sequence[Path]) -> dict[Path, str]:
    images = _images()
    places = {library: os.path.realpath(library) for library in libraries}
    there = {
        library: images.get(_stem(str(library)), ()) or images.get(_stem(place), ())
        for library, place in places.items()
    }
    known = {places[library]: _as_maps(places[library]) for library in libraries if there[library]}
    unsure = {
        places[library]
        for library, some in there.items()
        if some and not any((one.path, one.file) == (places[library], known[places[library]]) for one in some)
    }
    mapped = _mapped(unsure) if unsure else {}

    def now(library: Path) -> str:
        place = places[library]
        file = mapped.get(place, "") if place in unsure else known.get(place, "")
        # A hard link has another path. On Btrfs only stat(2) distinguishes files of two subvolumes.
        same = any(one.file == file and (one.path == place or file == known[place]) for one in there[library])
        # An overlay keeps the numbers of a file that is written in place, and its process the old content.
        sure = not _is_late(library) or mark(library) == _marks.get(library)
        if not there[library] or (same and sure):
            return mark(library)
        beside = os.path.dirname(place), os.path.dirname(library)  # noqa: PTH120 - at every start
        own = [one.start for one in there[library] if os.path.dirname(one.path) in beside]  # noqa: PTH120
        own = own or [one.start for one in there[library] if one.start == _start_of(library)]
        builds = {_build_id_at(start) for start in own}
        if not own or mark(library) in builds:
            return mark(library)
        return (builds.pop() if len(builds) == 1 else None) or f"{REPLACED}{library}"

    return {library: now(library) for library in libraries}


def _as_maps(path: str) -> str:
    """Device and inode of a file as /proc/self/maps has them on most file systems."""
    if sys.platform == "win32":
        return ""
    try:
        status = os.stat(path)  # noqa: PTH116 - at every start
    except OSError:
        return ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x} {status.st_ino}"


def _mapped(paths: Iterable[str]) -> dict[str, str]:
    """Device and inode of some files as /proc/self/maps really has them, as on Btrfs and overlays."""
    import mmap

    if sys.platform == "win32":
        return {}

    before = Counter((one.path, one.file) for some in _read_images().values() for one in some)
    with ExitStack() as stack:
        for path in paths:
            with suppress(OSError, ValueError), Path(path).open("rb") as file:
                stack.enter_context(mmap.mmap(file.fileno(), 1, mmap.MAP_PRIVATE, mmap.PROT_READ))
        after = Counter((one.path, one.file) for some in _read_images().values() for one in some)
    return dict((after - before).keys())


class _Loads(ctypes.Structure):
    """The beginning of ``struct dl_phdr_info``, see dl_iterate_phdr(3)."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
        ("loaded", ctypes.c_ulonglong),
        ("unloaded", ctypes.c_ulonglong),
    )


@cache
def _loads() -> Callable[[], tuple[int, int] | None]:
    """The function that counts the libraries that this process has loaded and unloaded."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loads), ctypes.c_size_t, ctypes.c_void_p)
    found: list[tuple[int, int] | None] = [None]

    def take(info: Any, _size: int, _data: object) -> int:
        found[0] = info.contents.loaded, info.contents.unloaded
        return 1

    try:
        # It holds a lock of the linker, and so must not wait for Python's meanwhile.
        iterate, taken = ctypes.PyDLL(None).dl_iterate_phdr, kind(take)
    except Exception:  # no executable memory, or another system
        return lambda: None

    def counted() -> tuple[int, int] | None:
        iterate(taken, None)
        return found[0]

    return counted


_images_before: tuple[tuple[int, int] | None, dict[str, list[_Image]]] = None, {}


def _images() -> dict[str, list[_Image]]:
    """The loaded libraries' images by stems of their names. A file that was replaced since the last library
    was loaded may lack the mark of that: its numbers tell it."""
    global _images_before
    loads = _loads()()
    if loads is None or loads != _images_before[0]:
        _images_before = loads, _read_images()
    return _images_before[1]


def _read_images() -> dict[str, list[_Image]]:
    found: dict[str, list[_Image]] = {}
    if sys.platform == "linux":
        try:
            maps = Path("/proc/self/maps").read_bytes()
        except OSError:
            return found
        for line in maps.split(b"\n"):
            columns = line.split(None, 5)
            if len(columns) == 6 and not columns[2].strip(b"0") and b".so" in columns[5]:
                path, start = os.fsdecode(columns[5]), int(columns[0].partition(b"-")[0], 16)
                image = _Image(path, start, f"{columns[3].decode()} {columns[4].decode()}")
                found.setdefault(_stem(path), []).append(image)
    return found


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".so")[0]


def _build_id_at(start: int) -> str | None:
    from gpucache.payload import elf

    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            return elf.loaded_build_id(_Memory(memory, start))
    except (OSError, FormatError):
        return None


class _Memory(NamedTuple):
    """A loaded library in this process's memory: see ``gpucache.payload.elf.Source``."""

    memory: BinaryIO
    start: int

    def require(self, end: int, part: str) -> None:
        """Do nothing: a part that is not mapped cannot be read."""

    def cut(self, start: int, end: int) -> bytes:
        self.memory.seek(self.start + start)
        return self.memory.read(end - start)


def _content(path: Path, whole_bytes: int | None = None) -> str:
    """XXH3-128 of a file in hex with its size; only parts of a file larger than ``whole_bytes`` are read."""

    def read() -> str:
        hasher = xxhash.xxh3_128()
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if whole_bytes is not None and size > whole_bytes:
                for number in range(_BLOCKS):  # spread evenly, including the first and the last
                    file.seek((size - _BLOCK_BYTES) * number // (_BLOCKS - 1))
                    hasher.update(file.read(_BLOCK_BYTES))
            else:
                buffer = memoryview(bytearray(_CHUNK_BYTES))
                while length := file.readinto(buffer):
                    hasher.update(buffer[:length])
        return f"{hasher.hexdigest()} of {size} bytes"

    try:
        return _fact(f"content {whole_bytes}", path, read)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
