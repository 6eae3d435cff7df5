"""The interface that a compiler implements so that its programs can be cached, and the backends by name.

``plan`` is pure and needs no GPU stack; everything else loads one at its first use. Compiling and loading are
separate, because a load belongs to a context and a compile does not. A backend, ours or third-party through
an entry point, is imported on demand, and importing it loads no GPU stack.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpucache.errors import TargetError
from gpucache.keys import KeyInputs
from gpucache.model import Artifact, BuildRequest, Device, Target, Toolchain
from gpucache.sources import SearchRule

if TYPE_CHECKING:
    from gpucache.backends.installation import Installation


class Compilation(NamedTuple):
    """How the compiler will be called for a request, and the part of the request that enters the key."""

    inputs: KeyInputs
    rule: SearchRule
    include_dirs: tuple[str, ...]
    command: tuple[str, ...]
    """Every option that the compiler receives, with the include directories."""
    options: tuple[str, ...] = ()
    """The options of the program, as it passed them, without the include directories."""
    inherited_options: tuple[str, ...] = ()
    """The options that a variable adds to the command; the compiler reads the variable itself."""
    inherited_dirs: tuple[str, ...] = ()
    """The include directories among the inherited options, which are searched after all others."""
    forced_includes: tuple[str, ...] = ()
    late: bool = False
    """Whether the compiler goes on compiling when a kernel is first launched with a new local size."""
    refusal: str | None = None
    """Why the artifact may not be cached, with the remedy; None if it may."""
    holds_paths: bool = False
    """Whether debug options put paths into the artifact, for any source."""
    lists_files: bool = False
    """Whether line options put into the artifact the path of each header that its code comes from."""
    differs: str = ""
    """Why two compilations of the same input never give the same bytes; empty if they can."""
    may_differ: str = ""
    """Why two compilations of the same input may give different bytes; empty if they do not."""
    linked_later: bool = False
    """Whether the artifact is made to be linked with others, so that it may contain no kernel."""
    source_path: str = ""
    """The path of the source, if an artifact or log with this path may be reused only there; empty if the
    key has the whole name, or the name has no directories or is always the same."""


class CompilersCache(NamedTuple):
    """A cache that a compiler keeps by itself, and writes to at every compile."""

    variable: str
    default: str
    """Its directory below the user's cache directory if the variable is not set."""
    turn_on: tuple[tuple[str, str], ...] = ()
    """The variables that enable it, regardless of other variables."""


class Backend(Protocol):
    """A family of compilers. Implementations have no state that a fork or a thread could break."""

    @property
    def name(self) -> str:
        """The first part of its targets, such as ``opencl`` or ``cuda``."""

    @property
    def language(self) -> StrEnum:
        """The language it compiles."""

    @property
    def languages(self) -> Sequence[StrEnum]:
        """All languages that its compilers take, the main one first."""

    @property
    def caches(self) -> Sequence[CompilersCache]:
        """The caches of its compilers, for processes that must stay out of the user's own."""

    @property
    def suffix(self) -> str:
        """The file ending of its sources."""

    def artifact_kind(self, target: Target) -> StrEnum:
        """The default kind of artifact for a target."""

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        """Plan how a request will be compiled; raises OptionError for options that must be refused."""

    def environment(self, toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The variables that are set and affect this compiler, including build options."""

    def devices(self) -> list[Device]:
        """Every target of this machine with its toolchain; a broken driver is a row with its error."""

    def toolchain(self, target: Target) -> Toolchain:
        """The toolchain that compiles for a target in this process; raises TargetError or NoDeviceError."""

    def installation(self, target: Target) -> "Installation":
        """The files of a target's compiler on this machine; raises TargetError or NoDeviceError."""

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        """Compile; raises CompileError with the compiler's log, NoDeviceError if it cannot be tried."""

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:
        """The files that the compiler may read besides the inputs of a program.

        Called in a process that has compiled. Includes the files of its installation and other files that it
        looks at. A path that ends with a slash means a directory with everything in it.
        """

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:
        """Load on the target's device and return its kernels' names; raises CompileError when rejected."""


_OURS = {
    "opencl": "gpucache.backends.opencl",
    "cuda": "gpucache.backends.cuda",
    "hip": "gpucache.backends.hip",
}


def backend_names() -> tuple[str, ...]:
    return tuple(_OURS)


class Backends(Mapping[str, Backend]):
    """Our backends by name, each imported when it is first needed."""

    def __getitem__(self, name: str) -> Backend:
        backend: Backend = import_module(_OURS[name]).BACKEND
        return backend

    def __iter__(self) -> Iterator[str]:
        return iter(_OURS)

    def __len__(self) -> int:
        return len(_OURS)

    def taking(self, languages: AbstractSet[StrEnum]) -> set[str]:
        """The names of the backends that compile some languages, each of which one backend compiles."""
        return {next(name for name, one in self.items() if each in one.languages) for each in languages}


def load_backend(name: str) -> Backend:
    """The backend of a name; raises TargetError if it does not exist."""
    if name in _OURS:
        return Backends()[name]
    from importlib.metadata import entry_points  # loading this takes half as long as loading all of ours

    for point in entry_points(group="gpucache.backends", name=name):
        provided: Backend = point.load()
        return provided
    raise TargetError(f"no backend is named {name!r}; targets begin with {' or '.join(_OURS)}")
