"""The files that a compiler is installed as: its libraries, and the headers and functions that it reads.

This module distinguishes builds of one compiler version, by content and never by place, at a cost that every
start of a program can bear. It must not know any compiler: a backend says which files there are.

A library is recognised by its build id. Of a library that has none and is larger than 1 MiB (Intel's are
200 MB), 256 blocks spread over the file are read, because whatever is inserted anywhere moves all that
follows. Other files are read whole, because bitcode in which one constant changed is as long as before. They
are hashed by XXH3, which reads 80 MB in some 10 ms; nobody who could write these files needs a collision.
What was read is remembered: a file whose status is as it was is not read again by the next process.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import xxhash

from gpucache.backends import libraries
from gpucache.backends.libraries import loaded_as
from gpucache.host.file_stamps import is_settled, stamp_of
from gpucache.keys import NOT_FOUND, digest
from gpucache.payload.library import Library
from gpucache.sources import Memos

_WHOLE_BYTES = 1024**2
_BLOCKS = 256
_BLOCK_BYTES = 4096
_CHUNK_BYTES = 1024**2
_SYSTEM = (
    *("ld-linux", "linux-vdso", "libc.", "libm.", "libmvec.", "libdl.", "librt.", "libpthread."),
    *("libstdc++.", "libc++.", "libc++abi.", "libgcc_s.", "libatomic.", "libgomp."),
    *("libz.", "libzstd.", "liblzma.", "libbz2.", "libxml2.", "libicu", "libtinfo.", "libncurses"),
    *("libedit.", "libbsd.", "libmd.", "libffi.", "libudev.", "libnuma.", "libhwloc", "libtbb", "libcap."),
    *("libdrm", "libX11", "libxcb", "libwayland", "libexpat.", "libelf.", "libz3.", "libsensors."),
)
"""The beginnings of names of libraries that compile nothing, so that their updates change no binary."""


class Installation(NamedTuple):
    """The files of one compiler that are there."""

    libraries: tuple[Path, ...]
    """The compiler's own libraries, the one that is called first; empty if that was not found."""
    builtins: tuple[Path, ...] | None = None
    """Headers and bitcode that it reads beside them; None if it is known to read none."""
    configuration: tuple[Path, ...] | None = None
    """The files that it configures itself from; None if it is known to have none."""

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The fields of a toolchain that distinguish this build from others, by label. Raises nothing."""
        build = [mark(path) for path in self.libraries]
        fields = [("compiler build", digest("\n".join(sorted(build)).encode()) if build else NOT_FOUND)]
        for label, paths in (("compiler built-ins", self.builtins), ("configuration", self.configuration)):
            if paths is not None:
                read = sorted(f"{path.name} {_content(path)}" for path in paths)
                fields.append((label, digest("\n".join(read).encode()) if read else NOT_FOUND))
        return tuple(fields)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the compiler, as they were found: some may be links."""
        return (*self.libraries, *(self.builtins or ()), *(self.configuration or ()))


def with_needed(library: Path) -> tuple[Path, ...]:
    """A loaded library and those that were loaded with it, without the system's."""
    found = {library: None}
    for path in (pending := [library]):
        for name in read_library(path).needed:
            needed = None if name.startswith(_SYSTEM) else loaded_as(name)
            if needed is not None and needed not in found:
                found[needed] = None
                pending.append(needed)
    return tuple(found)


def matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """The files below a folder that match some patterns, sorted and each once."""
    names: list[str] | None = None
    found: set[Path] = set()
    for pattern in patterns:
        begin, star, end = pattern.partition("*")
        if set("/*?[") & {*begin, *end}:
            found.update(folder.glob(pattern))
        elif not star:
            found.add(folder / pattern)
        else:  # as the most are, and quicker than an expression
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
    """Use, within it, what earlier processes found in the files of a compiler, and keep what is new.

    ``name`` is that of its library. ``memos`` keep facts by the stamp of a file, see ``host.file_stamps``.
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
"""What is known of a file by the question and its path: the stamp that it had, and the answer."""
_asked: dict[tuple[str, str], bool] = {}
"""The questions of the last compiler, and whether the file was read for it."""


def _fact(question: str, path: Path, read: Callable[[], str]) -> str:
    """The answer to a question about a file, read again unless its stamp is as it was; raises OSError."""
    now_ns = time.time_ns()
    status = os.stat(path)  # noqa: PTH116 - asked at every start
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
    """What a library's headers say; empty if it cannot be read or is none."""

    def read() -> str:
        found = libraries.read_library(path)
        return "\x1e".join([found.build_id or "", *map("\x1f".join, found[1:])])

    try:
        build_id, *lists = _fact("headers", path, read).split("\x1e")
    except OSError:
        return Library()
    needed, rpath, runpath = (tuple(filter(None, one.split("\x1f"))) for one in lists)
    return Library(build_id or None, needed, rpath, runpath)


def mark(library: Path) -> str:
    """The build id of a library, else a digest of its content, else why it cannot be read."""
    return read_library(library).build_id or _content(library, _WHOLE_BYTES)


def _content(path: Path, whole_bytes: int | None = None) -> str:
    """XXH3-128 of a file in hex with its size; only parts of a file larger than ``whole_bytes`` are read."""

    def read() -> str:
        hasher = xxhash.xxh3_128()
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if whole_bytes is not None and size > whole_bytes:
                for number in range(_BLOCKS):  # spread evenly, the first and the last among them
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
