"""The destination of text: the product goes to stdout, messages and live progress to stderr.

On a terminal people get tables as wide as it is; through a pipe text that is never broken or cut,
without colour unless requested, and without blanks at the ends of its lines. A process that writes to a pipe
does not import rich.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from gpucache.answers.grid import PIPE_WIDTH, Block, Cell, Line, Pieces
from gpucache.units import printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def show(stream: TextIO, blocks: Iterable[Block]) -> None:
    """Write each block to a stream, in the form that suits its reader."""
    if _is_plain(stream):
        for block in blocks:
            stream.writelines(f"{_text(line)}\n" for line in _lines(block, PIPE_WIDTH))
    else:
        write(console_of(stream), blocks)


def write(console: "Console", blocks: Iterable[Block]) -> None:
    """Write each block on separate lines, without blanks at their ends; only a block with a style is slow."""
    from rich.text import Text

    ascii_only = console.options.ascii_only
    for block in blocks:
        for line in _lines(block, console.width):
            if not any(isinstance(piece, Line) and piece.style for piece in line):
                console.file.write(f"{_text(line, ascii_only=ascii_only)}\n")
                continue
            text = Text.assemble(*((_piece(one, ascii_only), getattr(one, "style", "")) for one in line))
            text.rstrip()
            console.print(text, soft_wrap=True)


def _lines(block: Block, width: int) -> Iterator[Pieces]:
    return (Line(block) if isinstance(block, str) else block).lines(width)


def _text(line: Pieces, *, ascii_only: bool = False) -> str:
    return "".join([_piece(one, ascii_only) for one in line]).rstrip()


def _piece(one: Cell, ascii_only: bool) -> str:
    return one if isinstance(one, str) else (ascii_only and one.ascii) or one.text


def console_of(stream: TextIO) -> "Console":
    """The console of a stream."""
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, highlight=False, soft_wrap=False, markup=False, emoji=False, width=width)


def _is_plain(stream: TextIO) -> bool:
    """Whether rich would not write colours or other characters for a table's lines."""
    asked = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return not stream.isatty() and not asked and (stream.encoding or "utf-8").lower().startswith("utf")


class Display:
    """A bar that names the current work; it is silent if standard error is not a terminal."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)

    def show(self, done: int, total: int | None, running: str) -> None:
        """Show the progress of a run."""
        if self._bar is not None and self._task is not None:
            self._bar.start()  # a thread, which must not exist before: a process with threads makes no copies
            self._bar.update(
                self._task, completed=done, total=total, description=printable_lines(running[:60])
            )


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """A display for the duration of a run."""
    if quiet or not sys.stderr.isatty():  # FORCE_COLOR asks for colours in a pipe, not for a moving cursor
        yield Display(None)
        return
    from rich import progress

    columns = (
        progress.SpinnerColumn(),
        progress.MofNCompleteColumn(),
        progress.BarColumn(20),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    bar = progress.Progress(*columns, console=console_of(sys.stderr), transient=True)
    try:
        yield Display(bar)
    finally:
        bar.stop()
