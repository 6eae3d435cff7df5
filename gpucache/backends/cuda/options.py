"""Plans how NVRTC compiles a request: canonical options, search rule, environment. All of it is pure.

A program that calls NVRTC itself gets NVRTC's own results, including its log. So its compile is
planned with its own options, and with the name that it gave its source: NVRTC looks for quoted headers
next to that name, and writes its last part into symbols and all of it into messages. Its key has the
architecture among the options, and the last part of the name; other plans have neither. This module must
not import cuda, because plans are made in processes that load no GPU stack.
"""

# Paths are text as programs pass it, and are not normalised.
# ruff: noqa: PTH118, PTH120

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

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
from gpucache.keys import KeyInputs, digest
from gpucache.model import ArtifactKind, AsAsked, BuildRequest, Language, Program, Target, Toolchain
from gpucache.payload.source import kernel_names
from gpucache.sources import Place, SearchRule

FILE_NAME = "/nonexistent/gpucache/program.cu"
"""The name under which every program is compiled, because NVRTC writes the file name into symbols.

NVRTC also looks for quoted includes next to this file, so its directory must not exist.
"""

_SPELLINGS = (
    Spelling("-D", ("--define-macro=", "-D=", "-D"), ("--define-macro", "-D"), strips=True),
    Spelling("-U", ("--undefine-macro=", "-U=", "-U"), ("--undefine-macro", "-U"), strips=True),
    Spelling("-I", ("--include-path=", "-I=", "-I"), ("--include-path", "-I"), strips=True),
    Spelling("-include", ("--pre-include=", "-include="), ("--pre-include", "-include")),
    Spelling("-std=", ("--std=", "-std="), ()),
    Spelling("-arch=", ("--gpu-architecture=", "-arch="), ("--gpu-architecture", "-arch")),
    Spelling("-maxrregcount=", ("--maxrregcount=", "-maxrregcount="), ("--maxrregcount", "-maxrregcount")),
    Spelling("-Xptxas=", ("--ptxas-options=", "-Xptxas="), ("--ptxas-options", "-Xptxas")),
    Spelling("-Xcudafe=", ("-Xcudafe=",), ("-Xcudafe",)),
    Spelling("-dopt=", ("--dopt=", "-dopt="), ("--dopt", "-dopt")),
    Spelling("-frandom-seed=", ("--frandom-seed=", "-frandom-seed="), ()),
    Spelling("-rdc=", ("--relocatable-device-code=", "-rdc="), ("--relocatable-device-code", "-rdc")),
    *(
        Spelling(f"-{name}=", (f"--{name}=", f"-{name}="), (f"--{name}", f"-{name}"))
        for name in ("ftz", "prec-sqrt", "prec-div", "fmad")
    ),
)
# Names that NVRTC's documentation gives to one option; they were tried and gave equal artifacts.
_SAME = {
    "--device-c": "-rdc=true",
    "-dc": "-rdc=true",
    "--device-w": "-rdc=false",
    "-dw": "-rdc=false",
    "--device-debug": "-G",
    "--generate-line-info": "-lineinfo",
    "--disable-warnings": "-w",
    "--extensible-whole-program": "-ewp",
    "--device-as-default-execution-space": "-default-device",
    **{f"--{name}": f"-{name}" for name in ("use_fast_math", "restrict", "extra-device-vectorization")},
}
_SIDE_EFFECTS = (
    r"--?(create[-_]pch|use[-_]pch|pch|pch[-_]dir|time|fdevice-time-trace|use-bundled-headers"
    r"|keep[\w-]*)(=.*)?"
)
_LTO = r"--?(dlto|dlink-time-opt)"
_OPTIX = r"--?optix-ir"
_LINES = r"--?(lineinfo|generate-line-info)"
# These pass an option to the front end or ptxas unseen, and it may name more files.
_PASSED_ON = r"(?s)-Xcudafe=.*|-Xptxas=--?(optf|options-file).*"
_DEBUG = r"(-Xptxas=)?(-G|--device-debug|-g|--?dopt.*)|-Xptxas=(-lineinfo|--generate-line-info)"
_LINKED = r"-dlto|-rdc=true"
# The current directory is searched for "name" only if it contains the program's own name.
_RULE = SearchRule(
    quote=(Place.INCLUDER, Place.DIRS),
    angle=(Place.DIRS,),
    names_sources=True,
    suffix=".stdh",
    assembles=False,
    heeds_dependency=False,
)
_NOT_BESIDE = "--?no-source-include"
DEFAULT_NAME = "default_program"
_NO_NAME = re.compile(rf"{DEFAULT_NAME}|<.*>", re.DOTALL)
"""A name without meaning to people: NVRTC's default, or such as ``<null>`` and ``<string>``."""
_DEFAULT_ARCHITECTURES = {12: "compute_52", 13: "compute_75"}
_ARCHITECTURE = re.compile(r"(sm|compute)_\d+[af]?")
# Source: the options in nvrtc.h of 12.0 to 13.5, without those that read or write files, that disable
# caches, or that make tile IR, which is not cached. An option that is not known yet may do any of that.
# fmt: off
_LONG = frozenset((
    "gpu-architecture", "device-c", "device-w", "relocatable-device-code", "extensible-whole-program",
    "device-debug", "generate-line-info", "dopt", "Ofast-compile", "ptxas-options", "maxrregcount", "ftz",
    "prec-sqrt", "prec-div", "fmad", "use_fast_math", "ffinite-math-only", "fno-signed-zeros",
    "extra-device-vectorization", "modify-stack-limit", "dlink-time-opt", "gen-opt-lto", "optix-ir",
    "jump-table-density", "device-stack-protector", "frandom-seed", "define-macro", "undefine-macro",
    "include-path", "pre-include", "no-source-include", "std", "builtin-move-forward",
    "builtin-initializer-list", "disable-warnings", "Wreorder", "Wconversion", "warning-as-error",
    "fmax-errors", "restrict", "device-as-default-execution-space", "device-int128", "device-float128",
    "optimization-info", "display-error-number", "no-display-error-number", "diag-error", "diag-suppress",
    "diag-warn", "brief-diagnostics", "split-compile", "fdevice-syntax-only", "minimal", "utf-8",
))
_SHORT = frozenset((
    "arch", "dc", "dw", "rdc", "ewp", "G", "lineinfo", "dopt", "Ofc", "Xptxas", "maxrregcount", "ftz",
    "prec-sqrt", "prec-div", "fmad", "use_fast_math", "ffinite-math-only", "fno-signed-zeros",
    "extra-device-vectorization", "modify-stack-limit", "dlto", "gen-opt-lto", "optix-ir", "jtd",
    "device-stack-protector", "frandom-seed", "no-source-include", "std", "builtin-move-forward",
    "builtin-initializer-list", "w", "Wreorder", "Wconversion", "Werror", "fmax-errors", "restrict",
    "default-device", "device-int128", "device-float128", "opt-info", "err-no", "no-err-no", "diag-error",
    "diag-suppress", "diag-warn", "brief-diag", "split-compile", "fdevice-syntax-only", "minimal",
    "utf-8",
))
# fmt: on
_KNOWN = frozenset([*(f"--{name}" for name in _LONG), *(f"-{name}" for name in _SHORT)])
_TEXTS = ("-D", "-U", "-include")
# The variables that NVRTC 13.5 reads were recorded at every call of getenv. These are left out, because they
# change nothing: CUDA_CACHE_DISABLE, EDG_BASE (nothing is opened there), LLVM_IGNORED_ENV_VAR, PWD,
# OPENSSL_ia32cap.
VARIABLES = Variables(
    ("NVRTC_*", "NVVM_*", "LIBNVVM_*", "PTXAS_*", "NV_NVVM_*", "LLVM_OVERRIDE_PRODUCER*"),
    ("NVRTC_DISABLE_CONCURRENT_?*", "NVRTC_CACHE*"),
)


