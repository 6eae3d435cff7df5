"""stdin, stdout and stderr of the process: there, able to take any text, and given up when nobody listens.

Owns what is done about closed descriptors, full devices and terminals that cannot show every character.
"""

import io
import os
import sys
from contextlib import suppress


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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_written() -> bool:
    """Whether all that was said so far reached stdout; where it cannot, the rest is thrown away."""
    try:
        sys.stdout.flush()
    except OSError:
        give_up()
        return False
    return True


def give_up() -> None:
    """Throw away what stdout still holds, and all that will be said."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(text: str) -> None:
    """A line on stderr; where that cannot be written there is nobody left to tell."""
    from gpucache.units import shown

    with suppress(OSError):
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()
