"""Where text goes: the product to stdout, the talk and live progress to stderr.

On a terminal people get tables as wide as it is; through a pipe text that is never broken or cut,
without colour unless that is asked for, and without blanks at the ends of its lines. Nobody who reads a pipe
waits for rich to be imported.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gpucache.answers.grid import PIPE_WIDTH, Grid, Line, Pairs
from gpucache.units import printable_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.progress import Progress
    from rich.segment import Segment


def show(stream: TextIO, renderables: "Iterable[RenderableType]") -> None:
    """Write each renderable to a stream, as it suits whoever reads there."""
    console = None if _is_plain(stream) else console_of(stream)
    for renderable in renderables:
        if console is None and isinstance(renderable, str | Line | Pairs | Grid):
            block = Line(renderable) if isinstance(renderable, str) else renderable
            stream.writelines(f"{line.rstrip()}\n" for line in block.lines(PIPE_WIDTH))
        else:
            console = console or console_of(stream)
            write(console, [renderable])


def write(console: "Console", renderables: "Iterable[RenderableType]") -> None:
    """Write each renderable on lines of its own, without blanks at their ends."""
    for renderable in renderables:
        if isinstance(renderable, Grid) and renderable.as_lines:
            console.file.writelines(f"{line}\n" for line in renderable.lines(console.width))
            continue
        console.print(_Trimmed(renderable), end="")


class _Trimmed(NamedTuple):
    """A renderable without the blanks with which tables fill their lines."""

    inner: "RenderableType"

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Segment]":
        from rich.segment import Segment

        for line in console.render_lines(self.inner, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style, last.control))
            yield from line
            yield Segment.line()


def console_of(stream: TextIO) -> "Console":
    """The console of a stream."""
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, highlight=False, soft_wrap=False, markup=False, emoji=False, width=width)


def _is_plain(stream: TextIO) -> bool:
    """Whether rich would write neither colours nor other characters for a table's lines."""
    asked = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return not stream.isatty() and not asked and (stream.encoding or "utf-8").lower().startswith("utf")


class Display:
    """A bar that names what is being worked on; it is silent where nobody looks."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)

    def show(self, done: int, total: int | None, running: str) -> None:
        """Show how far a run is."""
        if self._bar is not None and self._task is not None:
            self._bar.start()  # a thread, which is not there before: a process with threads has no copies
            self._bar.update(
                self._task, completed=done, total=total, description=printable_lines(running[:60])
            )


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """A display for the time of a run."""
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
