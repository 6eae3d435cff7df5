"""The arguments of the library's calls, read into plain values.

Owns the refusals and their messages. Must not know how they are used.
"""

import os
from collections.abc import Iterable, Mapping
from operator import index
from pathlib import Path
from typing import Any

from gpucache.model import Checks

NAME_HEADERS = "name the headers with the argument headers=[...]"


def current_directory() -> str:
    """The current directory, for compilers; if it was removed, a path below which there is nothing."""
    try:
        return os.getcwd()  # noqa: PTH109 - text in, text out
    except OSError:
        return os.devnull


def source_bytes(source: object) -> bytes:
    """The argument ``source``; raises TypeError unless it is text or bytes, ValueError for a path."""
    if isinstance(source, str):
        if source.endswith((".cl", ".cu", ".hip")) and len(source.split()) == 1:  # no program is one word
            raise ValueError(
                f"source is the text of a program, and {source!r} looks like a path; read the file"
            )
        return source.encode()
    if isinstance(source, os.PathLike):
        raise TypeError(f"source is the text of a program, not a path; pass {source!r}.read_text()")
    if not isinstance(source, bytes):
        raise _unfit("source", "text or bytes", source)
    return source


def text_or_none(argument: str, value: object) -> str | None:
    """An argument that is text or None; raises TypeError."""
    if value is not None and not isinstance(value, str):
        raise _unfit(argument, "text", value)
    return value


def texts(argument: str, values: object) -> tuple[str, ...]:
    """An argument that is a list of texts; raises TypeError, also for a single text."""
    listed = _listed(argument, "a list of texts", values)
    if not all(isinstance(value, str) for value in listed):
        raise _unfit(argument, "a list of texts", values)
    return listed


def checks_mode(value: object) -> Checks:
    """The argument ``checks``; raises TypeError or ValueError."""
    wanted = f"one of {', '.join(map(repr, map(str, Checks)))}"
    if not isinstance(value, str):
        raise _unfit("checks", wanted, value)
    try:
        return Checks(value)
    except ValueError:
        raise ValueError(f"checks must be {wanted}, not {_shown(value)}") from None


def build_options(options: object) -> str | tuple[str, ...]:
    """The argument ``options``: one text or a list of them; raises TypeError."""
    return options if isinstance(options, str) else texts("options", options)


def paths(argument: str, values: object, cwd: str = "") -> tuple[str, ...]:
    """An argument that is a list of paths, relative to ``cwd``; raises TypeError, also for a single path."""
    listed = _listed(argument, "a list of paths", values)
    if not all(isinstance(value, str | Path) for value in listed):
        raise _unfit(argument, "a list of paths", values)
    return tuple(os.path.join(cwd, value) for value in listed)  # noqa: PTH118 - text in, text out


def local_sizes(sizes: object) -> tuple[tuple[int, ...], ...]:
    """The argument ``local_sizes``; a number means one dimension. Raises TypeError or ValueError."""
    wanted = "a list of sizes of one to three whole numbers above 0, such as [(64,), (16, 16)]"
    read = []
    for size in _listed("local_sizes", wanted, sizes):
        try:
            try:
                extents: tuple[int, ...] = (index(size),)
            except TypeError:  # an array has __index__, which fails unless it contains one number
                extents = tuple(map(index, size))
        except TypeError:
            raise _unfit("local_sizes", wanted, sizes) from None
        if not 1 <= len(extents) <= 3 or min(extents) < 1:
            raise ValueError(f"local_sizes must be {wanted}, not {_shown(sizes)}")
        read.append(extents)
    return tuple(read)


def specialization_constants(values: object) -> tuple[str, ...]:
    """The options for constants by number, whose values are buffers; raises TypeError or ValueError."""
    wanted = "numbers with values of a size, such as {3: numpy.uint32(64)}"
    if not isinstance(values, Mapping):
        raise _unfit("specialization_constants", wanted, values)
    if not values:
        return ()
    from gpucache.payload.spirv import constant_option

    try:
        read = {index(number): bytes(memoryview(value)) for number, value in values.items()}
    except TypeError:
        raise _unfit("specialization_constants", wanted, values) from None
    if not all(0 <= number < 1 << 32 and value for number, value in read.items()):
        raise ValueError(f"specialization_constants must be {wanted}, not {_shown(values)}")
    return tuple(constant_option(*one) for one in sorted(read.items()))


def _listed(argument: str, wanted: str, values: object) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _unfit(argument, wanted, values)
    return tuple(values)


def _unfit(argument: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{argument} must be {wanted}, not {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
