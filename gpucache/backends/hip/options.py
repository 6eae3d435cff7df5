"""Plans how hipRTC compiles a request: canonical options, search rule, environment.

HipRTC hands the source to comgr, whose clang compiles it under the name CompileSource, or since ROCm 5.3
its own, in a directory of a made-up name, as good as that of any other build: for a source that tells it the
key has the directory above it. Headers in memory are in such a directory too. Before all of them
``hiprtc_runtime.h`` is included, which hipRTC has built in, and which a file in the current directory
replaces. After all -I come the directories of the system's compilers and of ROCm, in an order that differs by
version, so every match in any of them counts.
Only these are looked for on disk.
"""

# Paths are text as programs pass it, and are not normalised.
# ruff: noqa: PTH112, PTH118, PTH207

import os
import re
from collections.abc import Mapping, Sequence
from glob import escape, glob

from gpucache.backends.interface import Compilation
from gpucache.backends.options import (
    Spelling,
    Variables,
    absolute,
    changed_since_loaded,
    read,
    split,
    trimmed,
    with_value,
)
from gpucache.errors import OptionError
from gpucache.keys import KeyInputs
from gpucache.model import ArtifactKind, AsAsked, BuildRequest, Language, Program, Target, Toolchain
from gpucache.payload.source import kernel_names
from gpucache.sources import Place, SearchRule

FILE_NAME = "gpucache_program.hip"
"""The name under which every program is compiled, by which ``run`` knows that it was looked up already."""
_ARCH = "--gpu-architecture="
_SPELLINGS = (
    Spelling("-D", ("-D",), ("-D",)),
    Spelling("-U", ("-U",), ("-U",)),
    Spelling("-I", ("-I",), ("-I",)),
    Spelling("-mllvm ", (), ("-mllvm",)),
    Spelling(_ARCH, (_ARCH, "--offload-arch="), ()),
)
# Only of these is it known that they read and write no files, and put no made-up path into the code.
_KNOWN = re.compile(
    r"-[DU].*|-O[0-3sz]?|-Ofast|--?std=[\w+]+|-w|-W[\w-]+(=[\w-]+)?|-pedantic|-nogpuinc|-hip-pch|-fgpu-rdc"
    r"|-f(no-)?(fast-math|associative-math|finite-math-only|honor-nans|honor-infinities|math-errno"
    r"|reciprocal-math|rounding-math|signed-zeros|trapping-math|unsafe-math-optimizations|approx-func"
    r"|unroll-loops|vectorize|slp-vectorize|exceptions|rtti|strict-aliasing|inline|inline-functions"
    r"|gpu-flush-denormals-to-zero|gpu-approx-transcendentals|hip-fp32-correctly-rounded-divide-sqrt"
    r"|color-diagnostics|caret-diagnostics|diagnostics-color)"
    r"|-f(fp-contract|denormal-fp-math|denormal-fp-math-f32|gpu-default-stream|fp-model)=[\w,-]+"
    r"|-m(no-)?(cumode|wavefrontsize64|unsafe-fp-atomics|tgsplit|xnack|sram-ecc|code-object-v3)"
    r"|-mcode-object-version=\d|-mllvm -?-(amdgpu|inline|unroll)-[\w-]+(=\w+)?",
    re.DOTALL,
)
_LINKED = "-fgpu-rdc"
_FORCED = ("hiprtc_runtime.h", "hiprtc_runtime.h.pch", "hiprtc_runtime.h.gch")
_RESOURCES = "lib/clang"
"""A directory below the current one where comgr's clang looks for headers of its own."""
_CLANG = ("lib/clang/*", "lib/clang/*/include")
_SYSTEM = (
    *("/usr/include/c++/*", "/usr/include/*-linux-gnu/c++/*", "/usr/include/c++/*/backward"),
    *("/usr/include/clang/*/include", *(f"/usr/lib/llvm/{one}" for one in _CLANG)),
    *("/usr/lib/include", "/usr/lib/hip/include"),
    *("/usr/local/include", "/usr/include/*-linux-gnu", "/include", "/usr/include"),
)
_OF_ROCM = (
    *("include", "hip/include"),
    *(f"{folder}/{one}" for folder in ("llvm", "lib/llvm", ".") for one in _CLANG),
)
_ROCM = ("ROCM_PATH", "HIP_PATH", "LLVM_PATH")
FOLDERS = Variables(("TMPDIR", "TMP", "TEMP", "TEMPDIR"))
"""Variables: the first that is set names the directory that contains all these directories."""
_DIRS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
# Recorded at every call of getenv while hipRTC 5.2 compiled; the others were PATH, PWD and those of TMPDIR.
# HIPRTC_* and GPU_ENABLE_WGP_MODE are in the source of later versions.
VARIABLES = Variables(
    (
        *("HIPRTC_*", "AMD_COMGR_*", "GPU_ENABLE_WGP_MODE*", "HIP_PATH*", "ROCM_PATH*", "LLVM_PATH*"),
        *("HIP_DEVICE_LIB_PATH*", "HIP_CLANG_PATH*", "COMPILER_PATH*", "LLD_*", "LLVM_OVERRIDE_PRODUCER*"),
        *("CPATH*", "C_INCLUDE_PATH*", "CPLUS_INCLUDE_PATH*", "OBJC_INCLUDE_PATH*", "OBJCPLUS_INCLUDE_PATH*"),
    ),
    ("AMD_COMGR_CACHE*",),
)