def request_as_asked(
    source: bytes,
    file_name: str,
    options: Sequence[str],
    *,
    version: tuple[int, int],
    cwd: str,
    made_up: bool = False,
    headers: Sequence[tuple[str, bytes]] = (),
    name_expressions: Sequence[str] = (),
    include_dirs: Sequence[str] = (),
) -> BuildRequest:
    """The request that a program makes of NVRTC; raises OptionError if its result cannot be cached.

    ``file_name`` is the program's name for its source, and ``made_up`` whether that differs from run to run.
    ``headers`` are in memory, by name. ``include_dirs`` are searched after the directories in the options.
    """
    flags = [f"{name}{value}" for name, value, _ in read(trimmed(options), _SPELLINGS)]
    architecture = _architecture(flags, version)
    kind = ArtifactKind.CUBIN if architecture.startswith("sm_") else ArtifactKind.PTX
    if _any(_LTO, flags):
        kind = ArtifactKind.LTOIR
    elif _any(_OPTIX, flags):
        kind = ArtifactKind.OPTIXIR
    telling = "" if made_up or _NO_NAME.fullmatch(file_name) else file_name
    name = telling or next(kernel_names(source), DEFAULT_NAME)
    return BuildRequest(
        program=Program(name, Language.CUDA_CPP, source),
        target=Target("cuda", architecture),
        options=tuple(options),
        include_dirs=tuple(include_dirs),
        artifact_kind=kind,
        name_expressions=tuple(name_expressions),
        cwd=cwd,
        searches_cwd=True,
        name_headers="build it without gpucache",
        asked=AsAsked(file_name or DEFAULT_NAME, made_up, tuple(headers)),
    )


