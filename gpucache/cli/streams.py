"""stdin, stdout and stderr: they exist, take any text, and are given up when they have no reader.

Owns the handling of closed descriptors, full devices and terminals that cannot show every character.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO, cast


def prepare() -> None:
    """Make all three usable: a closed one refuses text, and unencodable characters are escaped."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # else the next file to be opened would receive our output
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives on
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__ or sys.__stdout__ is None:
        _watch_product()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _watch_product() -> None:
    """Make stdout remember failed writes; Windows' consoles need their own kind of stream."""
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
    """Standard output, which remembers why a write failed: Python forgets it after the first failure."""

    refused: OSError | None = None

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            if data:  # Click writes nothing, to find out the kind of stream
                _Product.refused = error
            raise


def refusal() -> OSError | None:
    """Why not everything reached stdout so far, or None; after a failure the rest is discarded."""
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
    """Whether stdout is a pipe whose reader has gone; Windows shows that only at a write."""
    if sys.platform == "win32":
        return False
    import select

    asked = select.poll()
    asked.register(1, 0)
    return any(events & select.POLLERR for _, events in asked.poll(0))


def give_up() -> None:
    """Discard the text that is still buffered for stdout and all later output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def fitted(text: str) -> str:
    """Text with its lines broken between words, if stderr is a narrower terminal."""
    try:
        width = os.get_terminal_size(2).columns or sys.maxsize
    except OSError:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        first, *words = line.split(" ")
        lines.append(first)
        for word in words:
            if lines[-1].strip() and len(lines[-1]) + len(word) >= width:
                lines.append(word)
            else:
                lines[-1] += f" {word}"
    return "\n".join(lines)


def complain(text: str, *, whole: bool = False) -> None:
    """Write a line to stderr, unbroken if ``whole``; a failure is ignored, as it could not be reported."""
    from gpucache.units import printable_lines

    with suppress(OSError):
        sys.stderr.write(f"{printable_lines(text if whole else fitted(text))}\n")
        sys.stderr.flush()
