"""Many sources that are compiled by one build and loaded at once.

Owns when a batch is compiled, and as which programs. Must not know a GPU stack: ``gpucache.opencl`` and
``gpucache.cuda`` build a program and get its kernels.
"""

import os
import re
import threading
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from gpucache.checks.calls import instrument
from gpucache.engine.prepare import UNNAMED, program_name
from gpucache.errors import CacheMissError, SourceError
from gpucache.library import arguments, process
from gpucache.library.joined_sources import Apart, Part, join
from gpucache.library.shared_build import SharedBuild

Program = TypeVar("Program")
Kernel = TypeVar("Kernel")

_ERROR = re.compile(r"\berror\b.*[:\"]", re.IGNORECASE)
_TOLD = 200
_JOINING = threading.Lock()


def _after_fork() -> None:
    global _JOINING
    _JOINING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Together(Generic[Program, Kernel]):
    """The sources that were added before the first of their kernels was wanted."""

    def __init__(self) -> None:
        self.routines: list[Routine[Program, Kernel]] = []
        self.closed = False
        self.program: SharedBuild[Program | None] = SharedBuild()
        """The program of all sources; None if each has its own."""
        self.apart: str | None = None


class Routine(Generic[Program, Kernel]):
    """One source of a batch, from which kernels are taken. Made by ``Batch.add``."""

    def __init__(
        self,
        batch: "Batch[Program, Kernel]",
        together: _Together[Program, Kernel],
        part: Part,
        expressions: tuple[str, ...],
    ) -> None:
        self.part = part
        self.expressions = expressions
        self._batch = batch
        self._together = together
        self._alone: SharedBuild[Program] = SharedBuild()

    @property
    def apart(self) -> str | None:
        """Why its source has a program of its own; None if it is joined with others or not built yet."""
        return self._together.apart

    @property
    def program(self) -> Program:
        """The program with this source. The first call builds all sources that were added so far."""
        joined = self._together.program.get(lambda: self._batch.build_together(self._together))
        return self.alone() if joined is None else joined

    def kernel(self, name: str | None = None) -> Kernel:
        """A kernel by its name, or the first one of the source. The first call builds and loads."""
        if name is None:
            name = next(iter(self.expressions), program_name(self.part.source))
            if name == UNNAMED:
                raise ValueError(f"{self.part.name} does not say which kernel is its first; give its name")
        return self._batch.kernel_of(self.program, name)

    def alone(self) -> Program:
        return self._alone.get(lambda: self._batch.build(self.part, self.expressions))


class Batch(ABC, Generic[Program, Kernel]):
    """Sources that are built together when the first kernel of one of them is wanted.

    They become one program: one compiler run, one entry and one load. If they cannot be one program (see
    ``gpucache.library.joined_sources``), or do not compile as one, the log says so once, and each is built by
    itself when it is wanted. Sources that are added later form the next program.
    """

    def __init__(self, checks: object) -> None:
        self.checks = arguments.checks_mode(checks)
        self._open: _Together[Program, Kernel] = _Together()

    @property
    @abstractmethod
    def refused(self) -> type[Exception]:
        """The error that ``build`` raises if a program does not compile."""

    @abstractmethod
    def build(self, part: Part, expressions: tuple[str, ...]) -> Program:
        """A program of one source, with the name expressions that are wanted."""

    @abstractmethod
    def kernel_of(self, program: Program, name: str) -> Kernel:
        """A kernel of a built program."""

    def _add(
        self, source: object, name: object, expressions: tuple[str, ...] = ()
    ) -> Routine[Program, Kernel]:
        text = arguments.source_bytes(source)
        part = Part(arguments.text_or_none("name", name) or program_name(text), text)
        with _JOINING:
            if self._open.closed:
                self._open = _Together()
            routine = Routine(self, self._open, part, expressions)
            self._open.routines.append(routine)
        return routine

    def build_together(self, together: _Together[Program, Kernel]) -> Program | None:
        """Build one program of all sources; None if they cannot be joined."""
        with _JOINING:
            together.closed = True
        routines = together.routines
        joined = join([routine.part for routine in routines])
        if isinstance(joined, Apart):
            _leave_apart(together, joined.reason)
            return None
        expressions = tuple(dict.fromkeys(name for routine in routines for name in routine.expressions))
        try:
            if len(routines) == 1 or instrument(joined.source, self.checks).whole:
                return self.build(Part(joined.name, joined.source), expressions)
            _leave_apart(together, "they have more checks than one failure table can contain")
        except (self.refused, SourceError) as error:
            if len(routines) == 1:
                raise
            lines = [line.strip() for line in f"{error}\n{getattr(error, 'log', '')}".splitlines()]
            first = next(filter(_ERROR.search, lines), lines[0])[:_TOLD]
            _leave_apart(together, f"they do not compile as one program ({first})")
        except CacheMissError as miss:
            try:
                for routine in routines:
                    routine.alone()
            except CacheMissError:
                raise miss from None
            _leave_apart(together, "only so they are in the cache, and GPUCACHE_REQUIRE is set")
        return None


def _leave_apart(together: _Together[Program, Kernel], reason: str) -> None:
    together.apart = reason
    names = [routine.part.name for routine in together.routines]
    process.say_once(f"{names[0]} and {len(names) - 1} more are compiled one by one: {reason}")
