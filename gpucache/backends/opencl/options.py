"""Plans how an OpenCL compiler builds a request: canonical options, search rule, environment.

Everything here is pure. This module must not import PyOpenCL, because plans are made in processes that load
no GPU stack.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from gpucache.backends.interface import Compilation
from gpucache.backends.options import (
    LOADED,
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
from gpucache.model import BuildRequest, Language, Toolchain
from gpucache.sources import Place, SearchRule

POCL, INTEL, NVIDIA, OTHER = "pocl", "intel", "nvidia", "other"
EXTRA_OPTIONS = "PYOPENCL_BUILD_OPTIONS"
_ADDED_OPTIONS = {
    POCL: ("POCL_EXTRA_BUILD_FLAGS",),
    INTEL: ("OPENCL_PROGRAM_COMPILE_OPTIONS",),
    OTHER: ("AMD_OCL_BUILD_OPTIONS", "AMD_OCL_BUILD_OPTIONS_APPEND"),
}

_SPELLINGS = (
    Spelling("-D", ("-D",), ("-D",), strips=True),
    Spelling("-I", ("-I",), ("-I",), strips=True),
)
# Some compilers take this as another spelling of -I; PoCL and Intel's refuse it.
_SLASH_I = "/I"
# With these a compiler writes files, or reads files that no key covers.
_SIDE_EFFECTS = (
    r"-save-temps.*|--?dump.*|-s|-ftime-trace.*|-MD|-MF.*|-o|-Xclang"
    r"|-(include|imacros|isystem|iquote|idirafter|iwithprefix).*"
)
_WORD = r'(?:[^\s"]|"[^"]*"?)+'
_BEFORE_VALUE = r"^(-D[^=]*=|-I)"
# A binary may lack the information that this option requests. Intel's do; PoCL's have it if built with it.
_ARGUMENT_INFO = "-cl-kernel-arg-info"
_ANSWERED_BY_BINARIES = (POCL,)
_DEBUG = "-g"

# Where each implementation looks for headers, as traced. PoCL puts the current directory before every -I;
# Intel puts it after them, and for a quoted name in the program itself also before them. PoCL writes the
# program into its cache, so a quoted name is looked for there first. Intel also has its own directories after
# all others, and reads a cl.cfg. For an unknown implementation every match is covered.
_INTEL_SYSTEM = ("/usr/local/include", "include", "/usr/include")
_RULES = {
    POCL: SearchRule(quote=(Place.INCLUDER, Place.CWD, Place.DIRS), angle=(Place.CWD, Place.DIRS)),
    INTEL: SearchRule(
        quote=(Place.INCLUDER, Place.MAIN_CWD, Place.DIRS, Place.CWD, Place.SYSTEM),
        angle=(Place.DIRS, Place.CWD, Place.SYSTEM),
        system=_INTEL_SYSTEM,
        configuration="cl.cfg",
    ),
}
_ANY_RULE = SearchRule(
    quote=(Place.INCLUDER, Place.CWD, Place.DIRS, Place.SYSTEM),
    angle=(Place.INCLUDER, Place.CWD, Place.DIRS, Place.SYSTEM),
    every=True,
    system=_INTEL_SYSTEM,
)

_RULES[NVIDIA] = _ANY_RULE._replace(assembles=False)  # ptxas has no directive that reads a file

# For each implementation the variables that affect its compiler, and those among them that do not affect the
# code it generates: cache paths, thread counts, traces. The compile itself sets POCL_BINARY_SPECIALIZE_WG.
# The variables that each compiler reads were recorded at every call of getenv while it compiled (PoCL 3.0 and
# 3.1 with LLVM 14 and 15, Intel's runtime 2026.2). These are left out, because they change no binary: HOME,
# XDG_CACHE_HOME, TMPDIR, PATH (it contains the linker that PoCL runs), LIBRARY_PATH (PoCL links nothing from
# it), PWD, ROCM_PATH, HWLOC_*, TBB_*, KMP_*, INTEL_ITTNOTIFY_*, CL_ITT_CONFIG_*,
# CL_DISABLE_STACK_TRACE, LIBUNWIND_*, SYCL_CPU_* and DPCPP_CPU_* (how work is spread), DISABLE_INFER_AS,
# ICX_S2O, LLVM_IGNORED_ENV_VAR. CPATH and the like are in the strings of the libraries, but are never
# read.
_LAYERS, _OUR_LAYER = "OPENCL_LAYERS", "libgpucache_opencl_layer.so"
_LAYERS_AND_LLVM = (f"{_LAYERS}*", "LLVM_OVERRIDE_PRODUCER*")
_VARIABLES = {
    POCL: Variables(
        (
            *("POCL_*", "COMPILER_PATH*", "LD_RUN_PATH*", "GNUTARGET*", "LDEMULATION*"),
            *_LAYERS_AND_LLVM,
        ),
        (
            *("POCL_CACHE_DIR", "POCL_KERNEL_CACHE", "POCL_DEBUG", "POCL_DEVICES", "POCL_TRACING*"),
            *("POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_PTHREAD_MIN_THREADS", "POCL_STARTUP_DELAY"),
            *("POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES", "POCL_SIG?*_HANDLER", "POCL_MEMORY_LIMIT"),
            "POCL_BINARY_SPECIALIZE_WG",
        ),
    ),
    INTEL: Variables(
        (
            *("CL_CONFIG_*", "OPENCL_PROGRAM_COMPILE_OPTIONS*", "NO_OVERRIDE_CLANG_VERSION*"),
            *("OCLBACKEND_PLUGINS", *_LAYERS_AND_LLVM),
        ),
        (
            *("CL_CONFIG_LOG_FILE", "CL_CONFIG_USER_LOGGER", "CL_CONFIG_CPU_TBB_NUM_WORKERS"),
            *("CL_CONFIG_USE_ITT_API", "CL_CONFIG_USE_VTUNE"),
        ),
    ),
    NVIDIA: Variables(
        ("CUDA_*", "NV_*", f"{_LAYERS}*"),
        (
            *(
                "CUDA_CACHE_?*",
                "CUDA_TILE_CACHE_?*",
                "CUDA_VISIBLE_DEVICES",
                "CUDA_DEVICE_ORDER",
                "CUDA_LAUNCH_BLOCKING",
            ),
            *("CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CUDA_MODULE_?*", "CUDA_MPS_?*", "CUDA_DEVICE_MAX_?*"),
            *("CUDA_VERSION", "NV_*VERSION*", "NV_*PACKAGE*", "NV_*LIB*"),
        ),
    ),
    OTHER: Variables(
        (
            *("AMD_*", "GPU_*", "IGC_*", "NEO_*", "RUSTICL_*", "MESA_*", "LIBCLC_*", "LP_*", "CL_CONFIG_*"),
            *("POCL_*", *_LAYERS_AND_LLVM),
        ),
        (
            *("NEO_CACHE_?*", "MESA_SHADER_CACHE*", "MESA_DISK_CACHE*", "MESA_GLSL_CACHE*", "POCL_DEBUG"),
            *("MESA_DEBUG", "?*_CACHE_DIR", "?*_LOG*", "GPU_DEVICE_ORDINAL", "AMD_LOG*", "POCL_KERNEL_CACHE"),
        ),
    ),
}

# Variables that name files which Intel's compiler reads instead of the files that it made itself.
_NAMES_FILES = r"CL_CONFIG_REPLACE_IR_\w+|CL_CONFIG_FORCE_PROFILE_LIB_PATH|OCLBACKEND_PLUGINS"


def plan(request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
    """Plan how a request will be compiled; raises OptionError for options that must be refused."""
    implementation = toolchain.implementation
    if implementation == INTEL and (naming := next(filter(_names_files, environ), None)):
        raise OptionError(
            f"the environment variable {naming} makes the compiler read a file outside the key; unset it"
        )
    extra = _as_driver_reads(environ.get(EXTRA_OPTIONS, "").split())
    options, dirs = _canonical(_tokens(request), request.cwd)
    extra_options, extra_dirs = _canonical(extra, request.cwd)
    own = (absolute(directory, request.cwd) for directory in request.include_dirs)
    include_dirs = tuple(dict.fromkeys((*dirs, *own, *pyopencl_include_dirs(), *extra_dirs)))
    constants: tuple[str, ...] = ()
    if request.program.language is Language.SPIR_V:  # which includes nothing
        from gpucache.payload.spirv import constants_first

        include_dirs = ()
        constants, options = constants_first(options)
    added = (environ.get(name, "").split() for name in _ADDED_OPTIONS.get(implementation, ()))
    inherited, inherited_dirs = _canonical(tuple(chain.from_iterable(added)), request.cwd)
    everything = (*options, *extra_options)
    debugged = any(option.startswith(_DEBUG) for option in everything)
    # Debug information may contain the current directory: none in Intel's, and in PoCL's a worker's own.
    tells_cwd = debugged and request.searches_cwd and implementation not in (POCL, INTEL)
    return Compilation(
        inputs=KeyInputs(
            options=(*constants, *(_keyed(implementation, option) for option in everything)),
            toolchain=toolchain,
            environment=_environment(implementation, environ),
            local_sizes=_canonical_sizes(request.local_sizes) if implementation == POCL else (),
            locations=include_dirs,
            file_name=request.cwd if tells_cwd else "",
        ),
        rule=_rule(implementation, environ, request.cwd),
        include_dirs=include_dirs,
        inherited_options=inherited,
        inherited_dirs=inherited_dirs,
        command=(*everything, *(f"-I{directory}" for directory in include_dirs)),
        options=(*constants, *options),
        late=implementation == POCL,
        refusal=_refusal(implementation, everything, environ),
        holds_paths=debugged,
        differs="PoCL puts a temporary path into every binary" if implementation == POCL else "",
        may_differ=_may_differ(implementation, debugged=debugged),
    )


def _names_files(variable: str) -> bool:
    return variable.startswith(("CL_CONFIG_", "OCLB")) and re.fullmatch(_NAMES_FILES, variable) is not None


def _may_differ(implementation: str, *, debugged: bool) -> str:
    """Why a second compile may give different bytes; empty if it does not."""
    if implementation == INTEL:
        return "Intel numbers the programs of a process, and writes the number into the binary"
    return "debug information names the directory it was compiled in" if debugged else ""


def _keyed(implementation: str, option: str) -> str:
    """An option as it is in the key. For PoCL and Intel's compiler ``-DN`` is ``-DN=1``."""
    known = implementation in (POCL, INTEL) and option.startswith("-D")
    return f"-D{with_value(option[2:])}" if known else option


