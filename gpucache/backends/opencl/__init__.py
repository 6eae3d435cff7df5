"""OpenCL C through PyOpenCL, on all platforms that the ICD loader finds.

The backend object imports the modules that load PyOpenCL only when they are called, so importing this package
loads no GPU stack.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from gpucache.backends.interface import Compilation, CompilersCache
from gpucache.backends.opencl import options
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Device, Language, Target, Toolchain

if TYPE_CHECKING:
    from gpucache.backends.installation import Installation


class OpenCLBackend:
    """See ``gpucache.backends.interface.Backend``."""

    name = "opencl"
    language = Language.OPENCL_C
    languages = (Language.OPENCL_C, Language.SPIR_V)
    suffix = ".cl"
    caches = (CompilersCache("POCL_CACHE_DIR", "pocl/kcache", (("POCL_KERNEL_CACHE", "1"),)),)

    def artifact_kind(self, target: Target) -> ArtifactKind:  # noqa: ARG002 - one kind for all targets
        """A binary of the platform's own format, for every target."""
        return ArtifactKind.OPENCL_BINARY

    def plan(self, request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
        """Plan how a request will be compiled; raises OptionError."""
        return options.plan(request, toolchain, environ)

    def environment(self, toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The variables that are set and affect this compiler."""
        return options.reaching(toolchain, environ)

    def devices(self) -> list[Device]:
        from gpucache.backends.opencl import platforms

        return platforms.probe()

    def toolchain(self, target: Target) -> Toolchain:
        """The toolchain that compiles for a device of this machine; raises TargetError or NoDeviceError."""
        from gpucache.backends.opencl import platforms

        return platforms.toolchain(platforms.find(target))

    def installation(self, target: Target) -> "Installation":
        """The files of the implementation that a device of this machine belongs to; raises TargetError."""
        from gpucache.backends.opencl import platforms

        return platforms.installation(platforms.find(target))

    def compile(self, request: BuildRequest, compilation: Compilation) -> Artifact:
        """Compile in a new context; raises CompileError with the compiler's log."""
        from gpucache.backends.opencl import compiler, large_grids, platforms

        device = platforms.find(request.target)
        return compiler.compile_source(
            compiler.context_of(device),
            device,
            request,
            compilation,
            large_grids=partial(large_grids.compile_apart, request, compilation),
        )

    def own_files(self, toolchain: Toolchain) -> tuple[str, ...]:
        """The files of all installed platforms, and other files that their compilers look at."""
        from gpucache.backends.opencl import installations, platforms

        return installations.own_files(toolchain.implementation, platforms.installations())

    def load(self, artifact: Artifact, target: Target) -> tuple[str, ...]:
        """Create the program and its kernels from the binary; raises CompileError when rejected."""
        from gpucache.backends.opencl import compiler, platforms

        device = platforms.find(target)
        context = compiler.context_of(device)  # programs of Intel's runtime do not keep their context alive
        return compiler.kernel_names(compiler.load_binaries(context, [device], [artifact.payload]))


BACKEND = OpenCLBackend()
