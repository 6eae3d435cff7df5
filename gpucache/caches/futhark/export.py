"""A Futhark cache file made by gpucache, for a device that may be absent: compiled as Futhark would.

Combines a dumped program and a log, the options that Futhark passes to NVRTC, the key, and the
file. Futhark itself truncates the file and writes in place; gpucache writes it aside and renames it, so that
no program reads half of one. Must not know how a compiler works. Source: Futhark, rts/c/backends/cuda.h.
"""

import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpucache.answers.export import Exported, Source
from gpucache.caches.exports import Argument, ExportForm, ExportRequest, Option
from gpucache.caches.futhark.format import encode, is_cache_file, key_of, native_signed, read_log, stored_form
from gpucache.errors import CacheUnusableError, OptionError, TargetError, UsageError
from gpucache.folders import Folder
from gpucache.host import os_errors
from gpucache.model import ArtifactKind, BuildRequest, Language, Target

CUDA_ARCHITECTURES = {
    **{(3, minor): f"compute_3{minor}" for minor in (0, 2, 5, 7)},
    **{(5, minor): f"compute_5{minor}" for minor in (0, 2, 3)},
    **{(6, minor): f"compute_6{minor}" for minor in (0, 1, 2)},
    **{(7, minor): f"compute_7{minor}" for minor in (0, 2, 5)},
    **{(8, minor): "compute_80" for minor in (0, 6, 7, 9)},
    (9, 0): "compute_90",
    (10, 0): "compute_100",
    (10, 1): "compute_101",
    (12, 0): "compute_120",
    (12, 1): "compute_121",
}
"""The targets that Futhark passes to NVRTC, by compute capability, in rising order."""
CUDA_VARIABLES = ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH")
TR_OPTIONS = ("-DTR_BLOCK_DIM=16", "-DTR_TILE_DIM=32", "-DTR_ELEMS_PER_THREAD=8")
_MODE = 0o666  # less the umask, as fopen makes files
_FIXED_INCLUDES = ("-I/usr/local/cuda/include", "-I/usr/include")
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the largest shared
# memory per block in KiB that a program can opt in to.
_SHARED_KIB = {(7, 0): 96, (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99}
_SHARED_KIB_SINCE = ((12, 99), (9, 227))
_RESERVED_BYTES = 1024  # of each block since 8.0, which Futhark takes off
_TARGET = Option("--target", Argument.TARGET, "The device, such as cuda:sm_86.", "T")
_OPTION = Option(
    "--option",
    Argument.TEXT,
    "An option that the program gets by --nvrtc-option; repeatable.",
    "O",
    many=True,
)
_LOG = Option(
    "--log",
    Argument.FILE,
    "The program's output with -L.\fThe program's output with -L, whose options are used unchanged.",
    "FILE",
    remedy="name the log that -L wrote",
)
_ARCHITECTURE = re.compile(r"cuda:(?:sm|compute)_(\d{1,2})(\d)[af]?")
_NO_LOG = (
    "The options are the defaults of a program without macros and tuning parameters; if it has any, give the "
    "log "
    "that it writes with -L as --log, else it will not take this file."
)
_BEYOND_ASCII = (
    "The source has bytes beyond ASCII, which Futhark counts differently on x86-64 and AArch64; this key is "
    "that of this machine."
)


def write(asked: ExportRequest) -> Exported:
    """Compile a dumped program to PTX as Futhark would on a device, and write its cache file.

    Raises TargetError, UsageError, CompileError, NoDeviceError or CacheUnusableError.
    """
    target, extra, log = (asked.options[one.name] for one in (_TARGET, _OPTION, _LOG))
    if len(asked.programs) != 1:
        raise UsageError(
            f"a Futhark cache file contains one program, and {len(asked.programs)} are named; name one"
        )
    if target is None and log is None:
        raise UsageError("say which device the file is for, such as --target cuda:sm_86, or give the --log")
    if target is not None and log is not None:
        raise UsageError("the log names the program's target; leave --target out")
    (program,) = asked.programs
    options = _by_default(target, extra) if log is None else _from_log(log, extra)
    request = BuildRequest(program, Target("cuda", _virtual(options)), artifact_kind=ArtifactKind.PTX)
    artifact = asked.compile_exactly(request, options)
    key = key_of(options, program.source, native_signed())
    write_file(asked.out, key, artifact.payload)
    notes = (_NO_LOG,) * (log is None) + (_BEYOND_ASCII,) * (not program.source.isascii())
    size_bytes = asked.out.stat().st_size
    return Exported("futhark", str(asked.out), 1, size_bytes, (Source(program.name, 1),), key.hex(), notes)


FORMS = (
    ExportForm(
        "futhark",
        "Compile a Futhark program's dump into its cache file.\n\n"
        "SOURCE is written by the program's --dump-cuda. It is compiled to PTX as Futhark does.",
        (_TARGET, _OPTION, _LOG),
        write,
        Language.CUDA_CPP,
    ),
)


def _by_default(target: str, extra: Sequence[str]) -> tuple[str, ...]:
    match = _ARCHITECTURE.fullmatch(target)
    if match is None:
        raise TargetError(f"{target!r} is not a CUDA device; name one, such as --target cuda:sm_86")
    return cuda_options((int(match[1]), int(match[2])), extra, os.environ)


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


def cuda_architecture(capability: tuple[int, int]) -> str:
    """The target that Futhark uses for a device: its table's highest that fits; raises OptionError."""
    known = [name for number, name in CUDA_ARCHITECTURES.items() if number <= capability]
    if not known:
        major, minor = capability
        raise OptionError(f"Futhark does not build for compute capability {major}.{minor}; the lowest is 3.0")
    return known[-1]


def cuda_options(
    capability: tuple[int, int], extra: Sequence[str], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The options that Futhark gives NVRTC, in its order, for a program without macros and tuning parameters.

    ``extra`` has the options of ``--nvrtc-option``. Sizes fit devices of the capability. Raises
    OptionError.
    """
    own = any(option.startswith(("-arch", "--gpu-architecture")) for option in extra)
    since = next((kib for major, kib in _SHARED_KIB_SINCE if capability[0] >= major), 48)
    shared = _SHARED_KIB.get(capability, since) * 1024 - (_RESERVED_BYTES if capability >= (8, 0) else 0)
    return (
        *(() if own else ("-arch", cuda_architecture(capability))),
        "-default-device",
        "--disable-warnings",
        "-Dmax_thread_block_size=1024",
        f"-Dmax_shared_memory={shared}",
        "-Dmax_registers=65536",
        "-DLOCKSTEP_WIDTH=32",
        "-DMAX_THREADS_PER_BLOCK=1024",
        *(f"-I{environ[name]}/include" for name in CUDA_VARIABLES if name in environ),
        *_FIXED_INCLUDES,
        *extra,
        *TR_OPTIONS,
    )


def write_file(path: Path, key: bytes, payload: bytes) -> None:
    """Write a cache file in place of an older one; PTX loses the NUL that NVRTC appends.

    Raises FormatError for a key without 32 bytes, and CacheUnusableError if the file cannot be
    written, or exists and is not a cache file; then no part of it is left.
    """
    data = encode(key, stored_form(payload))
    try:
        with Folder.at(path.parent) as folder:
            mode, partial = _mode_of(folder, path), f".futhark-{secrets.token_hex(8)}.gpucache-tmp"
            folder.publish(partial, folder, path.name, data, mode, durable=True)
    except FileNotFoundError as error:
        raise CacheUnusableError(f"{path.parent} does not exist; make it, as Futhark does not") from error
    except OSError as error:
        raise os_errors.unwritable(path, error, "name another file") from error
    except ValueError as error:
        raise CacheUnusableError(f"{path} cannot be written ({error}); name another file") from error


def _mode_of(folder: Folder, path: Path) -> int:
    """The mode of the file that is replaced, or of a new one. Raises CacheUnusableError."""
    try:
        status = folder.lstat(path.name)
    except FileNotFoundError:
        os.umask(mask := os.umask(0o077))
        return _MODE & ~mask
    if not stat.S_ISREG(status.st_mode):
        raise CacheUnusableError(f"{path} is a link or not a file; name the file itself")
    if status.st_size and not is_cache_file(folder, path.name):
        raise CacheUnusableError(f"{path} exists and is not a Futhark cache file; name another file")
    return stat.S_IMODE(status.st_mode)
