"""HIP C++ through hipRTC, which needs no GPU and no driver for a named architecture.

Importing this package loads no GPU stack; its modules load hipRTC at their first call. Source of the facts on
hipRTC: traces of ROCm 5.2 (Debian's), and the source of ROCm/clr.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpucache.backends.hip import options
from gpucache.backends.interface import Compilation
from gpucache.errors import NoDeviceError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Device, Language, Target, Toolchain

if TYPE_CHECKING:
    from gpucache.backends.installation import Installation


class HIPBackend:
    """See ``gpucache.backends.interface.Backend``."""

    name = "hip"
    language = Language.HIP_CPP
    languages = (Language.HIP_CPP,)
    suffix = ".hip"
    caches = ()

    def artifact_kind(self, target: Target) -> ArtifactKind:  # noqa: ARG002 - the same for all
        return ArtifactKind.CODE_OBJECT

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        """Plan how a request will be compiled; raises OptionError."""
        return options.plan(request, toolchain, environ)

    def environment(
        self,
        toolchain: Toolchain,  # noqa: ARG002 - one hipRTC for all targets
        environ: Mapping[str, str],
    ) -> tuple[tuple[str, str], ...]:
        """The variables that are set and affect hipRTC."""
        return options.VARIABLES.among(environ)

    def devices(self) -> list[Device]:
        from gpucache.backends.hip import hiprtc

        return hiprtc.probe()

    def toolchain(self, target: Target) -> Toolchain:
        """HipRTC as loaded in this process; raises TargetError or NoDeviceError."""
        from gpucache.backends.hip import hiprtc

        return hiprtc.toolchain(target)

    def installation(self, target: Target) -> "Installation":  # noqa: ARG002 - one hipRTC for all targets
        """The files of hipRTC; raises NoDeviceError."""
        from gpucache.backends.hip import hiprtc

        return hiprtc.installation()

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        """Compile with hipRTC; raises CompileError with its log."""
        from gpucache.backends.hip import hiprtc

        return hiprtc.compile_source(request, compilation)

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:  # noqa: ARG002 - one hipRTC for all targets
        """The files of hipRTC and the places where its compiler looks for others."""
        from gpucache.backends.hip import hiprtc

        return hiprtc.own_files()

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:  # noqa: ARG002 - none is loaded
        """Raise NoDeviceError: code objects are loaded by the programs themselves."""
        raise NoDeviceError("gpucache does not load HIP code objects; a program that loads them tries them")


BACKEND = HIPBackend()
