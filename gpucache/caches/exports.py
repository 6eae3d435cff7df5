"""Writing caches of other systems: what was compiled or merged here, in their own formats.

Puts what an option line asks for and a writer of another system's together. Must not know how a writer
or a compiler works, nor how an outcome is shown.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from gpucache.caches.futhark.keys import key_of, native_signed
from gpucache.caches.futhark.logs import read_log
from gpucache.caches.futhark.options import CudaSettings, cuda_options
from gpucache.caches.futhark.writing import write_file
from gpucache.caches.rocfft import SYSTEM as ROCFFT
from gpucache.caches.rocfft.images import restore, write_image
from gpucache.caches.rocfft.schema import parse_hip
from gpucache.caches.rocfft.transfer import Filters, merge
from gpucache.errors import TargetError, UsageError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Program, Target
from gpucache.outcomes import Exported, Location

_ARCHITECTURE = re.compile(r"cuda:(?:sm|compute)_(\d{1,2})(\d)[af]?")
_NO_LOG = (
    "The options are those of a program without macros and tuning parameters; if it has any, give the log "
    "that it writes with -L as --log, else it will not take this file."
)
_BEYOND_ASCII = (
    "The source has bytes beyond ASCII, which Futhark counts differently on x86-64 and AArch64; this key is "
    "that of the machine here."
)


Compile = Callable[[BuildRequest, tuple[str, ...]], Artifact]
"""Compiles with some options and no other, as another system would."""


def futhark_file(
    out: Path,
    program: Program,
    target: str | None,
    extra: Sequence[str],
    log: bytes | None,
    compile_exactly: Compile,
) -> Exported:
    """Compile a dumped program to PTX as Futhark would on a device, and write its cache file.

    Raises TargetError, UsageError, CompileError, NoDeviceError or CacheUnusableError.
    """
    options = _from_log(log, extra) if log is not None else _by_default(target or "", extra)
    request = BuildRequest(program, Target("cuda", _virtual(options)), artifact_kind=ArtifactKind.PTX)
    artifact = compile_exactly(request, options)
    key = key_of(options, program.source, native_signed())
    write_file(out, key, artifact.payload)
    notes = (_NO_LOG,) * (log is None) + (_BEYOND_ASCII,) * (not program.source.isascii())
    return Exported("futhark", str(out), 1, out.stat().st_size, ((program.name, 1),), key.hex(), notes)


def rocfft_database(
    out: Path, sources: Sequence[Path], like: Sequence[tuple[str, str]], *, keep_times: bool, into: bool
) -> Exported:
    """Merge databases and images into one; raises UsageError, FormatError or CacheUnusableError."""
    done = merge(sources, out, filters=_filters(like), keep_times=keep_times or into, into_existing=into)
    counts = {
        "left out for a newer one with the same key": done.older,
        "left out by --like": done.filtered,
        "left out as unsound": done.unsound,
        "that took the place of an older one": done.replaced,
    }
    notes = tuple(
        f"{number} {'row' if number == 1 else 'rows'}: {what}." for what, number in counts.items() if number
    )
    sources_told = tuple((str(source.path), source.written) for source in done.sources)
    return Exported("rocfft", str(out), done.rows, out.stat().st_size, sources_told, notes=notes)


def rocfft_image(out: Path, source: Path) -> Exported:
    """Write a database as a serialised image; raises UsageError, FormatError or CacheUnusableError."""
    return _copied(source, out, write_image(source, out))


def rocfft_restored(out: Path, source: Path) -> Exported:
    """Make a database of an image; raises UsageError, FormatError or CacheUnusableError."""
    return _copied(source, out, restore(source, out))


def _copied(source: Path, out: Path, size_bytes: int) -> Exported:
    entries = sum(1 for _ in ROCFFT.open(Location("rocfft", str(out), "OUT", enabled=True)).scan())
    return Exported("rocfft", str(out), entries, size_bytes, ((str(source), entries),))


def _filters(like: Sequence[tuple[str, str]]) -> Filters:
    unknown = [label for label, _ in like if label not in ("arch", "hip_version", "generator_sum")]
    if unknown:
        raise UsageError(
            f"--like {unknown[0]}: a row has arch, hip_version and generator_sum; name one of these"
        )
    values = {name: [value for label, value in like if label == name] for name, _ in like}
    return Filters(
        frozenset(values.get("arch", ())),
        frozenset(map(parse_hip, values.get("hip_version", ()))),
        frozenset(map(_sum, values.get("generator_sum", ()))),
    )


def _sum(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"--like generator_sum={text} is not hex; copy it from 'gpucache inspect'") from None


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