def _rule(implementation: str, environ: Mapping[str, str], cwd: str) -> SearchRule:
    """The rule by which the compiler looks for headers.

    PoCL also looks next to the program, which it writes into its cache (lib/CL/pocl_cache.c,
    ``pocl_cache_init_topdir``).
    """
    rule = _RULES.get(implementation, _ANY_RULE)
    if implementation != POCL:
        return rule
    place = environ.get("POCL_CACHE_DIR", "")
    if not place:
        home = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if "HOME" in environ else "/tmp")
        used = environ.get("POCL_KERNEL_CACHE", "1").startswith("1")
        place = f"{home}/pocl/{'kcache' if used else 'uncached'}"
    return rule._replace(home=absolute(place, cwd))


def _refusal(implementation: str, options: Sequence[str], environ: Mapping[str, str]) -> str | None:
    if changed := changed_since_loaded(_among(implementation, environ)):
        return changed
    if _ARGUMENT_INFO not in options or implementation in _ANSWERED_BY_BINARIES:
        return None
    return (
        f"the build option {_ARGUMENT_INFO!r} requests data that this driver's binaries lack, so a hit "
        "could not return it; leave it out if the program does not query arguments"
    )


def reaching(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that are set and affect the compile."""
    extra = ((EXTRA_OPTIONS, environ[EXTRA_OPTIONS]),) if EXTRA_OPTIONS in environ else ()
    return (*_environment(toolchain.implementation, environ), *extra)


def as_pyopencl_reads(options: str | Sequence[str] | None) -> tuple[str, ...]:
    """Options of a PyOpenCL program as the driver sees them: joined by a space, then split again.

    Raises OptionError for an open quote, and for white space that compilers disagree on.
    """
    if not options:
        return ()
    tokens = trimmed(split(options))
    if " ".join(tokens).count('"') % 2:
        raise OptionError(f"the build options {tokens!r} open a quote; close it")
    return _as_driver_reads(tokens)


def _tokens(request: BuildRequest) -> tuple[str, ...]:
    return tuple(filter(None, trimmed(split(request.options))))


def for_pyopencl(request: BuildRequest) -> list[str]:
    """The options of a request for PyOpenCL's build, which adds its own directory and variable."""
    options, dirs = _canonical(_tokens(request), request.cwd)
    if request.program.language is Language.SPIR_V:
        from gpucache.payload.spirv import constants_first

        return [_quoted(token) for token in constants_first(options)[1]]
    own = (absolute(directory, request.cwd) for directory in request.include_dirs)
    return [_quoted(token) for token in (*options, *(f"-I{directory}" for directory in (*dirs, *own)))]


def _as_driver_reads(tokens: Sequence[str]) -> tuple[str, ...]:
    words = re.findall(_WORD, " ".join(tokens))
    # Without the quotes that keep a word together: ``command_line`` adds them again.
    return tuple(
        word.replace('"', "") if re.search(r"\s", word) and '\\"' not in word else word for word in words
    )


def command_line(command: tuple[str, ...]) -> str:
    """Options as the single string that OpenCL takes; white space is quoted after the ``=`` as PoCL needs."""
    return " ".join(_quoted(token) for token in command)


def _quoted(token: str) -> str:
    if not re.search(r"\s", token):
        return token
    value = re.sub(_BEFORE_VALUE, "", token)
    return f'{token.removesuffix(value)}"{value}"'


@cache
def pyopencl_include_dirs() -> tuple[str, ...]:
    """The directory of headers that PyOpenCL adds to every build, so that its programs and ours agree."""
    from importlib.util import find_spec

    spec = find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return ()
    return (str(Path(spec.origin).parent / "cl"),)


def _canonical(tokens: tuple[str, ...], cwd: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    options: list[str] = []
    dirs: list[str] = []
    behind = (*tokens[1:], "-")
    if any(token == "-x" and behind[place].startswith("-") for place, token in enumerate(tokens)):
        raise OptionError("the build option '-x' lacks its value; write the language after it")
    for name, value, _ in read(tokens, _SPELLINGS):
        if name == "-I":
            dirs.append(absolute(value.strip('"'), cwd))
        elif value:
            options.append(f"{name}{value}")
        elif name.startswith(_SLASH_I):
            raise OptionError(f"the build option {name!r} is ambiguous to compilers; write -I")
        elif re.fullmatch(_SIDE_EFFECTS, name):
            raise OptionError(
                f"the build option {name!r} reads or writes files besides the artifact, which a cached "
                "build would skip; leave it out"
            )
        elif '"' in name.partition("=")[0]:
            raise OptionError(f"the build option {name!r} is ambiguous to compilers; quote only its value")
        else:
            options.append(name)
    return tuple(options), tuple(dirs)


def _canonical_sizes(sizes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Each size once and sorted, without trailing extents of 1, because PoCL takes sizes as a set."""
    shortened = set()
    for size in sizes:
        while len(size) > 1 and size[-1] == 1:
            size = size[:-1]
        shortened.add(size)
    return tuple(sorted(shortened))


def variables(implementation: str) -> Variables:
    """The variables that affect a compiler; the content of PYOPENCL_BUILD_OPTIONS is keyed as options."""
    return _VARIABLES.get(implementation, _VARIABLES[OTHER])


def _environment(implementation: str, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = _among(implementation, environ)
    return tuple(pair for name, value in found for pair in _without_our_layer(name, value))


def _among(implementation: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    reaching = variables(implementation)
    found = reaching.among(environ)
    named = {name for name, _ in reaching.among({name.removesuffix(LOADED): "" for name, _ in found})}
    return [pair for pair in found if pair[0].removesuffix(LOADED) in named]


def _without_our_layer(name: str, value: str) -> Iterable[tuple[str, str]]:
    """A variable without gpucache's own layer, which changes no binary."""
    if name != _LAYERS or _OUR_LAYER not in value:
        yield name, value
    elif others := [layer for layer in value.split(os.pathsep) if not layer.endswith(f"/{_OUR_LAYER}")]:
        yield name, os.pathsep.join(others)


def is_below_run(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the builds of a program pass through our layer, which asks the server of ``gpucache run``."""
    return _OUR_LAYER in environ.get(_LAYERS, "") and "GPUCACHE_RUN_SOCKET" in environ


# PoCL names the source by a temporary file, Intel by a running number where a line names a place. The pattern
# finds where a path can begin, because otherwise a log full of slashes would be searched from each of them.
_SOURCE_NAMES = (
    r"""(?m)(?:(?<![^\s"'(<])/[^\s"'(<]*tempfile[\w-]*\.cl|<program source>|<stdin>|^\d+(?=:\d+:\d+:)"""
    r"""|(?<=^In file included from )\d+(?=:\d+:))"""
)


def program_log(log: str, name: str) -> str:
    """The log of a build, in which the program has its display name."""
    return re.sub(_SOURCE_NAMES, lambda _: name, log).strip("\0\n ")
