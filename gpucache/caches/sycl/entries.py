"""Entries as every cache shows them, read from the first bytes of an entry's files.

Owns what a scan reads of an entry and how an entry is found again after others were removed. Must not
judge more than a glance tells.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache import payload as payloads
from gpucache.caches.format import Look
from gpucache.caches.sycl import fields, images, judging, naming, slots, standing, tree
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.shapes import DamagedError
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind, Problem

_PAYLOAD_HEAD_BYTES = 4096
_VARIANT_SHOWN = 200
_KERNELS_KEPT = 16


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the first bytes of the ``.src`` say."""

    device: bytes
    options: bytes
    spec: bytes
    spec_bytes: int
    kernels: images.Kernels


def scan_group(root: Path, group: Group) -> Iterator[tuple[Slot, Path, Look]]:
    """The entries of a folder, with what people are shown and what a scan tells; nothing where it is gone."""
    try:
        with tree.open_group(root, group) as folder:
            listing = tree.listing(folder)
            for stem in listing.stems:
                slot = slots.look(folder, group, stem)
                name = f"{stem}{naming.BINARY if slot.binary else naming.SOURCE}"
                yield slot, folder.path / name, _look(folder, listing, slot)
    except OSError:
        return  # leftovers say what cannot be read


def _look(folder: Folder, listing: Listing, slot: Slot) -> Look:
    glance, damage = _seen(folder, listing, slot)
    found = Look(
        kind=_artifact_kind(folder, slot),
        problem=damage,
        used_ns=_last_used_ns(folder, slot),
        stays=_stays(folder, slot),
        unique=False,
    )
    if glance is not None:
        return _described(found, slot, glance)
    unnamed = "" if slot.with_source else f"{slot.group.family} {slot.group.hex[:12]}"
    return replace(found, program=unnamed, unique=True)


def _stays(folder: Folder, slot: Slot) -> str:
    try:
        strange = slots.stranger(folder, slot)
    except OSError:
        return ""
    return judging.not_ours(strange) if strange else ""


def _seen(folder: Folder, listing: Listing, slot: Slot) -> tuple[_Glance | None, Problem | None]:
    """What a glance at the files tells, and what is wrong at that."""
    glance: _Glance | None = None
    damage: Problem | None = None
    try:
        if slot.with_source and slot.source is not None:
            glance = _glance(folder, slot)
        if slot.binary is not None:
            slots.binary_of(folder, slot)
    except DamagedError as error:
        damage = Problem(error.kind, error.detail)
    except (OSError, FormatError) as error:
        damage = Problem(FindingKind.UNTRUSTED, str(error))
    if slot.half:
        damage = Problem(FindingKind.ORPHAN, slot.half)
    locked = standing.under_lock(folder, slot.stem)
    if len(locked) == 1:  # a program may be writing it: what it holds is not judged
        return glance, locked[0]
    return glance, damage or _unreached(listing, slot, locked)


def _unreached(listing: Listing, slot: Slot, locked: list[Problem]) -> Problem | None:
    if locked:
        return locked[-1]
    beyond = standing.beyond(listing, slot.stem)
    return Problem(FindingKind.MISPLACED, beyond) if beyond else None


def _glance(folder: Folder, slot: Slot) -> _Glance:
    shape, read = slots.source_of(folder, slot)
    return _Glance(
        read(shape.device.offset, min(shape.device.length, _PAYLOAD_HEAD_BYTES)),
        read(shape.options.offset, min(shape.options.length, _PAYLOAD_HEAD_BYTES)),
        read(shape.spec.offset, min(shape.spec.length, _PAYLOAD_HEAD_BYTES)),
        shape.spec.length,
        images.kernels(read(shape.images.offset, min(shape.images.length, images.READ_BYTES))),
    )


def _described(found: Look, slot: Slot, glance: _Glance) -> Look:
    pairs = fields.device_pairs(glance.device)
    device = tuple(pair for pair in pairs if pair[0] in fields.DEVICE_LABELS)
    _, image, spec, _ = (f"{int(part):016x}" for part in slot.group.parts)
    options = fields.text(glance.options)
    more = f" spec {spec[:12]}" if glance.spec else ""
    # Of copies in one folder programs take the lowest, so none of them is a newer version of another.
    copy = f" number {slot.stem}" if slot.stem != "0" else ""
    return replace(
        found,
        program=glance.kernels.shown,
        target=fields.target(glance.device),
        # Kernels of two programs may share a name, so only the image tells what is another version.
        variant=f"{options[:_VARIANT_SHOWN]}{more} image {image[:12]}{copy}".strip(),
        toolchain=device,
        toolchain_identity=fields.IDENTITY_LABELS if device else (),
        fields=(
            *pairs,
            ("build options", options),
            ("spec constants", fields.blob(glance.spec, glance.spec_bytes)),
            ("image", image),
            *(("kernel", name) for name in glance.kernels.names[:_KERNELS_KEPT]),
        ),
    )


def _artifact_kind(folder: Folder, slot: Slot) -> str:
    try:
        shape, read = slots.binary_of(folder, slot)
        head = read(shape.payload.offset, min(shape.payload.length, _PAYLOAD_HEAD_BYTES))
    except (OSError, FormatError):
        return ""
    return payloads.describe(head).kind.value


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
