"""The files that a compiler is installed as: its libraries, and the headers and functions that it reads.

This module distinguishes builds of one compiler version, by content and never by place, at a cost that every
start of a program can bear. It must not know any compiler: a backend says which files there are.

A library is recognised by its build id. Of a library that has none and is larger than 1 MiB (Intel's are
200 MB), 256 blocks spread over the file are read, because whatever is inserted anywhere moves all that
follows. Other files are read whole, because bitcode in which one constant changed is as long as before. They
are hashed by XXH3, which reads 80 MB in some 10 ms; nobody who could write these files needs a collision.
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    return tuple(sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}))


@cache
def mark(library: Path) -> str:
    """The build id of a library, else a digest of its content, else why it cannot be read."""
    return read_library(library).build_id or _content(library, _WHOLE_BYTES)


def _content(path: Path, whole_bytes: int | None = None) -> str:
    """XXH3-128 of a file in hex with its size; only parts of a file larger than ``whole_bytes`` are read."""
    hasher = xxhash.xxh3_128()
    try:
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
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return f"{hasher.hexdigest()} of {size} bytes"
