"""Writing caches of other systems: what a system says that it can write, and how it is asked to.

Owns the words between the command line and a system that others can write for: forms, the options that a form
takes, and what it is given. Must not know any system, nor how an outcome is shown.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from typing import Any

from gpucache.answers.export import Exported
from gpucache.caches.registry import EXPORTERS
from gpucache.model import Artifact, BuildRequest, Language, Program

Compile = Callable[[BuildRequest, tuple[str, ...]], Artifact]
"""Compiles with some options and no other, as another system would."""


class Kind(Enum):
    """What an option is followed by, and as what its value is handed on."""

    FLAG = auto()
    """Nothing; whether it was given."""
    TEXT = auto()
    """A text, as it is."""
    TARGET = auto()
    """A target, as text."""
    FILE = auto()
    """A file, as what it holds."""
    FIELD = auto()
    """``FIELD=VALUE``, as a pair."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that some forms take; without it the value is None, False or no values."""

    name: str
    kind: Kind
    told: str
    """Its help."""
    metavar: str = ""
    many: bool = False
    """Whether it may be given again, so that its value is a tuple."""
    remedy: str = ""
    """What people are to do where its value cannot be used: a clause."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an export is to make of what."""

    out: Path
    sources: tuple[Path, ...]
    programs: tuple[Program, ...]
    """The same, read, where the form wants programs."""
    options: Mapping[str, Any]
    """Values by name of those options that the form takes."""
    compile_exactly: Compile


@dataclass(frozen=True, slots=True)
class Form:
    """What a cache of one system can be written as."""

    name: str
    told: str
    """What it is made of and becomes: the rest of a sentence that begins with the name, with its end."""
    options: tuple[Option, ...]
    write: Callable[[Asked], Exported]
    """Raises GpucacheError; then nothing is left of what was begun."""
    language: Language | None = None
    """The language of the programs that its sources are; None where they are none."""


def forms() -> Iterator[Form]:
    """Everything that can be written."""
    for module in EXPORTERS:
        yield from import_module(module).FORMS
