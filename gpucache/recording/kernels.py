"""The kernels of Triton in a recording, as ``kernels/inside/gpucache_triton.py`` writes them.

Each line of a file ``<instant>-<process>-*.kernels`` is a JSON object in ASCII of at most ``LINE_CAP`` bytes:

    {"gpucache kernel": 1, "name": ..., ...}                       the fields of ``RecordedKernel``
    {"gpucache kernel": 1, "name": ..., "unrecorded": "<why>"}     one that cannot be compiled elsewhere

Nothing of it is imported or executed here. A worker does that, so ``read_kernels`` wants a directory that
belongs to this user or to root, and that nobody else may write.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpucache.answers.record import PassedOver, RecordedProgram
from gpucache.errors import SourceError, TargetError
from gpucache.folders import is_own
from gpucache.model import Target
from gpucache.recording.builds import LIST_CAP, SHA256, Text, canonical

SUFFIX = ".kernels"
LINE_CAP = 1 << 20
FILES_CAP = 10_000
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BYTES_CAP = 256 << 20
LANGUAGE = "triton"
_VERSION = "gpucache kernel"

_Digest = Annotated[str, Meta(pattern=SHA256)]
_Values = Annotated[tuple[Any, ...], Meta(max_length=LIST_CAP)]
_Triple = tuple[Text, int | Text, int]


@dataclass(frozen=True)
class RecordedKernel:
    """A kernel as it was compiled for one target. What ``Any`` means is known to Triton's process."""

    name: Text
    triton: Text
    """The version that compiled it."""
    python: Text
    """The interpreter's path."""
    path: Annotated[tuple[Text, ...], Meta(max_length=LIST_CAP)]
    """The directories in which the kernel's modules are found."""
    environment: Annotated[dict[Text, Text], Meta(max_length=LIST_CAP)]
    """The variables that Triton's compiles depend on."""
    module: Text
    qualname: Text
    file: Text
    """The file of the program, for a function in ``__main__``, or of a module whose text is recorded."""
    language: Text
    signature: _Values
    constants: _Values
    attributes: _Values
    near: _Values
    """The arguments that point to at most 2 GiB."""
    options: Annotated[dict[Text, Any], Meta(max_length=LIST_CAP)]
    """The options that the caller gave, without those that a target implies."""
    target: _Triple
    """Backend, architecture, threads of a warp."""
    first_ir: _Digest
    function: Text
    """Triton's key of the function."""
    source: _Digest
    """The hash of the function with its constants and attributes."""
    key: _Digest
    compile_ns: int = 0
    text: str = ""
    """The text of a module that no import finds, because Inductor or Helion wrote it; else empty."""

    @cached_property
    def digest(self) -> str:
        """The digest that identifies it, whoever recorded it and however long it took."""
        return hashlib.sha256(canonical({**asdict(self), "compile_ns": 0})).hexdigest()

    @property
    def told_target(self) -> str:
        """The target as a command names it, such as cuda:sm_90."""
        backend, arch, _ = self.target
        return f"{backend}:{f'sm_{arch}' if isinstance(arch, int) else arch}"

    @property
    def start(self) -> tuple[object, ...]:
        """A value that is equal for kernels that one process can compile."""
        return self.python, self.triton, self.path, tuple(sorted(self.environment.items()))


class _Line(msgspec.Struct):
    name: Text
    unrecorded: Text | None = None


_HEAD, _KERNEL = msgspec.json.Decoder(_Line), msgspec.json.Decoder(RecordedKernel)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a recording, each once."""

    kernels: Mapping[str, RecordedKernel] = field(default_factory=dict)
    unrecorded: tuple[tuple[str, str], ...] = ()
    """Kernels that cannot be compiled elsewhere, by name, and why."""
    damage: tuple[PassedOver, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether any was recorded, or should have been."""
        return bool(self.kernels or self.unrecorded)


def united(some: Iterable[Kernels]) -> Kernels:
    some = tuple(some)
    kernels = {digest: one for each in some for digest, one in each.kernels.items()}
    return Kernels(kernels, tuple(dict.fromkeys(pair for each in some for pair in each.unrecorded)))


def read_kernels(folder: Path) -> Kernels:
    """The kernels of a directory; raises SourceError if others may write it, as their modules are imported.

    A directory without kernels, or that does not exist, has none.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))  # noqa: PTH208
        status = folder.stat()
    except OSError:
        return Kernels()
    if names and not (is_own(status) and not status.st_mode & 0o022):
        raise SourceError(
            f"kernels of {str(folder)!r} name modules to import, and others may write there; "
            "own the directory, and run chmod 700 on it"
        )
    kernels: dict[str, RecordedKernel] = {}
    unrecorded: dict[tuple[str, str], None] = {}
    damage: list[PassedOver] = []
    for name, number, line in _lines(folder, names[:FILES_CAP], damage):
        try:
            head = _HEAD.decode(line)
            if head.unrecorded is not None:
                unrecorded[head.name, head.unrecorded] = None
                continue
            kernel = _KERNEL.decode(line)
            kernels.setdefault(kernel.digest, kernel)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            damage.append(PassedOver(name, number, f"it is no kernel: {error}"))
    return Kernels(kernels, tuple(unrecorded), tuple(damage))


def _lines(folder: Path, names: Iterable[str], damage: list[PassedOver]) -> Iterator[tuple[str, int, bytes]]:
    left = BYTES_CAP
    for name in names:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | _FLAGS)
            with os.fdopen(descriptor, "rb") as file:
                number = 0
                while line := file.readline(LINE_CAP + 1):
                    number, left = number + 1, left - len(line)
                    if left < 0 or len(line) > LINE_CAP:
                        damage.append(PassedOver(name, number, "it is larger than a recording keeps"))
                        break
                    yield name, number, line
        except OSError as error:
            damage.append(PassedOver(name, 0, f"it cannot be read ({error.strerror})"))


def wanted_targets(kernels: Iterable[RecordedKernel], targets: Iterable[str]) -> dict[str, _Triple]:
    """The targets that kernels can be compiled for: those given, or those that they were recorded for.

    Targets of other kinds are left out. Raises TargetError for an architecture that is none.
    """
    targets = tuple(targets)
    found: dict[str, _Triple] = {} if targets else {one.told_target: one.target for one in kernels}
    for text in targets:
        backend, arch = Target.parse(text)
        if backend == "cuda" and arch.startswith("sm_"):
            digits = arch.removeprefix("sm_").rstrip("af")
            if not digits.isdigit():
                raise TargetError(f"{text!r} is no architecture; write one such as cuda:sm_90")
            found[f"cuda:sm_{digits}"] = ("cuda", int(digits[:4]), 32)
        elif backend == "hip":
            found[text] = ("hip", arch, 32 if arch.startswith(("gfx10", "gfx11", "gfx12")) else 64)
    return found


def recorded_kernels(found: Kernels) -> list[RecordedProgram]:
    return [
        RecordedProgram(
            recorded=digest,
            program=one.name,
            language=LANGUAGE,
            target=one.told_target,
            device=((LANGUAGE, one.triton),),
            options=tuple(f"{name}={value}" for name, value in one.options.items() if value),
            name_expressions=(),
            source=one.source,
            headers=0,
            kept=True,
            local_sizes=(),
            artifact_kind="files",
            compile_ns=one.compile_ns,
            failed=False,
            first_ns=None,
            command="",
        )
        for digest, one in sorted(found.kernels.items(), key=lambda pair: (pair[1].name, pair[0]))
    ]
