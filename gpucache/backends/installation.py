"""What a compiler is installed as: its libraries, and the headers and functions of its own that it reads.

Owns telling one build of a compiler from another under the same version, by content and never by place,
at a cost that every start of a program can bear. Must not know any compiler: a backend says which files
there are.

A library is told by its build id. Of one without that is larger than 1 MiB (Intel's are 200 MB) 256
blocks spread over it are read, since what is inserted anywhere moves all that follows.
Other files are read whole: bitcode in which one constant changed is as long as before. They are
hashed by XXH3, which reads 80 MB in some 10 ms; nobody who could write them needs a collision.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path

import xxhash

from gpucache.backends.libraries import loaded_as, read_library
from gpucache.keys import NOT_FOUND, digest

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
"""The beginnings of names of libraries that compile nothing: what an update of them changes is no binary."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The files of one compiler, as far as they are there."""

    libraries: tuple[Path, ...]
    """The compiler's own, the one that is called first; empty where it was not found."""
    builtins: tuple[Path, ...] | None = None
    """Files that it reads beside them, headers and bitcode; None where it is known to read none."""
    configuration: tuple[Path, ...] | None = None
    """Likewise the files that it configures itself from."""

    def fields(self) -> tuple[tuple[str, str], ...]:
        """What tells this build from others, for a toolchain: labels and values. Raises nothing."""
        build = [mark(path) for path in self.libraries]
        fields = [("compiler build", digest("\n".join(sorted(build)).encode()) if build else NOT_FOUND)]
        for label, paths in (("compiler built-ins", self.builtins), ("configuration", self.configuration)):
            if paths is not None:
                read = sorted(f"{path.name} {_content(path)}" for path in paths)
                fields.append((label, digest("\n".join(read).encode()) if read else NOT_FOUND))
        return tuple(fields)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are the compiler's own, as they were found: some may be links."""
        return (*self.libraries, *(self.builtins or ()), *(self.configuration or ()))


def with_needed(library: Path) -> tuple[Path, ...]:
    """A loaded library and those that were loaded with it, the system's left out."""
    found = {library: None}
    for path in (pending := [library]):
        for name in read_library(path).needed:
            needed = None if name.startswith(_SYSTEM) else loaded_as(name)
            if needed is not None and needed not in found:
                found[needed] = None
                pending.append(needed)
    return tuple(found)


def matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """The files below a folder that match some patterns, each once, in an order of their own."""
    return tuple(sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}))


@cache
def mark(library: Path) -> str:
    """The build id of a library, or what tells its content; of its own where it cannot be read."""
    return read_library(library).build_id or _content(library, _WHOLE_BYTES)


def _content(path: Path, whole_bytes: int | None = None) -> str:
    """XXH3-128 of a file in hex, or of parts of it where it is larger than asked for, with its size."""
    hasher = xxhash.xxh3_128()
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if whole_bytes is not None and size > whole_bytes:
                for block in _blocks(file, size):
                    hasher.update(block)
            else:
                buffer = memoryview(bytearray(_CHUNK_BYTES))
                while length := file.readinto(buffer):
                    hasher.update(buffer[:length])
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return f"{hasher.hexdigest()} of {size} bytes"


def _blocks(file: FileIO, size: int) -> Iterator[bytes]:
    """Blocks spread evenly over a file, the first and the last among them."""
    for number in range(_BLOCKS):
        file.seek((size - _BLOCK_BYTES) * number // (_BLOCKS - 1))
        yield file.read(_BLOCK_BYTES)
