"""One start of a CUDA program with NVRTC, on a GPU of the target if this machine has one. Loads NVRTC.

As a peer it is built like a cuda.core program that gives ``Program.compile`` a cache. Source for the
arguments: ``ProgramOptions`` and ``Program.compile`` of cuda-core 1.2. Its cache refuses programs
with headers or name expressions unless their author makes keys by hand; the error says so.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gpucache.backends.cuda import devices, nvrtc
from gpucache.backends.interface import Compilation
from gpucache.bench.sessions import Launch
from gpucache.errors import CompileError, NoDeviceError
from gpucache.model import Artifact, BuildRequest, Target
from gpucache.sources import Wanted, read_closure

_FLAGS = {
    "--use_fast_math": "use_fast_math",
    "-use_fast_math": "use_fast_math",
    "-lineinfo": "lineinfo",
    "--generate-line-info": "lineinfo",
    "-G": "debug",
    "--device-debug": "debug",
    "-w": "disable_warnings",
    "--disable-warnings": "disable_warnings",
    "-default-device": "device_as_default_execution_space",
    "--device-as-default-execution-space": "device_as_default_execution_space",
}
_VALUES = (
    ("-D", "define_macro"),
    ("-U", "undefine_macro"),
    ("-include=", "pre_include"),
    ("-std=", "std"),
    ("-maxrregcount=", "max_register_count"),
    ("-Xptxas=", "ptxas_options"),
)
_MANY = frozenset({"define_macro", "undefine_macro", "pre_include", "ptxas_options"})


class CUDASession:
    """See ``gpucache.bench.sessions.Session``."""

    def __init__(self, target: Target, peers: Sequence[str], folder: str | None) -> None:
        self._folder = folder
        self._library: Any = None
        self._driver: Any = None
        nvrtc.require_target(target)
        with suppress(NoDeviceError):
            driver = devices.find_driver()
            devices.enter(driver, target)
            self._driver = driver
        if peers:
            try:
                import cuda.core.utils  # noqa: F401 - later imports find it loaded
            except ImportError as error:
                raise NoDeviceError(f"cuda.core does not load ({error}); install it") from None

    def build(self, request: BuildRequest, compilation: Compilation) -> None:
        """Compile with NVRTC, or with cuda.core and its cache, and load if a GPU exists."""
        if self._folder is None:
            self.load(nvrtc.compile_source(request, compilation))
        else:
            self.load(compile_with_cuda_core(request, compilation, self._folder))

    def load(self, artifact: Artifact) -> bool:
        if self._driver is not None:
            self._library = devices.load_library(self._driver, artifact)
        return self._library is not None

    def create_kernels(self) -> bool:
        if self._library is None:
            return False
        devices.kernels(self._driver, self._library)
        return True

    def set_arguments(self, launches: Sequence[Launch]) -> None:
        """Do nothing, because no launches are planned for CUDA: NVRTC does not compile late."""

    def launch(self) -> bool:
        """Launch nothing, because the signature of a CUDA kernel is not in its cubin."""
        return False


def compile_with_cuda_core(request: BuildRequest, compilation: Compilation, folder: str) -> Artifact:
    """Call ``Program.compile`` with a file cache in ``folder``; raises CompileError with its words."""
    from cuda.core import Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache

    given: dict[str, Any] = {"arch": request.target.name}
    given |= program_options(compilation.inputs.options)
    if _includes(request, compilation):
        given["include_path"] = list(compilation.include_dirs)
    try:
        program = Program(request.program.source.decode(), "c++", ProgramOptions(**given))
        code = program.compile(
            request.artifact_kind.value,
            name_expressions=request.name_expressions,
            cache=FileStreamProgramCache(folder),
        ).code
    except Exception as error:  # cuda.core's own errors, and those of its bindings
        raise CompileError(f"cuda.core did not compile it ({_first_sentence(error)})", str(error)) from None
    return Artifact(request.artifact_kind, bytes(code))


def program_options(options: tuple[str, ...]) -> dict[str, Any]:
    """NVRTC's options by cuda.core's names; raises CompileError for an option without a name there."""
    named: dict[str, Any] = {}
    for option in options:
        if option in _FLAGS:
            named[_FLAGS[option]] = True
            continue
        found = next(((start, name) for start, name in _VALUES if option.startswith(start)), None)
        if found is None:
            raise CompileError(f"cuda.core has no name for the build option {option!r}")
        start, name = found
        value: Any = option.removeprefix(start)
        if name in _MANY:
            macro, equals, text = value.partition("=")
            pair = name == "define_macro" and equals
            named.setdefault(name, []).append((macro, text) if pair else value)
        else:
            named[name] = int(value) if name == "max_register_count" and value.isdigit() else value
    return named


def _includes(request: BuildRequest, compilation: Compilation) -> bool:
    """Whether the program includes anything, so that its author would name directories."""
    closure = read_closure(
        Wanted(
            request.program.source,
            rule=compilation.rule,
            include_dirs=compilation.include_dirs,
            cwd=None,
            forced=compilation.forced_includes,
            named_headers=request.headers,
        )
    )
    return bool(closure.includes)


def _first_sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return re.split(r"(?<=[a-z)])[.:;] ", text, maxsplit=1)[0][:200] or type(error).__name__
