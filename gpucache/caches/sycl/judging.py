"""What the files of an entry say by themselves: sound or not, and whether programs take them.

Owns the checks that need nothing but the two files and the names of their folders. What the other
numbers in the folder mean is told in ``standing``. Must not know how entries are shown.
"""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucache import payload as payloads
from gpucache.caches import files, places
from gpucache.caches.sycl import images, naming, slots
from gpucache.caches.sycl.murmur import murmur64a
from gpucache.caches.sycl.shapes import DamagedError
from gpucache.caches.sycl.slots import Slot, binary_of, head, part, source_of
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind, Problem
from gpucache.payload import PayloadKind
from gpucache.payload.mangled import readable
from gpucache.units import format_size

HASHED_BYTES = 64 << 20
"""The largest images whose hash is computed; several seconds."""
_CHUNK = 1 << 20
_DEVICE_BYTES = 4096
_BUILD_FAILS = "the driver's error reaches the application, which does not compile again"
_LOADABLE = {
    "Intel(R) OpenCL": (PayloadKind.INTEL_CPU, PayloadKind.ELF, PayloadKind.INTEL_GPU),
    "Intel(R) OpenCL Graphics": (PayloadKind.INTEL_GPU, PayloadKind.ELF),
    "NVIDIA CUDA BACKEND": (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.PTX),
}
"""What a platform's programs are made of, where that is known; GPU binaries before 2021 apart."""
_OLD_GPU = b"CTNI"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the files of an entry say by themselves."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    digest: str = ""
    """Equal for entries that answer the same question; empty where that cannot be told."""
    taken: bool = False
    """Programs take it for an answer, good or bad, and look at no later number."""
    kills: bool = False
    """Programs die when they come to it."""

    @property
    def sound(self) -> bool:
        """Whether a program that gets it is served."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a ``.src`` says that its ``.bin`` must be for."""

    device: bytes = b""
    kernels: tuple[str, ...] = ()
    """The mangled names in its images, as far as those were read."""


def not_ours(name: str) -> str:
    """Why a file that is numbered as libsycl numbers its own is left alone."""
    return (
        f"{name} begins as none of libsycl's files, so it may be somebody else's and stays; move it elsewhere"
    )


def judge(folder: Folder, slot: Slot) -> Verdict:
    """Everything that an entry's own files say, read whole; raises OSError."""
    if strange := slots.stranger(folder, slot):
        return Verdict((Problem(FindingKind.LEFTOVER, not_ours(strange)),))
    if slot.half:
        return Verdict((Problem(FindingKind.ORPHAN, slot.half),))
    problems = list(_trust(slot))
    notes: list[str] = []
    digest, asked = "" if slot.with_source else slot.group.hex, _Asked()
    kills = skipped = False
    try:
        if slot.with_source:
            asked, found, told = _judge_source(folder, slot)
            problems += found
            notes += told
            digest = _digest(folder, slot)
        else:
            notes.append(f"a {slot.group.family} stores no key, so it cannot be held against its folder")
        found, told = _judge_binary(folder, slot, asked)
        problems += found
        notes += told
    except DamagedError as damage:
        problems.append(Problem(damage.kind, damage.detail))
        kills, skipped = damage.kills, not damage.stops
    except FormatError as error:
        problems.append(Problem(FindingKind.UNTRUSTED, f"{error} here, though programs may follow it"))
    return Verdict(tuple(problems), tuple(notes), digest, taken=bool(digest) and not skipped, kills=kills)


def _trust(slot: Slot) -> Iterator[Problem]:
    for suffix, status in ((naming.BINARY, slot.binary), (naming.SOURCE, slot.source)):
        if status is None or stat.S_ISLNK(status.st_mode):
            continue
        doubt = places.distrust(status, move="remove it")
        if doubt:
            yield Problem(FindingKind.UNTRUSTED, f"{slot.stem}{suffix}: {doubt}")


