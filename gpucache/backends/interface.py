"""What a compiler has to offer so that its programs can be cached.

``plan`` is pure and needs no GPU stack; everything else loads one at its first use. Compiling and loading are
separate, because a load belongs to a context and a compile does not.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpucache.keys import KeyInputs
from gpucache.model import Artifact, BuildRequest, Device, Target, Toolchain
from gpucache.sources import SearchRule

if TYPE_CHECKING:
    from gpucache.backends.installation import Installation


class Compilation(NamedTuple):
    """How the compiler will be called for a request, and which part of the request enters the key."""

    inputs: KeyInputs
    rule: SearchRule
    include_dirs: tuple[str, ...]
    """Absolute, in search order."""
    command: tuple[str, ...]
    """Every option that the compiler is given, with the include directories."""
    options: tuple[str, ...] = ()
    """The options of the program, as it gave them, without the include directories."""
    inherited_options: tuple[str, ...] = ()
    """The options that a variable adds to the command; the compiler reads the variable itself."""
    inherited_dirs: tuple[str, ...] = ()
    """The include directories among the inherited options, which are searched after all others."""
    forced_includes: tuple[str, ...] = ()
    late: bool = False
    """Whether the compiler goes on compiling when a kernel is first launched with a new local size."""
    refusal: str | None = None
    """Why the artifact may not be kept, with the remedy; None if it may."""
    holds_paths: bool = False
    """Whether debug options put paths into the artifact whatever the source says."""
    lists_files: bool = False
    """Whether line options put into the artifact the path of each header that its code comes from."""
    differs: str = ""
    """Why no two compilations of the same give the same bytes; empty if they can."""
    may_differ: str = ""
    """Why two compilations of the same may give other bytes; empty if they do not."""
    linked_later: bool = False
    """Whether the artifact is made to be linked with others, so that it may hold no kernel."""
    source_path: str = ""
    """What the source is called if that leads through folders, which are in the artifact or the log if the
    whole name was written there; empty if the key has all of the name, or if it is always the same."""


class CompilersCache(NamedTuple):
    """A cache that a compiler keeps by itself, and writes into whatever it is asked."""

    variable: str
    """Names its folder."""
    default: str
    """Its folder below the user's cache folder where the variable is not set."""
    turn_on: tuple[tuple[str, str], ...] = ()
    """The variables with which it is used, whatever others say."""


class Backend(Protocol):
    """One family of compilers. Implementations hold no state that a fork or a thread could break."""

    @property
    def name(self) -> str:
        """The first part of its targets, such as ``opencl`` or ``cuda``."""
        ...

    @property
    def language(self) -> StrEnum:
        """The language it compiles."""
        ...

    @property
    def caches(self) -> Sequence[CompilersCache]:
        """What its compilers keep by themselves, for processes that are to keep out of the user's own."""
        ...

    @property
    def suffix(self) -> str:
        """The file ending of its sources."""
        ...

    def artifact_kind(self, target: Target) -> StrEnum:
        """The kind of artifact for a target by default."""
        ...

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        """How a request will be compiled; raises OptionError for options that must be refused."""
        ...

    def environment(self, toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The variables that are set and reach this compiler, build options among them."""
        ...

    def devices(self) -> list[Device]:
        """Every target here with its toolchain; a broken driver is a row with its error."""
        ...

    def toolchain(self, target: Target) -> Toolchain:
        """The toolchain that compiles for a target in this process; raises TargetError or NoDeviceError."""
        ...

    def installation(self, target: Target) -> "Installation":
        """The files of the compiler of a target here; raises TargetError or NoDeviceError."""
        ...

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        """Compile; raises CompileError with the compiler's log, NoDeviceError if it cannot be tried."""
        ...

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:
        """The files that the compiler may read besides the inputs of a program.

        Called in a process that has compiled. These are the files of its installation and other files that it
        looks at. A path that ends with a slash means a folder with everything in it.
        """
        ...

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:
        """Load on the target's device and name its kernels; raises CompileError when rejected."""
        ...
