"""What is wrong with an entry: its files by themselves, and what the other numbers and locks mean for it.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getItemFromDisc``): programs look at 0, 1, 2... while
either file of a number exists; a number with a lock is passed over; the first whose ``.src`` equals what is
wanted is taken, whatever its ``.bin`` holds. Must not know how entries are shown, nor change anything.
"""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucache import payload as payloads
from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import places
from gpucache.caches.sycl import locks, naming, non_entries, slots
from gpucache.caches.sycl.naming import Group, murmur64a
from gpucache.caches.sycl.slots import DamagedError, Identities, Slot, Span, binary_of, head, part, source_of
from gpucache.caches.sycl.tree import Listing
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind
from gpucache.payload.mangled import readable
from gpucache.units import format_size

HASHED_BYTES = 64 << 20
"""The largest images whose hash is computed; several seconds."""
_DEVICE_BYTES = 4096
_BUILD_FAILS = "the driver's error reaches the application, which does not compile again"
_LOADABLE = {
    "Intel(R) OpenCL": (PayloadKind.INTEL_CPU, PayloadKind.ELF, PayloadKind.INTEL_GPU),
    "Intel(R) OpenCL Graphics": (PayloadKind.INTEL_GPU, PayloadKind.ELF),
    "NVIDIA CUDA BACKEND": (PayloadKind.CUBIN, PayloadKind.FATBIN, PayloadKind.PTX),
}
"""What a platform's programs are made of, where that is known; GPU binaries before 2021 apart."""
_OLD_GPU = b"CTNI"
_LOCKED = "programs pass this entry over and keep another copy beside it, and eviction spins on it for ever"


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

    digest: str
    """Of all of it; empty where that is not known."""
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
    asked = _Asked("" if slot.with_source else slot.group.hex)
    kills = skipped = False
    try:
        if slot.with_source:
            asked, found, told = _judge_source(folder, slot)
            problems += found
            notes += told
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
    taken = bool(asked.digest) and not skipped
    return Verdict(tuple(problems), tuple(notes), asked.digest, taken=taken, kills=kills)


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
    kernels = slots.kernels(head(read, shape.images, slots.READ_BYTES))
    digest = slots.sha256(read, Span(0, shape.images.end + shape.trailing))
    return _Asked(digest, head(read, shape.device, _DEVICE_BYTES), kernels.names), problems, notes


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


class Verdicts:
    """The verdicts of one group's entries, each kept while its files stay the same."""

    def __init__(self) -> None:
        self._group: Group | None = None
        self._answers: Answers | None = None
        self._kept: dict[str, tuple[Identities, Verdict]] = {}

    def of(self, folder: Folder, slot: Slot) -> Verdict:
        """The verdict of an entry; raises OSError."""
        if slot.group != self._group:
            self._group, self._kept = slot.group, {}
        known = self._kept.get(slot.stem)
        if known is None or known[0] != slot.identities:
            known = slot.identities, judge(folder, slot)
            self._kept[slot.stem] = known
        return known[1]

    def answers(self, folder: Folder, listing: Listing, slot: Slot) -> "Answers":
        """Which numbers answer programs, up to an entry; raises OSError."""
        if self._answers is None or self._answers.listing is not listing:
            self._answers = Answers(listing)
        self._answers.fill(folder, slot, self)
        return self._answers


class Answers:
    """The first number of a folder that programs take for each key, and the first they die of."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.killer: str | None = None
        self.taken: dict[str, tuple[str, Verdict]] = {}
        self._filled = 0

    def fill(self, folder: Folder, slot: Slot, verdicts: Verdicts) -> None:
        """Look at the numbers below an entry that were not looked at yet; raises OSError."""
        stems, end = self.listing.stems, naming.order(slot.stem)
        while self._filled < len(stems) and naming.order(stems[self._filled]) < end:
            stem = stems[self._filled]
            if naming.LOCK not in self.listing.files[stem]:
                self._add(stem, verdicts.of(folder, slots.look(folder, slot.group, stem)))
            self._filled += 1

    def _add(self, stem: str, verdict: Verdict) -> None:
        if verdict.kills and self.killer is None:
            self.killer = stem
        if verdict.taken:
            self.taken.setdefault(verdict.digest, (stem, verdict))


def problems(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """What is wrong with an entry where it lies; raises OSError."""
    locked = under_lock(folder, slot.stem)
    if locked is not None:
        yield locked
        if locked.kind is FindingKind.LOCKED:
            return  # what is being written is not judged
    yield from verdicts.of(folder, slot).problems
    unreached = beyond(listing, slot.stem)
    if locked is not None:
        pass  # nothing else matters to programs
    elif unreached:
        yield Problem(FindingKind.MISPLACED, unreached)
    else:
        yield from _behind(folder, listing, slot, verdicts)
    yield from _times(folder, slot)


def under_lock(folder: Folder, stem: str) -> Problem | None:
    """What a lock on an entry means; misplaced where nobody holds it, as no program reads the entry."""
    name = stem + naming.LOCK
    age = locks.age_ns(folder, name)
    if age is None:
        return None
    kind = FindingKind.MISPLACED if locks.is_stale(age) else FindingKind.LOCKED
    detail, _, remedy = locks.told(folder, name, age, _LOCKED).rpartition("; ")
    return Problem(kind, detail, remedy)


def beyond(listing: Listing, stem: str) -> str:
    """Why programs stop before a number; empty where they get to it."""
    if stem == naming.IR_STEM:
        return ""
    hole = listing.hole
    if naming.order(stem) <= hole:
        return ""
    stop = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
    if naming.LOCK in listing.files.get(str(hole), set()):
        return f"{stop}: as {hole}{naming.LOCK} keeps it free, they add another copy at every run"
    return f"{stop} until they fill the gap with another copy"


def _behind(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """A lower number that programs take in place of this one."""
    own, answers = verdicts.of(folder, slot).digest, verdicts.answers(folder, listing, slot)
    end = naming.order(slot.stem)
    twin = answers.taken.get(own) if own else None
    if twin is not None and naming.order(twin[0]) < end:
        end = naming.order(twin[0])
    if answers.killer is not None and naming.order(answers.killer) < end:
        detail = f"programs die of {answers.killer} before they get to {slot.stem}"
        yield Problem(FindingKind.MISPLACED, detail)
    elif twin is not None and end < naming.order(slot.stem):
        yield _twin(twin[1], twin[0], slot.stem)


def _twin(lower: Verdict, stem: str, own: str) -> Problem:
    if lower.sound:
        return Problem(
            FindingKind.SUPERSEDED, f"it is a copy of {stem}, which programs take; it only takes room"
        )
    return Problem(
        FindingKind.MISPLACED, f"programs take {stem} for it, which is damaged, and never get to {own}"
    )


def needs_time(folder: Folder, slot: Slot) -> bool:
    """Whether an entry lacks a time that libsycl's eviction goes by."""
    if slot.access is None:
        root = folder.path.parents[len(slot.group.parts) - 1]
        return slot.binary is not None and non_entries.has_size(root)  # where eviction was ever on
    return slots.access_number(folder, slot.stem) is None


def _times(folder: Folder, slot: Slot) -> Iterator[Problem]:
    if needs_time(folder, slot):
        name = slot.stem + naming.ACCESS
        effect = "is missing, so libsycl never evicts the entry"
        if slot.access is not None:
            effect = "holds no time, so libsycl evicts the entry before all others"
        yield Problem(FindingKind.ORPHAN, f"{name} {effect}")
