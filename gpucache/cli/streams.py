"""stdin, stdout and stderr: they exist, take any text, and are given up when nobody reads them.

Owns what is done about closed descriptors, full devices and terminals that cannot show every character.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO, cast


def prepare() -> None:
    """Make all three usable: a closed one leads nowhere, and what cannot be encoded is spelled out."""
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
    """Make stdout remember what does not reach it; Windows' consoles need their own kind of stream."""
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
    """Why not everything reached stdout so far, or None; where it did not, the rest is thrown away."""
    refused: OSError | None = None
    try:
        sys.stdout.flush()
    except OSError as error:
        refused = error
    refused = refused or _Product.refused
    if refused is not None:
        give_up()
    return refused


def unread() -> bool:
    """Whether stdout is a pipe whose reader has gone; Windows tells that only where something is written."""
    if sys.platform == "win32":
        return False
    import select

    asked = select.poll()
    asked.register(1, 0)
    return any(events & select.POLLERR for _, events in asked.poll(0))


def give_up() -> None:
    """Throw away what stdout still holds and what is written to it later."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(text: str) -> None:
    """Write a line to stderr; where that fails there is nobody left to tell."""
    from gpucache.units import printable_lines

    with suppress(OSError):
        sys.stderr.write(f"{printable_lines(text)}\n")
        sys.stderr.flush()
