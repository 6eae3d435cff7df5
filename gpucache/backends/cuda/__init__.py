"""CUDA C++ through NVRTC, which needs no GPU and no driver for named architectures.

The backend object imports the modules that load NVRTC or the driver only when they are called, so importing
this package loads no GPU stack.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpucache.backends.cuda import options
from gpucache.backends.interface import Compilation
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Device, Language, Target, Toolchain

if TYPE_CHECKING:
    from gpucache.backends.installation import Installation


class CUDABackend:
    """See ``gpucache.backends.interface.Backend``."""

    name = "cuda"
    language = Language.CUDA_CPP
    languages = (Language.CUDA_CPP,)
    suffix = ".cu"
    caches = ()

    def artifact_kind(self, target: Target) -> ArtifactKind:
        """PTX for a virtual architecture, a cubin for a real one."""
        return ArtifactKind.PTX if target.name.startswith("compute_") else ArtifactKind.CUBIN

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        """Plan how a request will be compiled; raises OptionError."""
        return options.plan(request, toolchain, environ)

    def environment(
        self,
        toolchain: Toolchain,  # noqa: ARG002 - there is only one NVRTC
        environ: Mapping[str, str],
    ) -> tuple[tuple[str, str], ...]:
        """The variables that are set and affect NVRTC."""
        return options.reaching(environ)

    def devices(self) -> list[Device]:
        """The GPUs that a driver shows, and every architecture that NVRTC can build for."""
        from gpucache.backends.cuda import devices

        return devices.probe()

    def toolchain(self, target: Target) -> Toolchain:
        """NVRTC as loaded in this process; raises TargetError or NoDeviceError."""
        from gpucache.backends.cuda import nvrtc

        return nvrtc.toolchain(target)

    def installation(self, target: Target) -> "Installation":  # noqa: ARG002 - one NVRTC for all targets
        """The files of NVRTC; raises NoDeviceError."""
        from gpucache.backends.cuda import nvrtc

        return nvrtc.installation()

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        """Compile with NVRTC; raises CompileError with its log."""
        from gpucache.backends.cuda import nvrtc

        return nvrtc.compile_source(request, compilation)

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:  # noqa: ARG002 - one NVRTC for all targets
        """The files of NVRTC, which reads no others."""
        from gpucache.backends.cuda import nvrtc

        return tuple(map(str, nvrtc.installation().files))

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:
        """Load on the first GPU of the target's architecture; raises CompileError or NoDeviceError."""
        from gpucache.backends.cuda import devices

        return devices.load(artifact, target)


BACKEND = CUDABackend()
