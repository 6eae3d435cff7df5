"""What an entry says of itself: its device and other fields as text, in a scan and in a report.

A scan reads the first bytes of its files alone. Must not judge more than a glance tells. Source of the device
string: libsycl, ``persistent_device_code_cache.cpp`` (``getDeviceIDString``).
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache import payload as payloads
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.caches.format import Look
from gpucache.caches.sycl import checks, naming, slots, tree
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.slots import DamagedError, Read, Slot, Span
from gpucache.caches.sycl.tree import Listing
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.model import KeyField
from gpucache.units import format_size, printable

DEVICE_LABELS = ("platform name", "device name", "device version", "driver version")
IDENTITY_LABELS = DEVICE_LABELS[:2]
SHOWN_BYTES = 4096
"""How much of a text is read and shown, and of a binary in a scan."""
_HEX_SHOWN = 16
_VARIANT_SHOWN = 200
_NAMES_SHOWN = 16
_LABELS = {
    Family.PROGRAM: ("device", "image", "spec constants", "build options"),
    Family.KERNEL: ("", "device", "build options", "source"),
    Family.IR: ("", "source, options and compiler"),
}


def text(raw: bytes) -> str:
    """Bytes as text that is safe on a terminal, cut at 4 KiB."""
    return printable(raw, SHOWN_BYTES)


def device_pairs(device: bytes) -> tuple[tuple[str, str], ...]:
    """The four parts of a device string, by label; one pair ``device`` for a string of another form.

    Only the name of the device is taken to hold slashes of its own.
    """
    platform, slash, rest = text(device).partition("/")
    parts = rest.rsplit("/", 2)
    if not slash or len(parts) != 3:
        return (("device", text(device)),)
    return tuple(zip(DEVICE_LABELS, (platform, *parts), strict=True))


def wanted_pairs(device: bytes) -> tuple[tuple[str, str], ...]:
    """The parts that people give of a device, by label: without a slash its name, empty parts left out."""
    pairs, shown = device_pairs(device), text(device)
    if len(pairs) == 1:
        labels = DEVICE_LABELS if "/" in shown else DEVICE_LABELS[1:]
        pairs = tuple(zip(labels, shown.split("/"), strict=False))
    return tuple(pair for pair in pairs if pair[1])


def target(device: bytes) -> str:
    """Platform and name of a device, as they are shown."""
    return "/".join(value for label, value in device_pairs(device) if label in (*IDENTITY_LABELS, "device"))


def blob(raw: bytes, size_bytes: int | None = None) -> str:
    """Size and first bytes of a blob, of which ``raw`` may be the first bytes alone."""
    size = len(raw) if size_bytes is None else size_bytes
    if not size:
        return "none"
    more = "..." if size > _HEX_SHOWN else ""
    return f"{size} bytes {raw[:_HEX_SHOWN].hex()}{more}"


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the first bytes of the ``.src`` say."""

    device: bytes
    options: bytes
    spec: bytes
    spec_bytes: int
    kernels: slots.Kernels


def scan_group(root: Path, group: Group) -> Iterator[tuple[Slot, Path, Look]]:
    """The entries of a folder, with what people are shown and what a scan tells; nothing where it is gone."""
    for folder, listing, slot in tree.slots_in(root, group):
        name = f"{slot.stem}{naming.BINARY if slot.binary else naming.SOURCE}"
        yield slot, folder.path / name, _look(folder, listing, slot)


def _look(folder: Folder, listing: Listing, slot: Slot) -> Look:
    glance: _Glance | None = None
    kind = strange = ""
    wrong: list[Problem] = []
    with _noting(wrong):
        if slot.with_source and slot.source is not None:
            glance = _glance(folder, slot)
    with _noting(wrong):
        if slot.binary is not None:
            shape, read = slots.binary_of(folder, slot)
            start = read(shape.payload.offset, min(shape.payload.length, SHOWN_BYTES))
            kind = payloads.describe(start).kind.value
    with suppress(OSError):
        strange = slots.stranger(folder, slot)
    found = Look(
        kind=kind,
        problem=_problem(folder, listing, slot, wrong),
        used_ns=_last_used_ns(folder, slot),
        stays=checks.not_ours(strange) if strange else "",
        unique=False,
    )
    if glance is not None:
        return _described(found, slot, glance)
    unnamed = "" if slot.with_source else f"{slot.group.family} {slot.group.hex[:12]}"
    return replace(found, program=unnamed, unique=True)


@contextmanager
def _noting(wrong: list[Problem]) -> Iterator[None]:
    """Add what is wrong with a file to a list."""
    try:
        yield
    except DamagedError as error:
        wrong.append(Problem(error.kind, error.detail))
    except (OSError, FormatError) as error:
        wrong.append(Problem(FindingKind.UNTRUSTED, str(error)))


