"""The properties of a shared library that the loader uses. A value; ``elf`` reads it."""

from typing import NamedTuple


class Library(NamedTuple):
    """A shared library by its headers."""

    build_id: str | None = None
    """In hex, from ``NT_GNU_BUILD_ID`` of the GNU tools."""
    needed: tuple[str, ...] = ()
    """The names of libraries that are loaded with it."""
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
