"""Writing caches of other systems: the forms that a system can write, and the request for one.

Owns the terms between the command line and a system that gpucache can write for: forms, the options of a
form, and its inputs. Must not know any system or how an outcome is displayed.
"""

from collections.abc import Callable, Mapping
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


class Argument(Enum):
    """The type of an option's argument, and of the value passed on."""

    FLAG = auto()
    """An option without argument; its value is whether it was given."""
    TEXT = auto()
    """A text, which is the value."""
    TARGET = auto()
    FILE = auto()
    """A file, whose content is the value."""
    FIELD = auto()


@dataclass(frozen=True, slots=True)
class Option:
    """An option that some forms take; without it the value is None, False or no values."""

    name: str
    kind: Argument
    told: str
    metavar: str = ""
    many: bool = False
    """Whether it is repeatable, so that its value is a tuple."""
    remedy: str = ""
    """How to correct a value that cannot be used: a clause."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The request for one export: its inputs and its output."""

    out: Path
    sources: tuple[Path, ...]
    programs: tuple[Program, ...]
    """The sources as parsed programs, if the form requires programs."""
    options: Mapping[str, Any]
    """Values by name of the options that the form takes."""
    compile_exactly: Compile


@dataclass(frozen=True, slots=True)
class ExportForm:
    """A form in which a cache of one system can be written."""

    name: str
    told: str
    """The help of the form: one line, and paragraphs on its inputs."""
    options: tuple[Option, ...]
    write: Callable[[ExportRequest], Exported]
    """Write the output; raises GpucacheError, and then leaves no partial output."""
    language: Language | None = None
    """The language of the sources that it takes; None if its inputs are not sources."""


def form_of(name: str) -> ExportForm:
    """A form by its name, one of ``EXPORTERS``, whose module is imported now."""
    found: tuple[ExportForm, ...] = import_module(EXPORTERS[name]).FORMS
    return next(one for one in found if one.name == name)
