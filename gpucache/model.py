"""The frozen values that gpucache's modules exchange. Owns no behaviour beyond naming them in text.

Must not import any module of gpucache but errors: every other module may import this one.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from gpucache.errors import TargetError
from gpucache.json_keys import OrNull, json_keys


class Language(StrEnum):
    """The languages of our backends; a third-party backend has a separate enumeration."""

    OPENCL_C = "opencl-c"
    CUDA_CPP = "cuda-c++"
    HIP_CPP = "hip-c++"
    SPIR_V = "spir-v"


class ArtifactKind(StrEnum):
    """The artifacts that our compilers return; a third-party backend has a separate enumeration."""

    CUBIN = "cubin"
    PTX = "ptx"
    LTOIR = "ltoir"
    OPTIXIR = "optixir"
    CODE_OBJECT = "code-object"
    BITCODE = "llvm-bitcode"
    OPENCL_BINARY = "opencl-binary"


GIVEN_WITH: Mapping[StrEnum, tuple[ArtifactKind, ...]] = {ArtifactKind.CUBIN: (ArtifactKind.PTX,)}
"""The further artifacts that a program may request after one compile, by its kind: a hit includes them."""


class Checks(StrEnum):
    """How a program is compiled: with the checks of its kernels or without, and when the host looks."""

    NONE = "none"
    SYNC = "sync"
    """The host looks after every launch."""
    ASYNC = "async"
    """The host looks on request; until then every kernel looks first."""


class Check(NamedTuple):
    """A check of a source, as a failure table lists it; its index in the table is its code."""

    line: Annotated[int, "The line in that file."]
    message: Annotated[str, "The format of its message; empty where it has none."]
    function: Annotated[OrNull, "The kernel or device function that contains it, if known."] = ""
    file: Annotated[OrNull, "The name of its file in a #line; null for the program itself."] = ""


class FindingKind(StrEnum):
    """The findings of verify. The first five are wrong; the rest are worth knowing."""

    TRUNCATED = "truncated"
    """The file ends too early."""
    CORRUPT = "corrupt"
    """Its bytes are not those that were written."""
    MISPLACED = "misplaced"
    """It is at the place of another key."""
    MISLABELLED = "mislabelled"
    """Its bytes contradict its description."""
    UNTRUSTED = "untrusted"
    """Another user could have written it, or it is a link."""
    STALE = "stale"
    """No program of this environment finds it, as its driver, compiler or interpreter is not here, or a newer
    version of its owner came since; and no environment used it or others of its compiler for 30 days."""
    SUPERSEDED = "superseded"
    """There is a newer entry for the same program, target and options, and it was not used since."""
    ORPHAN = "orphan"
    """One half of a pair of files, or a record without its entry."""
    LEFTOVER = "leftover"
    """A file that a writer left behind."""
    LOCKED = "locked"
    """A lock without a process."""
    UNSUPPORTED = "unsupported"
    """It was written by a newer version, or is of a kind that is not known."""

    @property
    def wrong(self) -> bool:
        """Whether it gives exit 3 without ``--strict``."""
        return self in _WRONG


_WRONG = frozenset([*FindingKind][:5])


class Problem(NamedTuple):
    """A problem of an entry, or a fact worth knowing, before it becomes a sentence."""

    kind: FindingKind | None
    """None if it could not be read, which is not a fault of the entry."""
    detail: str
    """A clause that names the thing and the consequence."""
    remedy: str = ""
    """How to fix it, a clause; empty if the detail says so or removing the entry fixes it."""
    paths: tuple[str, ...] | None = None
    """The files of the entry whose removal fixes it; empty if none does. None if removing the whole
    entry fixes it, if its format says so for the kind."""

    def __str__(self) -> str:
        told = f"{self.detail}; {self.remedy}" if self.remedy else self.detail
        return told if self.kind is None else f"{self.kind}: {told}"


class Target(NamedTuple):
    """The target of a compile: ``opencl:<platform>/<device>`` or ``cuda:sm_90``."""

    backend: str
    name: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Target":
        """The target that a text names; raises TargetError if it is not of the form BACKEND:NAME."""
        backend, separator, name = text.partition(":")
        if not (backend and separator and name):
            raise TargetError(
                f"{text!r} is not a target; write BACKEND:NAME, such as cuda:sm_90 or opencl:pocl, "
                "or run 'gpucache devices' to see the targets of this machine"
            )
        if backend == "cuda" and name.lstrip("smcopute").isdigit() and "_" not in name:
            number = name.lstrip("smcopute")
            kind = "compute" if name.startswith("c") else "sm"
            raise TargetError(f"{text!r} is not a target; did you mean 'cuda:{kind}_{number}'?")
        return cls(backend, name)


class Toolchain(NamedTuple):
    """The compiler that runs for a target, as readable fields that enter the key.

    ``identity`` labels name the fields that stay the same when a driver or compiler is upgraded (platform and
    device name, architecture); every other field is a version or build, and a difference in those alone
    makes an entry stale.
    """

    implementation: str
    """The kind of compiler: ``pocl``, ``intel``, ``nvidia``, ``other`` (OpenCL), ``nvrtc`` or ``hiprtc``."""
    fields: Annotated[tuple[tuple[str, str], ...], "The key fields of the compiler, by name."]
    identity: tuple[str, ...]

    def identity_fields(self) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in self.fields if pair[0] in self.identity)


@json_keys("target backend name driver_version available present detail toolchain=toolchain.fields")
class Device(NamedTuple):
    """A device or compiler of devices."""

    target: Annotated[Target | None, "The argument for --target; null if a driver is broken."]
    backend: Annotated[str, "opencl, cuda or hip."]
    name: Annotated[str, "The device's own name."]
    driver_version: Annotated[str, "The driver's version."]
    available: Annotated[bool, "Whether this machine can compile programs for it."]
    detail: Annotated[str, "Its description, or why it is not available."]
    toolchain: Toolchain | None = None
    present: Annotated[
        bool, "Whether this machine has it: False for an architecture that only a compiler knows."
    ] = True
    files: tuple[str, ...] = ()
    """The files of the driver that it belongs to, first the library that is called; empty if not known."""


class Program(NamedTuple):
    """A source read into memory. The name is for people and is not part of the key."""

    name: str
    language: StrEnum
    source: bytes
    path: Path | None = None
    """The path it was read from; gives compiler messages their file name, nothing else."""


class AsAsked(NamedTuple):
    """The extra inputs of a program that calls its compiler itself and must get the same result."""

    file_name: str
    """The name it gives its source."""
    made_up: bool = False
    """Whether it makes up a name for each run, so that any such name fits."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers in memory by the name under which they are included; they are found before any on disk."""


