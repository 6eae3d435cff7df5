"""``gpucache.hip.compile_program``: code objects of HIP C++, from the cache or by hipRTC in this process.

Needs no GPU. A program never fails because of the cache, and loads the code with its own HIP.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.lookup import Hit
from gpucache.backends.hip import BACKEND, hiprtc
from gpucache.backends.options import LOADED, split
from gpucache.engine.hits import find
from gpucache.engine.prepare import named, prepare_again
from gpucache.errors import CacheMissError, TargetError
from gpucache.host.environment import environment_since
from gpucache.library import arguments, outcomes, process
from gpucache.library.missing import build, flush, reason
from gpucache.model import Artifact, BuildRequest, Language, Program, Target

__all__ = ["CodeObject", "compile_program", "flush"]


class CodeObject(NamedTuple):
    """A compiled program."""

    code: bytes
    """An ELF file, as ``hipModuleLoadData`` takes it."""
    lowered_names: Mapping[str, str]
    """The name of each expression that was asked for, as ``hipModuleGetFunction`` takes it."""


def compile_program(
    source: str | bytes,
    *,
    target: str,
    options: str | Sequence[str] = (),
    name: str | None = None,
    name_expressions: Sequence[str] = (),
    include_path: Sequence[str | Path] = (),
    headers: Sequence[str | Path] = (),
) -> CodeObject:
    """The code object of HIP C++, from the cache if it has one.

    ``target`` is ``gfx90a`` or ``hip:gfx90a``. The other arguments are those of
    ``gpucache.cuda.compile_program``, and so is the work after a miss. Raises TypeError or ValueError for an
    invalid argument, CompileError with hipRTC's log, TargetError, NoDeviceError, and CacheMissError where
    GPUCACHE_REQUIRE is set and the cache misses.
    """
    wanted = arguments.text_or_none("target", target) or ""
    called = arguments.text_or_none("name", name) or ""
    cwd = arguments.current_directory()
    request = BuildRequest(
        program=Program(called, Language.HIP_CPP, arguments.source_bytes(source)),
        target=Target.parse(wanted if wanted.startswith("hip:") else f"hip:{wanted}"),
        options=split(arguments.build_options(options)),
        include_dirs=arguments.paths("include_path", include_path),
        artifact_kind=BACKEND.artifact_kind(Target("hip", wanted)),
        name_expressions=arguments.texts("name_expressions", name_expressions),
        headers=arguments.paths("headers", headers, cwd),
        name_headers=arguments.NAME_HEADERS,
        cwd=cwd,
        searches_cwd=True,
    )
    request = request._replace(program=named(request.program))
    stores, own = process.stores(), _Own(request)
    toolchain = hiprtc.toolchain(request.target)
    try:
        prepared = prepare_again(BACKEND, request, toolchain, environment_since(LOADED), stores)
        own.command = prepared.compilation.command
        met = find(stores, prepared, whole=True)
        if isinstance(met, Hit):
            outcome: Hit | Artifact = met
        else:
            outcome = build(stores, prepared, own.compile, reason(stores, prepared, met))
        if isinstance(outcome, Hit):
            outcomes.tell(stores, prepared, outcome)
            return CodeObject(outcome.payload, outcome.head.lowered_names)
    except (CacheMissError, TargetError):
        raise
    except Exception as error:
        if own.failed:
            raise  # the compiler's own result
        process.uncached(stores, request.program.name, error)
        outcome = own.artifact or own.compile()
    return CodeObject(outcome.payload, outcome.lowered_names)


class _Own:
    """A compile in this process, with the options as they were given unless they are planned."""

    def __init__(self, request: BuildRequest) -> None:
        self.request, self.command = request, hiprtc.as_given(request)
        self.artifact: Artifact | None = None
        self.failed = False

    def compile(self) -> Artifact:
        try:
            self.artifact = hiprtc.compile_command(self.request, self.command)
        except BaseException:
            self.failed = True
            raise
        return self.artifact
