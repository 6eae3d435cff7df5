"""``python -m tests.first_run``: the picture of a first run that the README shows.

Runs the README's first samples in an empty directory with an empty home, on a pseudo-terminal of 80 columns,
and writes their output as ``.github/first-run.svg``, which needs no server.
"""

import fcntl
import os
import re
import struct
import subprocess
import termios
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from tests.test_readme import PICTURE, SHOWN, commands, newcomer

_COLUMNS, _LINES = 80, 24
_ADDRESSED = re.compile(r"@font-face \{.*?\}\s*|<!-- .*? -->\s*", re.DOTALL)
"""The fonts that rich loads from a server, for which a viewer uses its own, and rich's address."""


def screen(command: str, place: Path) -> str:
    """A command's output to a terminal, then its messages; a progress bar is left out."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["bash", "-ec", command], cwd=place, stdin=its, stdout=its, stderr=subprocess.PIPE,
        env={**newcomer(place), "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(its)
    written = b""
    while part := _read(ours):
        written += part
    os.close(ours)
    _, said = process.communicate()
    return (written + said).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux, when no program has the other side open any more
        return b""


def picture() -> str:
    """The first samples and their output, as SVG."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    with TemporaryDirectory() as place:
        for command, _ in islice(commands(), SHOWN):
            console.print(Text.assemble(("$ ", "bold green"), command.rstrip()))
            console.print(Text.from_ansi(screen(command, Path(place))), end="")
    return _ADDRESSED.sub("", console.export_svg(title="gpucache", unique_id="first-run"))


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
