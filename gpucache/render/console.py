"""Where text goes: the product to stdout, the talk to stderr.

On a terminal people get tables as wide as it is; through a pipe text that is never broken or cut,
without colour unless that is asked for, and without blanks at the ends of its lines.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gpucache.render.grid import PIPE_WIDTH, Grid


def product() -> Console:
    """The console of stdout."""
    return _console(sys.stdout)


def talk() -> Console:
    """The console of stderr."""
    return _console(sys.stderr)


def write(console: Console, renderables: Iterable[RenderableType]) -> None:
    """Write each renderable on lines of its own, without blanks at their ends."""
    for renderable in renderables:
        if isinstance(renderable, Grid) and renderable.as_lines:
            console.file.writelines(f"{line}\n" for line in renderable.lines(console.width))
            continue
        console.print(_Trimmed(renderable), end="")


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """A renderable without the blanks with which tables fill their lines."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in console.render_lines(self.inner, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style, last.control))
            yield from line
            yield Segment.line()


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, highlight=False, soft_wrap=False, markup=False, emoji=False, width=width)
