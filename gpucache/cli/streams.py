"""stdin, stdout and stderr of the process: there, able to take any text, and given up when nobody listens.

Owns what is done about closed descriptors, full devices and terminals that cannot show every character.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO, cast


def prepare() -> None:
    """Make all three usable: what is closed leads nowhere, what cannot be encoded is spelled."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # else the next file that is opened would get what is printed
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives on
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__ or sys.__stdout__ is None:
        _watch_product()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _watch_product() -> None:
    """Have stdout remember what does not reach it; Windows' consoles want a stream of their own kind."""
    if sys.platform != "win32":
        raw = _Product(1, "w", closefd=False)
        through = getattr(sys.stdout, "write_through", False)
        sys.stdout = io.TextIOWrapper(
            cast("BinaryIO", raw) if through else io.BufferedWriter(raw),
            encoding=sys.stdout.encoding,
            line_buffering=raw.isatty(),
            write_through=through,
        )


class _Product(io.FileIO):
    """Standard output, which remembers why something did not reach it: Python forgets what failed once."""

    refused: OSError | None = None

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            if data:  # Click writes nothing, to see what kind of a stream it has
                _Product.refused = error
            raise


def refusal() -> OSError | None:
    """Why not all that was said so far reached stdout, whose rest is then thrown away; None where it did."""
    refused: OSError | None = None
    try:
        sys.stdout.flush()
    except OSError as error:
        refused = error
    refused = refused or _Product.refused
    if refused is not None:
        give_up()
    return refused


def give_up() -> None:
    """Throw away what stdout still holds, and all that will be said."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(text: str) -> None:
    """A line on stderr; where that cannot be written there is nobody left to tell."""
    from gpucache.units import shown

    with suppress(OSError):
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()
