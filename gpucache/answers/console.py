"""The destination of text: the product goes to stdout, messages and live progress to stderr.

On a terminal people get tables as wide as it is; through a pipe text that is never broken, in which only long
descriptions are cut, without colour unless requested, and without blanks at the ends of its lines. A process
that writes to a pipe does not import rich.

On a terminal a value shared by all rows is printed once above them, rows are grouped by values too wide for a
column, and columns are dropped, the least important first, before any text is wrapped. A pipe gets
every column in every row, so that a line can be searched for by itself. Tables and texts give their
``lines`` for a width, in pieces that may have a style; rich, which takes longer to import than a small cache
to read, is used only if a text is too long for its line. Must not know the content.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, TypeGuard

from gpucache.units import format_count, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


PIPE_WIDTH = 10_000
"""The width of a pipe, in which nothing is ever broken over lines or left out."""
PIPE_COLUMN = 64
"""The most columns to which the cells of a pipe are filled up; a longer one is cut, or moves the rest."""
PROSE_WIDTH = 32
"""The least width for a sentence; narrower ones are hard to read."""
PLACE_WIDTH = 20
"""The least width of a path that shows its beginning and its end."""
LABEL_WIDTH = 34
"""The most width for the label of a pair."""
LEAST_WIDTH = 8
"""The width below which no text is broken, however narrow the terminal is."""
GAP = 2
SIZE = "on disk"
"""The heading of sizes, which are everywhere the blocks that a file takes, as eviction counts them."""
NAMED = 3
"""How many of the items with one reason are named."""
ROWS_SHOWN = 200
_ESTIMATED_S = 600.0
"""After this part of a run the remaining time is estimated."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Line(NamedTuple):
    """Text, which may have several lines, in one style, as ``plain`` makes it."""

    text: str
    style: str = ""
    ascii: str = ""
    """The text to write instead where only ASCII can be written."""

    def lines(self, width: int) -> "Iterator[Pieces]":
        yield from ([line] for line in _broken(self, width))


Cell = str | Line
"""Text with a style or without. A table may have a hundred thousand rows, so plain text is a ``str``."""
Pieces = Sequence[Cell]
"""The text of one line, each piece in its style."""


class Pairs(NamedTuple):
    """The text about one thing, a label and a text in each row."""

    rows: Sequence[tuple[str, str]]
    style: str = ""
    """The style of the labels."""

    def lines(self, width: int) -> Iterator[Pieces]:
        rows = [(one_line(label), printable_lines(text).expandtabs()) for label, text in self.rows]
        labels = max((_cells(label.text) for label, _ in rows), default=0)
        labels = labels if width >= PIPE_WIDTH else min(labels, LABEL_WIDTH)
        for label, text in rows:
            left, right = _broken(label, labels), _broken(text, max(width - labels - GAP, LEAST_WIDTH))
            for one, other in zip_longest(map(_said, left), right, fillvalue=""):
                yield [Line(one + " " * (labels + GAP - _cells(one)), self.style), other]


class Column(NamedTuple):
    """A column, its cell of a row, and how it may be shortened if there is little room."""

    heading: str
    of: Callable[[Any], Cell] = str
    """The function that gives a row's cell."""
    numeric: bool = False
    """Whether it is aligned on the right and never broken over lines."""
    whole: bool = False
    """Whether it is never broken over lines."""
    shared: bool = False
    """Whether a value is written once above all the rows, or above each group of rows, that share it."""
    prose: bool = False
    """Whether it has sentences, which are broken over lines before any column is left out."""
    place: bool = False
    """Whether it has paths, which are shortened in their middle where there is little room."""
    cut: bool = False
    """Whether it has sentences that end in an ellipsis where there is little room; prose, in a pipe."""
    drawn: bool = False
    """Whether it is for a terminal alone, and only where every column has all the room it can use."""
    spare: int = 0
    """Its turn to be left out where there is too little room, the highest number first; 0 always stays."""