def _architecture(flags: Sequence[str], version: tuple[int, int]) -> str:
    """The target architecture: the last one in the options, else NVRTC's default.

    NVRTC makes a cubin of the last architecture if any of them is an ``sm_``.
    """
    named = [flag.removeprefix("-arch=") for flag in flags if flag.startswith("-arch=")]
    found = named[-1] if named else _DEFAULT_ARCHITECTURES.get(version[0], "")
    if not _ARCHITECTURE.fullmatch(found):
        raise OptionError(f"{found!r} is not a known architecture; name one, such as -arch=sm_90")
    return found.replace("compute_", "sm_") if any(one.startswith("sm_") for one in named) else found


_ANY = Program("", Language.CUDA_CPP, b"")


class _Read(NamedTuple):
    """A program's options in order: as the key has them, as written, and the ones that name paths."""

    options: list[str]
    written: list[str]
    dirs: list[str]
    forced: list[str]

    @property
    def rule(self) -> SearchRule:
        return _RULE._replace(quote=(Place.DIRS,)) if _any(_NOT_BESIDE, self.options) else _RULE


def _read(given: Sequence[str], canonical: Callable[[str, str], str]) -> _Read:
    found = _Read([], [], [], [])
    for name, value, tokens in read(given, _SPELLINGS):
        if name == "-I":
            found.dirs.append(value)
            continue
        if name == "-include":
            found.forced.append(value)
        found.options.append(canonical(name, value))
        found.written.extend(tokens)
    return found


def _any(form: str, options: Sequence[str]) -> bool:
    return any(re.fullmatch(form, option) for option in options)


