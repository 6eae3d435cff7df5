"""How a request reaches NVRTC: canonical options, search rule, environment. Everything here is pure.

This module must not import cuda, because plans are made in processes that load no GPU stack.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpucache.backends.interface import Compilation
from gpucache.backends.options import (
    Spelling,
    Variables,
    absolute,
    changed_since_loaded,
    read,
    trimmed,
    with_value,
)
from gpucache.errors import OptionError
from gpucache.keys import KeyInputs, digest
from gpucache.model import ArtifactKind, BuildRequest, Toolchain
from gpucache.sources import Place, SearchRule

FILE_NAME = "/nonexistent/gpucache/program.cu"
"""The name under which every program is compiled, because NVRTC puts the file name into symbols.

NVRTC also looks for quoted includes beside this file, so the folder is one that does not exist.
"""

SPELLINGS = (
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
SAME = {
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
_LTO = r"-dlto|--dlink-time-opt"
_OPTIX = r"--?optix-ir"
# Through these an option reaches the front end or ptxas unseen, and it may name files of its own.
_PASSED_ON = r"(?s)-Xcudafe=.*|-Xptxas=--?(optf|options-file).*"
DEBUG = r"(-Xptxas=)?(-G|--device-debug|-g|--?dopt.*)|-Xptxas=(-lineinfo|--generate-line-info)"
LINKED = r"-dlto|-rdc=true"
# The current directory is searched for "name" only where the program's own name lies in it.
RULE = SearchRule(
    quote=(Place.INCLUDER, Place.DIRS),
    angle=(Place.DIRS,),
    trigraphs=False,
    names_sources=True,
    assembles=False,
    heeds_dependency=False,
)
NOT_BESIDE = "--?no-source-include"
RULE_NOT_BESIDE = RULE._replace(quote=(Place.DIRS,))
# The variables that NVRTC 13.5 reads were recorded at every call of getenv. These are left out, because they
# change nothing: CUDA_CACHE_DISABLE, EDG_BASE (nothing is opened there), LLVM_IGNORED_ENV_VAR, PWD,
# OPENSSL_ia32cap.
VARIABLES = Variables(
    ("NVRTC_*", "NVVM_*", "LIBNVVM_*", "PTXAS_*", "NV_NVVM_*", "LLVM_OVERRIDE_PRODUCER*"),
    ("NVRTC_DISABLE_CONCURRENT_?*", "NVRTC_CACHE*"),
)


def plan(request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
    """How a request will be compiled; raises OptionError for options that must be refused."""
    folders, linked = request.include_dirs, request.artifact_kind is ArtifactKind.LTOIR
    planned = _planned(request.options, folders, request.cwd, linked, toolchain, reaching(environ))
    if planned.holds_paths or planned.lists_files:
        # It is compiled in "/", unless the current directory is searched for a forced include.
        in_place = request.searches_cwd and not all(map(os.path.isabs, planned.forced_includes))
        planned = planned._replace(inputs=planned.inputs._replace(folder=request.cwd if in_place else ""))
    seed = _seed(request, planned.inputs.options)
    command = (f"-arch={request.target.name}", *seed, *planned.command)
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
    """The part of a plan that many programs share; its command lacks architecture and seed."""
    options: list[str] = []
    written: list[str] = []
    dirs: list[str] = []
    forced: list[str] = []
    given = trimmed(asked)
    if "" in given:
        raise OptionError("an empty build option is refused by NVRTC; leave it out")
    for name, value, tokens in read(given, SPELLINGS):
        if name == "-I":
            dirs.append(absolute(value, cwd))
            continue
        if name == "-include":
            forced.append(value)
            options.append(f"-include={value}")
        elif name == "-D":
            options.append(f"-D{with_value(value)}")
        else:
            options.append(_allowed(name, value))
        written += tokens
    dirs += [absolute(directory, cwd) for directory in folders]
    include_dirs = tuple(dirs)  # for #include_next NVRTC searches one that is given twice twice
    if linked:
        options.append("-dlto")
        written.append("-dlto")
    return Compilation(
        inputs=KeyInputs(
            options=tuple(options),
            toolchain=toolchain,
            environment=environment,
            locations=include_dirs,
            file_name=FILE_NAME,
        ),
        rule=RULE_NOT_BESIDE if any(re.fullmatch(NOT_BESIDE, option) for option in options) else RULE,
        include_dirs=include_dirs,
        # The directories stand first: the last of the other options might take one for its value.
        command=(*(f"-I{directory}" for directory in include_dirs), *written),
        options=tuple(written),
        forced_includes=tuple(forced),
        holds_paths=any(re.fullmatch(DEBUG, option) for option in options),
        lists_files="-lineinfo" in options,
        linked_later=any(re.fullmatch(LINKED, option) for option in options),
    )


def _seed(request: BuildRequest, options: Sequence[str]) -> tuple[str, ...]:
    """The option with a random seed of the program's own, unless one was given.

    A program may define nothing that other files could name, such as one made of templates in an unnamed
    namespace. NVRTC then puts the time and the process id into its symbols; with a seed it puts a hash of the
    seed there. Programs that are linked together need different seeds.
    """
    if any(option.startswith("-frandom-seed=") for option in options):
        return ()
    parts = (digest(request.program.source), *options, *request.name_expressions)
    own = digest("\0".join(parts).encode(errors="surrogatepass"))
    return (f"-frandom-seed=gpucache-{own[:16]}",)


def refuse_side_effects(options: tuple[str, ...]) -> None:
    """Raise OptionError for an option that reads or writes files beside the artifact."""
    for option in options:
        if re.fullmatch(_SIDE_EFFECTS, option) or re.fullmatch(_PASSED_ON, option):
            raise OptionError(
                f"the build option {option!r} reads or writes files beside the artifact; leave it out"
            )


def reaching(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that are set and change what is compiled."""
    return VARIABLES.among(environ)


def _allowed(name: str, value: str) -> str:
    option = SAME.get(name, f"{name}{value}")
    if name == "-arch=":
        raise OptionError(
            f"the build option {option!r} is the target's to give; pass --target cuda:{value} instead"
        )
    if re.fullmatch(_LTO, option):
        raise OptionError(
            f"the build option {option!r} changes what comes out; ask for the artifact kind ltoir"
        )
    if re.fullmatch(_OPTIX, option):
        raise OptionError(
            f"the build option {option!r} makes OptiX IR, which gpucache does not keep; leave it out"
        )
    if re.fullmatch(_PASSED_ON, option):
        raise OptionError(
            f"the build option {option!r} can make the compiler read files that no key covers; give NVRTC's "
            "own option instead, such as -I, -D or --diag-suppress"
        )
    if re.fullmatch(_SIDE_EFFECTS, option):
        raise OptionError(
            f"the build option {option!r} reads or writes files beside the artifact, which a cached build "
            "would skip; leave it out"
        )
    return option
