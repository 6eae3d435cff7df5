"""What programs are called: a name for one without, and the names by which its builds are found. Pure."""

from dataclasses import dataclass

from gpucache.keys import source_digest
from gpucache.model import Program
from gpucache.payload.source import kernel_names

UNNAMED = "unnamed"
ALIAS = "alias of "
"""How a history begins that only says under which names builds are recorded."""
_DIGITS = 16


def program_name(source: bytes) -> str:
    """The name of the first kernel of a source, or ``unnamed``; for people, never part of a key."""
    return next(kernel_names(source), UNNAMED)


def source_mark(source: bytes) -> str:
    """The first digits of a source's SHA-256: enough to tell versions of a program apart."""
    return source_digest(source)[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a program known again under another name."""

    name: str
    kernel: str
    """Its first kernel, or ``unnamed``. A library that gives no name calls the program so."""
    mark: str

    @classmethod
    def of(cls, program: Program) -> "Identity":
        """The identity of a program."""
        return cls(program.name, program_name(program.source), source_mark(program.source))

    @property
    def names(self) -> tuple[str, ...]:
        """The histories of its own: one may say ``kernels/nbody.cl``, ``nbody.cl``, or the kernel's name."""
        kernel = () if self.kernel == UNNAMED else (self.kernel,)
        return tuple(dict.fromkeys((self.name, _base(self.name), *kernel)))

    @property
    def aliases(self) -> dict[str, str]:
        """The histories that lead to builds under any other name, each with the name that needs none.

        The first kernel's name stays while a source is edited; a source without one is known by its digest.
        """
        base = _base(self.name)
        if self.kernel == UNNAMED:
            return {f"{ALIAS}file {base}": base, f"{ALIAS}source {self.mark}": ""}
        return {f"{ALIAS}file {base}": base, f"{ALIAS}kernel {self.kernel}": self.kernel}

    def is_kin(self, name: str, mark: str) -> bool:
        """Whether what was built under a name, from a source of this mark, is this program in some state."""
        nameless = self.kernel != UNNAMED and self.kernel in (name, self.name)
        return mark == self.mark or _base(name) == _base(self.name) or nameless


def _base(name: str) -> str:
    return name.rpartition("/")[2] or name