class BuildRequest(NamedTuple):
    """One program for one target with everything a caller can say about the build."""

    program: Program
    target: Target
    options: tuple[str, ...] = ()
    """Build options as given, one per element, without include directories given apart."""
    include_dirs: tuple[str, ...] = ()
    artifact_kind: StrEnum = ArtifactKind.OPENCL_BINARY
    name_expressions: tuple[str, ...] = ()
    """C++ names whose lowered (mangled) names are wanted; CUDA and HIP only."""
    local_sizes: tuple[tuple[int, ...], ...] = ()
    """Local (work-group) sizes the program launches with, for compilers that build late."""
    headers: tuple[str, ...] = ()
    """Headers named by hand where an include goes through a macro."""
    name_headers: str = "name the headers in the manifest (headers = [...])"
    """How a user of this interface names headers by hand: the remedy in messages."""
    cwd: str = "/"
    """The directory to which relative include directories refer."""
    searches_cwd: bool = False
    """Whether the compiler runs in ``cwd`` and so searches it too; workers run in an empty directory."""
    variant: str = ""
    """Text that distinguishes this build from others of its program, for people, such as ``BLOCK=128``."""
    checks: Checks = Checks.NONE
    asked: AsAsked | None = None
    """The inputs to compile it as a program itself asked; None to compile it as gpucache does."""


NAMESPACE = "namespace"
"""The label of the key field that names the owner of a key that only that owner understands."""


class KeyField(NamedTuple):
    """A name and a value: one readable input of a key."""

    label: Annotated[str, "Its name."]
    value: Annotated[str, "Its value."]


class CacheKey(NamedTuple):
    """SHA-256 over framed key fields, as 64 lower-case hex digits."""

    hex: str

    def __str__(self) -> str:
        return self.hex

    @property
    def short(self) -> str:
        """The 12 characters people see."""
        return self.hex[:12]


_NO_NAMES: Mapping[str, str] = {}


class Artifact(NamedTuple):
    """Compiled bytes with the compiler's log."""

    kind: StrEnum
    payload: bytes
    build_log: str = ""
    compile_ns: int = 0
    lowered_names: Mapping[str, str] = _NO_NAMES
    """The lowered (mangled) name of each name expression; empty for OpenCL."""
    uncovered: tuple[str, ...] = ()
    """Files that the compiler read and the key does not cover, so that it must not be stored."""
    refusal: str | None = None
    """The reason why it must not be stored, though another build of the same may; None if it may."""


class EntryHead(NamedTuple):
    """The part of an entry that a scan reads: everything but key fields, log and payload.

    A named tuple, like every value that a scan makes for each of a hundred thousand entries.
    """

    program: str
    target: str
    artifact_kind: str
    created_ns: int
    compile_ns: int
    payload_sha256: str
    language: str = ""
    variant: str = ""
    options: tuple[str, ...] = ()
    local_sizes: tuple[tuple[int, ...], ...] = ()
    located: bool = False
    """Whether the artifact contains paths, so that it may be reused only in the same directories."""
    lowered_names: Mapping[str, str] = _NO_NAMES
    toolchain: tuple[tuple[str, str], ...] = ()
    toolchain_identity: tuple[str, ...] = ()
    failures: tuple[Check, ...] = ()
    """The failure table; empty if no checks were compiled in."""
    place: str = ""
    """A digest of the source file's place; empty for a source in memory."""
    has_log: bool = False
    """Whether the compiler printed a log, which is in the detail."""
    checks: str = Checks.NONE.value


class EntryDetail(NamedTuple):
    """The part of an entry that only explaining and inspecting read."""

    key_fields: tuple[KeyField, ...]
    build_log: str = ""
    tool_version: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    """The files and directories that it was built from, if known: for people and to rebuild, never a key."""


class Entry(NamedTuple):
    """A whole entry as it goes into or comes out of a store."""

    key: CacheKey
    head: EntryHead
    detail: EntryDetail
    payload: bytes
