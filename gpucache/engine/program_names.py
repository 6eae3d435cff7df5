"""Names of programs: of one without a name, and those under which builds are recorded. Pure."""

from functools import lru_cache
from typing import NamedTuple

from gpucache.keys import source_digest
from gpucache.model import Program
from gpucache.payload.source import kernel_names

UNNAMED = "unnamed"
ALIAS = "alias of "
"""The beginning of the names of histories that only say under which name builds are recorded."""
_DIGITS = 16
_KEPT_BYTES = 64 << 10
"""Programs build or look up the same source repeatedly, so the names of small ones are kept."""


def program_name(source: bytes) -> str:
    """The name of the first kernel in a source, or ``unnamed``; for people, never part of a key."""
    return (_first_kernel if len(source) > _KEPT_BYTES else _kept_first_kernel)(source)


def _first_kernel(source: bytes) -> str:
    return next(kernel_names(source), UNNAMED)


_kept_first_kernel = lru_cache(maxsize=64)(_first_kernel)


def named(program: Program) -> Program:
    """A program with a name: its first kernel's if it has none."""
    return program if program.name else program._replace(name=program_name(program.source))


def source_mark(source: bytes) -> str:
    """The first digits of a source's SHA-256, enough to distinguish the versions of a program."""
    return source_digest(source)[:_DIGITS]


class Identity(NamedTuple):
    """The facts that identify a program even if it has another name."""

    name: str
    kernel: str
    """Its first kernel, or ``unnamed``; also the name of a program that a library compiles without a name."""
    mark: str

    @classmethod
    def of(cls, program: Program) -> "Identity":
        """The identity of a program."""
        return cls(program.name, program_name(program.source), source_mark(program.source))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its histories: such as ``kernels/nbody.cl``, ``nbody.cl`` and the first kernel."""
        kernel = () if self.kernel == UNNAMED else (self.kernel,)
        return tuple(dict.fromkeys((self.name, _base(self.name), *kernel)))

    @property
    def aliases(self) -> dict[str, str]:
        """The histories that lead to builds under other names, each with the name that needs no alias.

        The first kernel's name survives edits of a source; a source without a kernel is known by its digest.
        """
        base = _base(self.name)
        if self.kernel == UNNAMED:
            return {f"{ALIAS}file {base}": base, f"{ALIAS}source {self.mark}": ""}
        return {f"{ALIAS}file {base}": base, f"{ALIAS}kernel {self.kernel}": self.kernel}

    def is_kin(self, name: str, mark: str) -> bool:
        """Whether something built under a name, from a source of this mark, is a version of this program."""
        nameless = self.kernel != UNNAMED and self.kernel in (name, self.name)
        return mark == self.mark or _base(name) == _base(self.name) or nameless


def _base(name: str) -> str:
    return name.rpartition("/")[2] or name