def _judge_source(folder: Folder, slot: Slot) -> tuple[_Asked, list[Problem], list[str]]:
    """What is asked for, what is wrong with the ``.src``, and what could not be told."""
    shape, read = source_of(folder, slot)
    problems: list[Problem] = []
    if shape.trailing:
        detail = f"{shape.trailing} bytes that nobody reads follow the images in its .src"
        problems.append(Problem(FindingKind.CORRUPT, detail))
    labelled = (
        ("device", slot.group.parts[0], shape.device),
        ("images", slot.group.parts[1], shape.images),
        ("spec constants", slot.group.parts[2], shape.spec),
        ("build options", slot.group.parts[3], shape.options),
    )
    notes = [
        f"its {label} of {format_size(span.length)} were not hashed, being over {format_size(HASHED_BYTES)}"
        for label, _, span in labelled
        if span.length > HASHED_BYTES
    ]
    small = [item for item in labelled if item[2].length <= HASHED_BYTES]
    unlike = [(label, name) for label, name, span in small if str(murmur64a(part(read, span))) != name]
    if len(unlike) == len(labelled):
        notes.append(
            "its folders are named by another hash than that of libstdc++, so they were not compared"
        )
    elif unlike:
        labels = " and ".join(label for label, _ in unlike)
        detail = f"its {labels} do not hash to the folder it lies in, so no program looks for it here"
        problems.append(Problem(FindingKind.MISPLACED, detail))
    kernels = images.kernels(head(read, shape.images, images.READ_BYTES))
    return _Asked(head(read, shape.device, _DEVICE_BYTES), kernels.names), problems, notes


def _judge_binary(folder: Folder, slot: Slot, asked: _Asked) -> tuple[list[Problem], list[str]]:
    shape, read = binary_of(folder, slot)
    problems: list[Problem] = []
    if shape.claimed != shape.held:
        detail = f"its .bin claims {shape.claimed} binaries and holds {shape.held}: versions before 2025 fail"
        problems.append(Problem(FindingKind.CORRUPT, detail))
    if shape.trailing:
        detail = f"{format_size(shape.trailing)} that nobody reads follow the binary in its .bin"
        problems.append(Problem(FindingKind.CORRUPT, detail))
    unseen = slots.unseen(shape.payload)
    if unseen:
        return problems, [f"its binary of {format_size(shape.payload.length)} was {unseen}"]
    data = part(read, shape.payload)
    info = payloads.describe(data)
    if info.problem:
        problems.append(
            Problem(FindingKind.MISLABELLED, f"its binary is broken, {info.problem}: {_BUILD_FAILS}")
        )
    misfit = _misfit(info.kind, data, asked.device)
    if misfit and not info.problem:
        problems.append(Problem(FindingKind.MISLABELLED, f"{misfit}: {_BUILD_FAILS}"))
    unknown = info.kind in (PayloadKind.UNKNOWN, PayloadKind.OFFLOAD_BUNDLE) and not misfit
    if not (misfit or info.problem or unknown) and (lacking := _lacking(data, asked.kernels)):
        problems.append(Problem(FindingKind.MISLABELLED, lacking))
    return problems, ["its binary is of a kind that is not known here"] if unknown else []


def _misfit(kind: PayloadKind, data: bytes, device: bytes) -> str:
    """Why a binary is none that the device's platform makes; empty where it is one or nothing is known."""
    platform = device.partition(b"/")[0].decode("utf-8", "replace")
    loadable = _LOADABLE.get(platform)
    if loadable is None or kind in loadable or data.startswith(_OLD_GPU):
        return ""
    return f"its binary ({kind}, starting with {data[:8].hex(' ')}) is none of {platform}"


def _lacking(data: bytes, kernels: Sequence[str]) -> str:
    """That a binary is of other images, as it lacks the names of their kernels; empty where it has them.

    Every compiler keeps the names by which a program asks for its kernels.
    """
    missing = [name for name in kernels if name.encode() not in data]
    if not missing:
        return ""
    others = f" and {len(missing) - 1} more" if missing[1:] else ""
    return (
        f"its binary has no kernel {readable(missing[0])}{others}, which its images have, so it is that of "
        "another entry: every program that asks for it dies"
    )


def _digest(folder: Folder, slot: Slot) -> str:
    """SHA-256 of a ``.src``."""
    hasher = hashlib.sha256()
    size = slot.source.st_size if slot.source else 0
    for start in range(0, size, _CHUNK):
        hasher.update(files.read_part(folder, slot.stem + naming.SOURCE, start, _CHUNK))
    return hasher.hexdigest()
