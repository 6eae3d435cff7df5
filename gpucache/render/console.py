"""Where text goes: the product to stdout, the talk to stderr.

On a terminal people get tables as wide as it is; through a pipe text that is never broken or cut,
without colour unless that is asked for, and without blanks at the ends of its lines. Nobody who reads a pipe
waits for rich to be imported.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gpucache.render.grid import PIPE_WIDTH, Grid, Line, Pairs

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
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
