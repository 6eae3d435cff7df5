"""Building as a cuda.core program does that gives ``Program.compile`` a cache. Loads cuda.core.

Source of what cuda.core takes: ``ProgramOptions`` and ``Program.compile`` of cuda-core 1.2. Its cache refuses
programs with headers or name expressions unless their author makes keys by hand, and then the error says so.
"""

import re
from typing import Any

from gpucache.backends.interface import Compilation
from gpucache.errors import CompileError, NoDeviceError
from gpucache.model import Artifact, BuildRequest
from gpucache.sources import read_closure

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


def load() -> None:
    """Import cuda.core with its caches; raises NoDeviceError if that fails."""
    try:
        import cuda.core.utils  # noqa: F401 - later imports find it loaded
    except ImportError as error:
        raise NoDeviceError(f"cuda.core does not load ({error}); install it") from None


def compile_with_cuda_core(request: BuildRequest, compilation: Compilation, folder: str) -> Artifact:
    """Call ``Program.compile(cache=FileStreamProgramCache(folder))``; raises CompileError with its words."""
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
    except Exception as error:  # cuda.core's own, and what its bindings raise
        raise CompileError(f"cuda.core did not compile it ({_first_sentence(error)})", str(error)) from None
    return Artifact(request.artifact_kind, bytes(code))


def program_options(options: tuple[str, ...]) -> dict[str, Any]:
    """NVRTC's options by cuda.core's names; raises CompileError for an option that it has no name for."""
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
    """Whether the program includes anything, so that its author would name folders."""
    closure = read_closure(
        request.program.source,
        rule=compilation.rule,
        include_dirs=compilation.include_dirs,
        cwd=None,
        forced=compilation.forced_includes,
        named_headers=request.headers,
    )
    return bool(closure.includes)


def _first_sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return re.split(r"(?<=[a-z)])[.:;] ", text, maxsplit=1)[0][:200] or type(error).__name__