def _problem(folder: Folder, listing: Listing, slot: Slot, wrong: list[Problem]) -> Problem | None:
    """What keeps programs from an entry, at a glance; of several problems the one to tell."""
    locked = checks.under_lock(folder, slot.stem)
    if locked is not None and locked.kind is FindingKind.LOCKED:
        return locked  # a program may be writing it: what it holds is not judged
    if slot.half:
        return Problem(FindingKind.ORPHAN, slot.half)
    if wrong or locked:
        return wrong[0] if wrong else locked
    beyond = checks.beyond(listing, slot.stem)
    return Problem(FindingKind.MISPLACED, beyond) if beyond else None


def _glance(folder: Folder, slot: Slot) -> _Glance:
    shape, read = slots.source_of(folder, slot)
    return _Glance(
        read(shape.device.offset, min(shape.device.length, SHOWN_BYTES)),
        read(shape.options.offset, min(shape.options.length, SHOWN_BYTES)),
        read(shape.spec.offset, min(shape.spec.length, SHOWN_BYTES)),
        shape.spec.length,
        slots.kernels(read(shape.images.offset, min(shape.images.length, slots.READ_BYTES))),
    )


def _described(found: Look, slot: Slot, glance: _Glance) -> Look:
    pairs = device_pairs(glance.device)
    device = tuple(pair for pair in pairs if pair[0] in DEVICE_LABELS)
    _, image, spec, _ = (f"{int(part):016x}" for part in slot.group.parts)
    options = text(glance.options)
    more = f" spec {spec[:12]}" if glance.spec else ""
    # Of copies in one folder programs take the lowest, so none of them is a newer version of another.
    copy = f" number {slot.stem}" if slot.stem != "0" else ""
    return replace(
        found,
        program=glance.kernels.shown,
        target=target(glance.device),
        # Kernels of two programs may share a name, so only the image tells what is another version.
        variant=f"{options[:_VARIANT_SHOWN]}{more} image {image[:12]}{copy}".strip(),
        toolchain=device,
        toolchain_identity=IDENTITY_LABELS if device else (),
        fields=(
            *pairs,
            ("build options", options),
            ("spec constants", blob(glance.spec, glance.spec_bytes)),
            ("image", image),
            *(("kernel", name) for name in glance.kernels.names[:_NAMES_SHOWN]),
        ),
    )


def _last_used_ns(folder: Folder, slot: Slot) -> int:
    """The runtime's own note, which it renews only where eviction is on, or a read that the disk noted."""
    seen = [slots.access_number(folder, slot.stem) or 0] if slot.access else []
    for status in (slot.binary, slot.source):
        if status is None or stat.S_ISLNK(status.st_mode):
            continue
        seen.append(status.st_mtime_ns)
        # A copy or a move sets the access time as well as the change time: only a later one is a read.
        if status.st_atime_ns > max(status.st_mtime_ns, status.st_ctime_ns):
            seen.append(status.st_atime_ns)
    return max(seen, default=0)


def report(entry: CacheEntry, folder: Folder, slot: Slot) -> EntryReport:
    """An entry whole; raises FormatError, OSError."""
    key = tuple(KeyField(label, value) for label, value in (*_stored(folder, slot), *_place(slot)))
    return EntryReport(entry=entry, key_fields=key, payload=tuple(_payload(folder, slot)))


def _stored(folder: Folder, slot: Slot) -> Iterator[tuple[str, str]]:
    if not slot.with_source:
        yield "key", f"not stored by a {slot.group.family}; only its hashes are known"
        return
    shape, read = slots.source_of(folder, slot)
    yield from device_pairs(slots.head(read, shape.device, SHOWN_BYTES))
    yield "build options", text(slots.head(read, shape.options, SHOWN_BYTES))
    spec = slots.head(read, shape.spec, SHOWN_BYTES)
    yield "spec constants", blob(spec, shape.spec.length)
    yield from _images(read, shape.images)


def _images(read: Read, span: Span) -> Iterator[tuple[str, str]]:
    unseen = slots.unseen(span)
    if unseen:
        yield "image", f"{format_size(span.length)}, {unseen}"
        return
    stored = slots.part(read, span)
    yield "image", f"{format_size(len(stored))}, SHA-256 {digest(stored)}"
    names = slots.kernels(stored).names
    for name in names[:_NAMES_SHOWN]:
        yield "kernel", name
    if len(names) > _NAMES_SHOWN:
        yield "kernels", f"{len(names)} in all"


def _place(slot: Slot) -> Iterator[tuple[str, str]]:
    for label, part in zip(_LABELS[slot.group.family], slot.group.parts, strict=True):
        if label:
            yield f"folder of {label}", part
    yield "number", slot.stem


def _payload(folder: Folder, slot: Slot) -> Iterator[tuple[str, str]]:
    shape, read = slots.binary_of(folder, slot)
    unseen = slots.unseen(shape.payload)
    if unseen:
        yield "binary", f"{format_size(shape.payload.length)}, {unseen}"
        return
    data = slots.part(read, shape.payload)
    yield from payloads.describe(data).pairs
    if shape.held > 1:
        yield "further binaries", str(shape.held - 1)
    yield "SHA-256", digest(data)
