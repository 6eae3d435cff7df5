"""One start of a program on one device, step by step, and the peers that also build.

Owns which libraries have their own cache. Must not know how a backend starts a program.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from gpucache.answers.bench import Arm
from gpucache.backends.interface import Backend, Compilation
from gpucache.errors import NoDeviceError
from gpucache.model import Artifact, BuildRequest, Target


class Launch(NamedTuple):
    """A first launch on zeros: one kernel, one work-group."""

    kernel: str
    local_size: tuple[int, ...]
    arguments: tuple[str, ...]
    """For each argument ``buffer``, ``local``, or ``scalar`` and its size in bytes, such as ``scalar 4``."""


class Peer(NamedTuple):
    """A library's own cache for programs of a backend."""

    backend: str
    programs: str
    """The kind of programs it caches, such as ``OpenCL programs``."""
    loaded_apart: bool = False
    """Whether its library is loaded in addition to the backend's own."""
    switch: str = ""
    """The variable that disables it if set to 1, for a cache that is on by default."""


PEERS = {
    "pyopencl": Peer("opencl", "OpenCL programs", switch="PYOPENCL_NO_CACHE"),
    "cuda.core": Peer("cuda", "CUDA programs", loaded_apart=True),
}
"""The peers by the names of their systems among the third-party caches."""


def taking_part(wanted: Iterable[str], target: Target) -> tuple[str, ...]:
    """The peers that can build for a target, each once, in a fixed order."""
    asked = set(wanted)
    return tuple(arm for arm in (*_named(target), Arm.DRIVER) if arm in asked)


def peers_libraries(arms: Iterable[str], target: Target) -> tuple[str, ...]:
    """The peers that are libraries; every start loads them, or only their own starts would pay for that."""
    return tuple(arm for arm in arms if arm in _named(target))


def peers_caveats(wanted: Iterable[str], target: Target) -> Iterator[str]:
    """A sentence for each peer that cannot build for a target, or that adds modules to every start."""
    here = _named(target)
    for arm in dict.fromkeys(wanted):
        if arm in here and PEERS[arm].loaded_apart:
            yield f"every start loads {arm}, so that loading it does not count as a cost of its cache"
        if arm in PEERS and arm not in here:
            yield f"{arm} does not take part: its cache is for {PEERS[arm].programs}"


def peers_switches(arm: str) -> Iterator[tuple[str, str | None]]:
    """The variables that disable peers' caches; None, which unsets one, for the peer of the arm."""
    for name, peer in PEERS.items():
        if peer.switch:
            yield peer.switch, None if arm == name else "1"


def _named(target: Target) -> tuple[str, ...]:
    return tuple(name for name, peer in PEERS.items() if peer.backend == target.backend)


class Session(Protocol):
    """One start of a program on one device, step by step."""

    def build(self, request: BuildRequest, compilation: Compilation) -> None:
        """Build from source, without any cache or with a peer's; raises CompileError."""

    def load(self, artifact: Artifact) -> bool:
        """Load a compiled artifact; False if there is no device to load it on. Raises CompileError."""

    def create_kernels(self) -> bool:
        """Create every kernel; False if nothing is loaded."""

    def set_arguments(self, launches: Sequence[Launch]) -> None:
        """Make zeros for every argument; the benchmark does not time this, its own work."""

    def launch(self) -> bool:
        """Launch with the arguments that were set, and wait; False if nothing could be launched."""


class Plain:
    """A session with a third-party backend, which compiles and loads and launches nothing."""

    def __init__(self, backend: Backend, target: Target) -> None:
        backend.toolchain(target)
        self._backend, self._target, self._loaded = backend, target, False

    def build(self, request: BuildRequest, compilation: Compilation) -> None:
        self.load(self._backend.compile(request, compilation))

    def load(self, artifact: Artifact) -> bool:
        with suppress(NoDeviceError):
            self._backend.load(artifact, self._target)
            self._loaded = True
        return self._loaded

    def create_kernels(self) -> bool:
        return self._loaded

    def set_arguments(self, _: Sequence[Launch]) -> None:
        pass

    def launch(self) -> bool:
        return False