def system(environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The directories that may be searched last, at least one; the directories whose listings decide which
    these are; and the missing directories that would be searched, too."""
    rocm = {"/opt/rocm", *filter(os.path.isabs, (environ.get(name, "") for name in _ROCM))}
    listed, found = set[str](), set[str]()
    for pattern in (*_SYSTEM, *(f"{folder}/{one}" for folder in rocm for one in _OF_ROCM)):
        places = [""]
        for part in pattern.split("/")[1:]:
            if "*" in part:
                listed.update(places)
                places = [one for place in places for one in glob(f"{escape(place)}/{part}")]
            else:
                places = [f"{place}/{part}" for place in places]
        found.update(places)
    there = {one for one in found if os.path.isdir(one)} | {"/usr/include"}
    return tuple(sorted(there)), tuple(sorted(listed)), tuple(sorted(found - there))


def request_as_asked(
    source: bytes,
    file_name: str,
    options: Sequence[str],
    *,
    version: tuple[int, int],  # noqa: ARG001 - NVRTC's default target depends on it
    cwd: str,
    made_up: bool = False,
    headers: Sequence[tuple[str, bytes]] = (),
    name_expressions: Sequence[str] = (),
) -> BuildRequest:
    """The request that a program makes of hipRTC; raises OptionError if its result cannot be cached."""
    found = [(name, value) for name, value, _ in read(trimmed(options), _SPELLINGS)]
    architectures = {value for name, value in found if name == _ARCH}
    if len(architectures) != 1:
        raise OptionError(
            "its options name no architecture, or several, so that the GPU decides; name one, such as "
            "--gpu-architecture=gfx90a"
        )
    linked = (_LINKED, "") in found
    telling = "" if made_up or file_name.startswith("<") else file_name
    return BuildRequest(
        program=Program(telling or next(kernel_names(source), "unnamed"), Language.HIP_CPP, source),
        target=Target("hip", architectures.pop()),
        options=tuple(options),
        artifact_kind=ArtifactKind.BITCODE if linked else ArtifactKind.CODE_OBJECT,
        name_expressions=tuple(name_expressions),
        cwd=cwd,
        searches_cwd=True,
        name_headers="build it without gpucache",
        asked=AsAsked(file_name or "CompileSource", made_up, tuple(headers)),
    )


def plan(request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
    """Plan how a request will be compiled; raises OptionError for options that must be refused."""
    options, written, spelled = list[str](), list[str](), list[str]()
    for name, value, tokens in read(trimmed(split(request.options)), _SPELLINGS):
        if name == "-I":
            spelled.append(value)
            continue
        option = f"{name}{with_value(value) if name == '-D' else value}"
        if name == _ARCH and request.asked is None:
            raise OptionError(
                f"the build option {option!r} belongs to the target; pass --target hip:{value} instead"
            )
        if name != _ARCH and not _KNOWN.fullmatch(option):
            raise OptionError(
                f"the build option {option!r} is unknown to gpucache, so results are not cached"
            )
        if name != _ARCH:
            options.append(option)
            written.extend(tokens)
    # The directories come first: the last of the other options might take one as its value.
    dirs = tuple(absolute(one, request.cwd) for one in (*spelled, *request.include_dirs))
    environment = VARIABLES.among(environ)
    inherited = [one or "." for name in _DIRS if name in environ for one in environ[name].split(":")]
    reads = b"include" in request.program.source or (request.asked is not None and request.asked.headers)
    folder = next((environ[name] for name in FOLDERS.reaching if name in environ), "/tmp")
    name = FILE_NAME if request.asked is None else request.asked.file_name
    refusal = changed_since_loaded(environment)
    if request.searches_cwd and os.path.isdir(os.path.join(request.cwd, _RESOURCES)):
        refusal = f"the current directory has {_RESOURCES}, where its compiler looks for headers"
    if relative := [name for name in _ROCM if environ.get(name, "/")[:1] not in ("", "/")]:
        refusal = f"{relative[0]} is no absolute path, so where headers are depends on the current directory"
    return Compilation(
        inputs=KeyInputs(
            options=tuple(options),
            toolchain=toolchain,
            environment=environment,
            locations=dirs,
            file_name=f"{folder}/*/{name}",
        ),
        rule=SearchRule(
            quote=(Place.INCLUDER, Place.DIRS, Place.SYSTEM),
            angle=(Place.DIRS, Place.SYSTEM),
            every=True,
            system=system(environ)[0] if reads else (),
            names_sources=True,
            makes_up_folders=True,
        ),
        include_dirs=dirs,
        command=(f"{_ARCH}{request.target.name}", *(f"-I{one}" for one in dirs), *written),
        options=tuple(written),
        inherited_dirs=tuple(absolute(one, request.cwd) for one in inherited),
        forced_includes=(*_FORCED, _RESOURCES),
        refusal=refusal,
        linked_later=_LINKED in options,
    )