def plan(request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
    """Plan how a request will be compiled; raises OptionError for options that must be refused."""
    if request.asked is not None:
        asked = request.asked._replace(headers=tuple((name, b"") for name, _ in request.asked.headers))
        alike = request._replace(program=_ANY, name_expressions=(), asked=asked)
        return _plan_as_asked(alike, asked, toolchain, reaching(environ))
    folders, linked = request.include_dirs, request.artifact_kind is ArtifactKind.LTOIR
    planned = _planned(request.options, folders, request.cwd, linked, toolchain, reaching(environ))
    if planned.holds_paths or planned.lists_files:
        # It is compiled in "/", unless the current directory is searched for a forced include.
        in_place = request.searches_cwd and not all(map(os.path.isabs, planned.forced_includes))
        planned = planned._replace(inputs=planned.inputs._replace(folder=request.cwd if in_place else ""))
    command = (f"-arch={request.target.name}", *planned.command)
    return planned._replace(command=command, refusal=changed_since_loaded(planned.inputs.environment))


@lru_cache(maxsize=64)
def _planned(
    asked: tuple[str, ...],
    folders: tuple[str, ...],
    cwd: str,
    linked: bool,
    toolchain: Toolchain,
    environment: tuple[tuple[str, str], ...],
) -> Compilation:
    """The part of a plan that many programs share; its command lacks the architecture."""
    given = trimmed(asked)
    if "" in given:
        raise OptionError("an empty build option is refused by NVRTC; leave it out")
    found = _read(given, _allowed)
    # For #include_next, NVRTC searches a directory twice if it is given twice.
    include_dirs = tuple(absolute(directory, cwd) for directory in (*found.dirs, *folders))
    if linked:
        found.options.append("-dlto")
        found.written.append("-dlto")
    return Compilation(
        inputs=KeyInputs(
            options=tuple(found.options),
            toolchain=toolchain,
            environment=environment,
            locations=include_dirs,
            file_name=FILE_NAME,
        ),
        rule=found.rule,
        include_dirs=include_dirs,
        # The directories come first: the last of the other options might take one as its value.
        command=(*(f"-I{directory}" for directory in include_dirs), *found.written),
        options=tuple(found.written),
        forced_includes=tuple(found.forced),
        holds_paths=_any(_DEBUG, found.options),
        lists_files="-lineinfo" in found.options,
        linked_later=_any(_LINKED, found.options),
    )


@lru_cache(maxsize=64)
def _plan_as_asked(
    request: BuildRequest, asked: AsAsked, toolchain: Toolchain, environment: tuple[tuple[str, str], ...]
) -> Compilation:
    """Plan how requests of programs that call NVRTC themselves are compiled; raises OptionError."""
    found = _read(trimmed(split(request.options)), _as_asked)
    options = found.options
    spelled = (*found.dirs, *request.include_dirs)  # as the program spells them, like ``__FILE__``
    if not any(option.startswith("-arch=") for option in options):
        options.insert(0, f"-arch={request.target.name}")
    enciphered = request.artifact_kind in (ArtifactKind.LTOIR, ArtifactKind.OPTIXIR)
    linked = enciphered or _any(_LINKED, options)
    lined, debugged = _any(_LINES, options), _any(_DEBUG, options)
    hidden = debugged or enciphered  # the paths that NVRTC writes cannot be found by a search, or are certain
    if asked.made_up and (hidden or (lined and linked)):
        raise OptionError(
            "it may contain a file name that differs per run and cannot be found in it, so it is not cached"
        )
    # Line information has full paths; debug and enciphered information always have the directory.
    names = (asked.file_name, *spelled, *(name for name, _ in asked.headers))
    tells_folder = hidden or (lined and not all(map(os.path.isabs, names)))
    return Compilation(
        inputs=KeyInputs(
            options=tuple(options),
            toolchain=toolchain,
            environment=environment,
            locations=spelled,
            file_name=asked.file_name,
            folder=request.cwd if tells_folder else "",
        ),
        rule=found.rule._replace(home=os.path.dirname(os.path.join(request.cwd, asked.file_name))),
        include_dirs=tuple(absolute(directory, request.cwd) for directory in spelled),
        command=(*(f"-I{directory}" for directory in spelled), *found.written),
        options=tuple(found.written),
        forced_includes=tuple(found.forced),
        holds_paths=hidden or lined,
        lists_files=lined,
        linked_later=linked,
        source_path=asked.file_name if os.path.dirname(asked.file_name) else "",
    )


def _as_asked(name: str, value: str) -> str:
    option = _SAME.get(name, f"{name}{with_value(value) if name == '-D' else value}")
    if name not in _TEXTS and option.partition("=")[0] not in _KNOWN:
        raise OptionError(f"the build option {option!r} is unknown to gpucache, so results are not cached")
    refuse_side_effects((option,))
    return option


def seed(request: BuildRequest, options: Sequence[str]) -> tuple[str, ...]:
    """The option with the program's random seed, unless one was given or it is compiled as requested.

    A program may define nothing that other files could name, as with templates in an unnamed namespace. NVRTC
    then puts the time and the process id into its symbols; with a seed it uses a hash of the seed. Programs
    that are linked together need different seeds.
    """
    if request.asked is not None or any(option.startswith("-frandom-seed=") for option in options):
        return ()
    parts = (digest(request.program.source), *options, *request.name_expressions)
    own = digest("\0".join(parts).encode(errors="surrogatepass"))
    return (f"-frandom-seed=gpucache-{own[:16]}",)


def refuse_side_effects(options: tuple[str, ...]) -> None:
    """Raise OptionError for an option that reads or writes files besides the artifact."""
    for option in options:
        if re.fullmatch(_SIDE_EFFECTS, option) or re.fullmatch(_PASSED_ON, option):
            raise OptionError(
                f"the build option {option!r} reads or writes files besides the artifact; leave it out"
            )


def reaching(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that are set and affect the compile."""
    return VARIABLES.among(environ)


def _allowed(name: str, value: str) -> str:
    if name == "-include":
        return f"-include={value}"
    if name == "-D":
        return f"-D{with_value(value)}"
    option = _SAME.get(name, f"{name}{value}")
    if name == "-arch=":
        raise OptionError(
            f"the build option {option!r} belongs to the target; pass --target cuda:{value} instead"
        )
    if re.fullmatch(_LTO, option):
        raise OptionError(
            f"the build option {option!r} changes the kind of artifact; ask for the artifact kind ltoir"
        )
    if re.fullmatch(_OPTIX, option):
        raise OptionError(
            f"the build option {option!r} makes OptiX IR, which gpucache does not cache; leave it out"
        )
    if re.fullmatch(_PASSED_ON, option):
        raise OptionError(
            f"the build option {option!r} can make the compiler read files outside the key; use NVRTC's "
            "own option instead, such as -I, -D or --diag-suppress"
        )
    if re.fullmatch(_SIDE_EFFECTS, option):
        raise OptionError(
            f"the build option {option!r} reads or writes files besides the artifact, which a cached build "
            "would skip; leave it out"
        )
    return option
