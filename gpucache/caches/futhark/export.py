"""A Futhark cache file made here, for a device that need not be here: compiled as Futhark would.

Puts together what a dumped program and a log say, the key, and the writer. Must not know how a compiler
works.
"""

import os
import re
from collections.abc import Sequence

from gpucache.answers.export import Exported
from gpucache.caches.exports import Asked, Form, Kind, Option
from gpucache.caches.futhark.keys import key_of, native_signed
from gpucache.caches.futhark.logs import read_log
from gpucache.caches.futhark.options import CudaSettings, cuda_options
from gpucache.caches.futhark.writing import write_file
from gpucache.errors import TargetError, UsageError
from gpucache.model import ArtifactKind, BuildRequest, Language, Target

_TARGET = Option("--target", Kind.TARGET, "futhark: the device, such as cuda:sm_86.", "T")
_OPTION = Option("--option", Kind.TEXT, "futhark: what --nvrtc-option is given.", "O", many=True)
_LOG = Option(
    "--log",
    Kind.FILE,
    "futhark: what the program wrote with -L; its option list is taken as it is.",
    "FILE",
    remedy="name the log that -L wrote",
)
_ARCHITECTURE = re.compile(r"cuda:(?:sm|compute)_(\d{1,2})(\d)[af]?")
_NO_LOG = (
    "The options are those of a program without macros and tuning parameters; if it has any, give the log "
    "that it writes with -L as --log, else it will not take this file."
)
_BEYOND_ASCII = (
    "The source has bytes beyond ASCII, which Futhark counts differently on x86-64 and AArch64; this key is "
    "that of the machine here."
)


def write(asked: Asked) -> Exported:
    """Compile a dumped program to PTX as Futhark would on a device, and write its cache file.

    Raises TargetError, UsageError, CompileError, NoDeviceError or CacheUnusableError.
    """
    target, extra, log = (asked.options[one.name] for one in (_TARGET, _OPTION, _LOG))
    if len(asked.programs) != 1:
        raise UsageError(
            f"a Futhark cache file holds one program, and {len(asked.programs)} are named; name one"
        )
    if target is None and log is None:
        raise UsageError("say which device the file is for, such as --target cuda:sm_86, or give the --log")
    if target is not None and log is not None:
        raise UsageError("the log says what the program is built for; leave --target out")
    (program,) = asked.programs
    options = _by_default(target, extra) if log is None else _from_log(log, extra)
    request = BuildRequest(program, Target("cuda", _virtual(options)), artifact_kind=ArtifactKind.PTX)
    artifact = asked.compile_exactly(request, options)
    key = key_of(options, program.source, native_signed())
    write_file(asked.out, key, artifact.payload)
    notes = (_NO_LOG,) * (log is None) + (_BEYOND_ASCII,) * (not program.source.isascii())
    size_bytes = asked.out.stat().st_size
    return Exported("futhark", str(asked.out), 1, size_bytes, ((program.name, 1),), key.hex(), notes)


FORMS = (
    Form(
        "futhark",
        "SOURCE is what a program dumped with --dump-cuda; it is compiled to PTX with the options that "
        "Futhark gives NVRTC.",
        (_TARGET, _OPTION, _LOG),
        write,
        Language.CUDA_CPP,
    ),
)


def _by_default(target: str, extra: Sequence[str]) -> tuple[str, ...]:
    match = _ARCHITECTURE.fullmatch(target)
    if match is None:
        raise TargetError(f"{target!r} is no CUDA device; name its architecture, such as --target cuda:sm_86")
    settings = CudaSettings((int(match[1]), int(match[2])), extra=tuple(extra))
    return cuda_options(settings, os.environ)


def _from_log(log: bytes, extra: Sequence[str]) -> tuple[str, ...]:
    reading = read_log(log)
    if reading.backend != "cuda" or reading.options is None:
        raise UsageError(
            "the log has no 'NVRTC compile options:'; run the CUDA program with -L and keep stderr"
        )
    if extra:
        raise UsageError("the log has the whole option list; leave --option out")
    return tuple(map(os.fsdecode, reading.options))


def _virtual(options: Sequence[str]) -> str:
    """The architecture that the options name, given apart or with an equals sign."""
    for option, following in zip(options, [*options[1:], ""], strict=True):
        name, equals, value = option.partition("=")
        if name in ("-arch", "--gpu-architecture"):
            architecture = value if equals else following
            if architecture.startswith("compute_"):
                return architecture
            raise UsageError(f"Futhark keeps PTX, and {architecture} gives none; name a compute_N")
    raise UsageError("the option list names no architecture (-arch compute_N); give the whole log")
