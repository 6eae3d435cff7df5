"""What reaches NVRTC where a program calls it itself: the plan of a compile that is kept as it was asked for.

Such a compile gives the program what NVRTC would have given, its log included. So it is planned with the
program's own options, and with the name that the program gave its source: NVRTC looks for quoted headers
beside that name, and writes its last part into symbols and all of it into messages. Its key names the
architecture among the options, and the last part of the name, which no other plan does. Everything here is
pure; this module must not import cuda.
"""

# Paths are text as programs give it, and are not normalised.
# ruff: noqa: PTH118, PTH120

import os
import re
from collections.abc import Mapping, Sequence

from gpucache.backends.cuda.options import (
    DEBUG,
    LINKED,
    NOT_BESIDE,
    RULE,
    RULE_NOT_BESIDE,
    SAME,
    SPELLINGS,
    reaching,
    refuse_side_effects,
)
from gpucache.backends.interface import Compilation
from gpucache.backends.options import absolute, read, split, trimmed, with_value
from gpucache.errors import OptionError
from gpucache.keys import KeyInputs
from gpucache.model import ArtifactKind, AsAsked, BuildRequest, Language, Program, Target, Toolchain
from gpucache.payload.source import kernel_names

DEFAULT_NAME = "default_program"
"""What NVRTC calls a source without a name."""
_NO_NAME = re.compile(rf"{DEFAULT_NAME}|<.*>", re.DOTALL)
"""A name that tells people nothing: NVRTC's own, or such as ``<null>`` and ``<string>``."""
_DEFAULT_ARCHITECTURES = {12: "compute_52", 13: "compute_75"}
_ARCHITECTURE = re.compile(r"(sm|compute)_\d+[af]?")
# Source: the options in nvrtc.h of 12.0 to 13.5, without those that read or write files, that ask for no
# cache, or that make IR of tiles, which is not kept. An option that is not known yet may do any of that.
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
"""Options whose value may be anything."""
_LTO = re.compile("--?(dlto|dlink-time-opt)")
_OPTIX = re.compile("--?optix-ir")
_LINES = re.compile("--?(lineinfo|generate-line-info)")


def request(
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
    """What a program asks NVRTC for; raises OptionError for what cannot be kept as it was asked for.

    ``file_name`` is what the program calls its source, and ``made_up`` whether that is another name in each
    run. ``headers`` are those in memory by name. ``include_dirs`` are searched after those among the options.
    """
    flags = [f"{name}{value}" for name, value, _ in read(trimmed(options), SPELLINGS)]
    architecture = _architecture(flags, version)
    kind = ArtifactKind.CUBIN if architecture.startswith("sm_") else ArtifactKind.PTX
    if any(map(_LTO.fullmatch, flags)):
        kind = ArtifactKind.LTOIR
    elif any(map(_OPTIX.fullmatch, flags)):
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


def plan(request: BuildRequest, toolchain: Toolchain, environ: Mapping[str, str]) -> Compilation:
    """How a request is compiled as it was asked for; raises OptionError for options that must be refused."""
    asked = request.asked or AsAsked(DEFAULT_NAME)
    options: list[str] = []
    written: list[str] = []
    dirs: list[str] = []
    """As the program spells them, since ``__FILE__`` is spelled like that."""
    forced: list[str] = []
    for flag, value, tokens in read(trimmed(split(request.options)), SPELLINGS):
        if flag == "-I":
            dirs.append(value)
            continue
        if flag == "-include":
            forced.append(value)
        option = SAME.get(flag, f"{flag}{with_value(value) if flag == '-D' else value}")
        if flag not in _TEXTS and option.partition("=")[0] not in _KNOWN:
            raise OptionError(
                f"the build option {option!r} is not known to gpucache, so nothing is kept for it"
            )
        refuse_side_effects((option,))
        options.append(option)
        written += tokens
    spelled = (*dirs, *request.include_dirs)
    if not any(option.startswith("-arch=") for option in options):
        options.insert(0, f"-arch={request.target.name}")
    enciphered = request.artifact_kind in (ArtifactKind.LTOIR, ArtifactKind.OPTIXIR)
    linked = enciphered or any(re.fullmatch(LINKED, option) for option in options)
    lined, debugged = (any(re.fullmatch(form, option) for option in options) for form in (_LINES, DEBUG))
    hidden = debugged or enciphered  # what NVRTC writes of places cannot be searched for, or is all there is
    if asked.made_up and (hidden or (lined and linked)):
        raise OptionError(
            "it may contain a file name that differs in each run and cannot be found in it, so it is not kept"
        )
    # Line information holds full paths; debug information and what is enciphered the directory in any case.
    names = (asked.file_name, *spelled, *(name for name, _ in asked.headers))
    tells_folder = hidden or (lined and not all(map(os.path.isabs, names)))
    rule = RULE_NOT_BESIDE if any(re.fullmatch(NOT_BESIDE, option) for option in options) else RULE
    return Compilation(
        inputs=KeyInputs(
            options=tuple(options),
            toolchain=toolchain,
            environment=reaching(environ),
            locations=spelled,
            file_name=asked.file_name,
            folder=request.cwd if tells_folder else "",
        ),
        rule=rule._replace(home=os.path.dirname(os.path.join(request.cwd, asked.file_name))),
        include_dirs=tuple(absolute(directory, request.cwd) for directory in spelled),
        command=(*(f"-I{directory}" for directory in spelled), *written),
        options=tuple(written),
        forced_includes=tuple(forced),
        holds_paths=hidden or lined,
        lists_files=lined,
        linked_later=linked,
        source_path=asked.file_name if os.path.dirname(asked.file_name) else "",
    )


def _architecture(flags: Sequence[str], version: tuple[int, int]) -> str:
    """What is compiled for: the last architecture that is named, else the one that NVRTC takes by itself."""
    named = [flag.removeprefix("-arch=") for flag in flags if flag.startswith("-arch=")]
    found = named[-1] if named else _DEFAULT_ARCHITECTURES.get(version[0], "")
    if not _ARCHITECTURE.fullmatch(found):
        raise OptionError(f"{found!r} is no architecture that is known; name one with -arch=sm_90 or such")
    return found
