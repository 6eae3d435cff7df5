"""The names of cache files: what they tell of the program, and which are unfinished files of ours. Pure."""

import re
import secrets
from pathlib import PurePath

_PARTIAL = re.compile(r"\.futhark-[0-9a-f]{16}\.gpucache-tmp")
_SOURCE = ".fut"
ENDING = ".cache"
"""What people end the names of cache files with, as Futhark's documentation does."""


def program_of(name: str) -> str:
    """The program that a cache file is named after: ``foo.fut`` of ``foo.fut.cache``."""
    return PurePath(name).stem or name


def source_of(name: str) -> str | None:
    """The source that ``futhark bench --cache-extension`` left the file beside; None for other names.

    Source: Futhark, src/Futhark/Test.hs (``determineCache``).
    """
    program = program_of(name)
    return program if program != name and program.endswith(_SOURCE) and program != _SOURCE else None


def partial_name() -> str:
    """A new name for a file that is being written."""
    return f".futhark-{secrets.token_hex(8)}.gpucache-tmp"


def is_partial(name: str) -> bool:
    """Whether a file is one that our writer did not finish, or is writing."""
    return _PARTIAL.fullmatch(name) is not None