class Grid:
    """Rows below columns. With ``every`` no column is left out, however narrow the terminal is."""

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Iterable[Any] = (),
        *,
        every: bool = False,
    ) -> None:
        self.columns = columns
        self.rows: list[tuple[Cell, ...]] = []
        self._every = every
        self._known: dict[int, int] = {}  # the width of the widest cell by column, until a row is added
        for row in rows:
            self.add(*[column.of(row) for column in columns])

    def add(self, *cells: Cell) -> None:
        """Add a row with a cell for each column; text is shown on one line and never read as markup.

        A line break in a name or an option must not look like a row; text with several lines is a ``Line``.
        """
        self.rows.append(tuple([cell if isinstance(cell, Line) else one_line(cell).text for cell in cells]))
        self._known.clear()

    def lines(self, width: int) -> Iterator[Pieces]:
        said, groups, widths = self._layout(width)
        for one in said:
            yield from one.lines(width)
        if not widths:
            yield [""]
            return
        piped = width >= PIPE_WIDTH
        yield from self._row([Line(column.heading, "bold") for column in self.columns], widths, piped=piped)
        rule = sum(widths.values()) + GAP * (len(widths) - 1)
        yield [Line("─" * rule, ascii="-" * rule)]
        for names, rows in self._parts(groups).items():
            if names:
                yield from plain(", ".join(name or "-" for name in names), "bold").lines(width)
            for row in rows:
                yield from self._row(row, widths, piped=piped)

    def _row(self, row: Sequence[Cell], widths: Mapping[int, int], *, piped: bool) -> Iterator[Pieces]:
        """The lines of a row: as many as its longest cell has."""
        texts = [
            self._short(index, row[index], width, piped=piped)
            if self.columns[index].cut or not piped
            else row[index]
            for index, width in widths.items()
        ]
        if _fit(texts, widths.values()):  # like nearly all of a hundred thousand rows
            aligned = [
                text.rjust(width) if self.columns[index].numeric else text.ljust(width)
                for (index, width), text in zip(widths.items(), texts, strict=True)
            ]
            yield [(" " * GAP).join(aligned)]
            return
        cells = [
            _broken(cell, PIPE_WIDTH if piped else width)
            for cell, width in zip(texts, widths.values(), strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            line: list[Cell] = []
            for (index, width), cell in zip(widths.items(), parts, strict=True):
                blanks = " " * (width - _cells(_said(cell)))
                line += [*([blanks, cell] if self.columns[index].numeric else [cell, blanks]), " " * GAP]
            yield line

    def _short(self, index: int, cell: Cell, width: int, *, piped: bool) -> Cell:
        column = self.columns[index]
        if isinstance(cell, str) and column.place and not piped:
            return shortened(cell, width)
        is_cut = column.cut and not self._every and (piped or not column.prose)
        if isinstance(cell, str) and is_cut and _cells(cell) > width:
            return f"{cell[: width - 3]}..." if piped else f"{cell[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
        return cell

    def _layout(self, width: int) -> tuple[list[Line], list[int], dict[int, int]]:
        """The lines above the rows, the columns that group them, and the widths of the other columns."""
        used = [index for index in range(len(self.columns)) if any(_said(row[index]) for row in self.rows)]
        whole = sum(map(self._widest, used)) + GAP * (len(used) - 1)
        if width >= PIPE_WIDTH or whole > width:
            used = [index for index in used if not self.columns[index].drawn]
        if width >= PIPE_WIDTH:
            return [], [], self._widths(used, width)

        def fits() -> bool:
            return self._taken(used) <= width

        said: list[Line] = []
        if len(self.rows) > 1 or not fits():
            for index in [one for one in used if self.columns[one].shared and self._is_same(one)]:
                used.remove(index)
                said.append(plain(f"{self.columns[index].heading}: {_said(self.rows[0][index])}"))
        groups = [] if fits() else [index for index in used if self.columns[index].shared]
        used = [index for index in used if index not in groups]
        for index in sorted(used, key=lambda one: -self.columns[one].spare):
            if self.columns[index].spare and not self._every and not fits():
                used.remove(index)
        return said, groups, self._widths(used, width)

    def _parts(self, groups: Sequence[int]) -> dict[tuple[str, ...], list[tuple[Cell, ...]]]:
        parts: dict[tuple[str, ...], list[tuple[Cell, ...]]] = {}
        for row in self.rows:
            parts.setdefault(tuple(_said(row[index]) for index in groups), []).append(row)
        return parts

    def _is_same(self, index: int) -> bool:
        return len({_said(row[index]) for row in self.rows}) == 1

    def _widths(self, used: Sequence[int], width: int) -> dict[int, int]:
        """The widths of columns, alike in every group; without room for all, the widest shrink."""
        if width >= PIPE_WIDTH:
            return {index: min(self._widest(index), PIPE_COLUMN) for index in used}
        widths = {index: self._room(index) for index in used}
        left = width - self._taken(used)
        for index in used:
            more = max(min(left, self._widest(index) - widths[index]), 0)
            widths[index], left = widths[index] + more, left - more
        for _ in range(-left):
            soft = [one for one in used if not (self.columns[one].numeric or self.columns[one].whole)]
            soft = [one for one in soft if widths[one] > LEAST_WIDTH] or list(used)
            widths[max(soft, key=widths.__getitem__)] -= 1
        return widths

    def _taken(self, used: Sequence[int]) -> int:
        return sum(map(self._room, used)) + GAP * (len(used) - 1)

    def _room(self, index: int) -> int:
        """The number of characters a column takes, or for sentences the number it should have at least."""
        widest = self._widest(index)
        column = self.columns[index]
        prose = column.prose or column.cut
        return min(widest, PROSE_WIDTH if prose else PLACE_WIDTH if column.place else widest)

    def _widest(self, index: int) -> int:
        if index not in self._known:
            cells = (_cells(line) for row in self.rows for line in _said(row[index]).split("\n"))
            self._known[index] = max(len(self.columns[index].heading), *cells)
        return self._known[index]


class Drawn(Protocol):
    """A drawing on its own lines."""

    def lines(self, width: int) -> Iterator[Pieces]: ...


Block = str | Drawn
"""The text for people."""


def _said(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


@cache
def _console() -> "Console":
    from rich.console import Console

    return Console()


def _fit(cells: Sequence[Cell], widths: Iterable[int]) -> TypeGuard[Sequence[str]]:
    """Whether every cell is plain text that takes a column for each character and is not too long."""
    return all(
        isinstance(cell, str) and cell.isascii() and len(cell) <= width
        for cell, width in zip(cells, widths, strict=True)
    )


def _broken(cell: Cell, width: int) -> list[Cell]:
    """A text in lines of at most so many columns of a terminal, wrapped between words if possible."""
    text = _said(cell)
    lines = text.split("\n")
    if width < PIPE_WIDTH and any(_cells(line) > width for line in lines):
        from rich.text import Text

        wrapped = Text(text).wrap(_console(), max(width, 1), overflow="fold")
        lines = [line.plain.rstrip() for line in wrapped]
    return [Line(line, cell.style) for line in lines] if isinstance(cell, Line) else [*lines]


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shortened(path: str, width: int) -> str:
    """A path of at most so many characters: the home directory as ~, an ellipsis in the middle if needed."""
    home = os.path.expanduser("~")  # noqa: PTH111 - raises nothing without a home
    if len(home) > 1 and path.startswith(home + os.sep):
        path = "~" + path[len(home) :]
    if len(path) <= width:
        return path
    end = (width - 1) * 2 // 3
    return f"{path[: width - 1 - end]}\N{HORIZONTAL ELLIPSIS}{path[-end:]}"


def _unindented(text: str) -> str:
    """Text for a cell, without tabs, which a terminal would expand to its own stops."""
    return printable_lines(text).expandtabs()


def plain(text: str, style: str = "") -> Line:
    return Line(_unindented(text), style)


def one_line(text: str, style: str = "") -> Line:
    """Text on one line: a line break in a name must not look like the end of a message."""
    return Line(printable(text.expandtabs(), None), style)


def digest(value: str) -> str:
    """A value as people see it: only the beginning of a SHA-256 digest."""
    return f"SHA-256 {value[:12]}" if _DIGEST.fullmatch(value) else value


def named(program: str, target: str = "", variant: str = "") -> str:
    """A build as people know it: its program, its variant of that, and its target."""
    return f"{program}{f' [{variant}]' if variant else ''}{f' for {target}' if target else ''}"


def more_rows(number: int, one: str, many: str | None = None) -> Iterator[Block]:
    """A sentence about the rows left out of a table: people do not read long tables to the end."""
    if number > ROWS_SHOWN:
        left_out = format_count(number - ROWS_SHOWN, f"more {one}", f"more {many or one + 's'}")
        yield plain(f"and {left_out}; --json has all")


def few(reasons: Sequence[str], *, whole: bool) -> Iterator[str]:
    """The first reasons and the number of others; all of them if ``whole``."""
    yield from reasons if whole else reasons[:NAMED]
    if not whole and len(reasons) > NAMED:
        yield f"{format_count(len(reasons) - NAMED, 'more reason')}; -v shows them"


_color = "auto"


def choose_color(when: str) -> None:
    """Colours on a terminal (``auto``), ``always`` or ``never``, in this process alone."""
    global _color
    _color = when


def show(stream: TextIO, blocks: Iterable[Block]) -> None:
    """Write each block to a stream, in the form that suits its reader."""
    if _is_plain(stream):
        stream.writelines(f"{line}\n" for line in plain_lines(blocks))
    else:
        write(console_of(stream), blocks)


_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_<|"} | {"\n": "<br>"})
"""Escapes, so that ``scale<float>`` and ``__FILE__`` are not markup."""


def markdown_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Blocks as Markdown, such as for the summary page of a CI job."""
    for block in blocks:
        if isinstance(block, Grid):
            used = [at for at, one in enumerate(block.columns) if not one.drawn]
            yield from ("", _markdown_row(block.columns[at].heading for at in used))
            yield _markdown_row("--:" if block.columns[at].numeric else "---" for at in used)
            yield from (_markdown_row(_said(row[at]) for at in used) for row in block.rows)
            yield ""
        elif isinstance(block, Pairs):
            yield from (
                "",
                *(f"- **{label.strip()}**: {text.translate(_ESCAPES)}" for label, text in block.rows),
                "",
            )
        else:
            told = (_text(line).translate(_ESCAPES) for line in _lines(block, PIPE_WIDTH))
            yield from (f"{line}  " if line else "" for line in told)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.translate(_ESCAPES) for cell in cells)} |"


def plain_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """The lines of each block without colours, as wide as they are."""
    return (_text(line) for block in blocks for line in _lines(block, PIPE_WIDTH))


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
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    told = {"always": True, "never": False}.get(_color)
    return Console(
        file=stream, highlight=False, soft_wrap=False, markup=False, emoji=False, width=width,
        force_terminal=told or None, no_color=None if told is None else not told,
    )  # fmt: skip


def _is_plain(stream: TextIO) -> bool:
    """Whether rich would not write colours or other characters for a table's lines."""
    if _color != "auto" and not stream.isatty():
        return _color == "never"
    asked = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return not stream.isatty() and not asked and (stream.encoding or "utf-8").lower().startswith("utf")


class Display:
    """A bar that names the current work; it is silent if standard error is not a terminal."""

    def __init__(self, bar: "Progress | None") -> None:
        self._bar = bar
        self.is_seen = bar is not None
        self._task = None if bar is None else bar.add_task("", total=None)

    def show(self, done: int, total: int | None, running: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.start()  # a thread, which must not exist before: a process with threads makes no copies
            self._bar.update(
                self._task, completed=done, total=total, description=printable_lines(running[:60])
            )


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    if quiet or not sys.stderr.isatty():  # FORCE_COLOR asks for colours in a pipe, not for a moving cursor
        yield Display(None)
        return
    from datetime import timedelta

    from rich import progress
    from rich.text import Text

    class Left(progress.ProgressColumn):
        """The remaining time; until a first item is done, the elapsed time."""

        max_refresh = 0.5

        def render(self, task: progress.Task) -> Text:
            left_s = task.time_remaining
            time = timedelta(seconds=int(task.elapsed or 0 if left_s is None else left_s))
            return Text(str(time) + " left" * (left_s is not None), "progress.remaining")

    columns = (
        progress.SpinnerColumn(),
        progress.MofNCompleteColumn(),
        progress.BarColumn(20),
        Left(),
        progress.TextColumn("{task.description}", markup=False),
    )
    bar = progress.Progress(
        *columns, console=console_of(sys.stderr), transient=True, speed_estimate_period=_ESTIMATED_S
    )
    try:
        yield Display(bar)
    finally:
        bar.stop()
