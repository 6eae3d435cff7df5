"""Everything that an entry stores about itself, for people to read.

Must not judge: what is wrong is told elsewhere.
"""

from collections.abc import Iterator

from gpucache import payload as payloads
from gpucache.caches.sycl import fields, images, slots
from gpucache.caches.sycl.naming import Family
from gpucache.caches.sycl.shapes import Read, Span
from gpucache.caches.sycl.slots import Slot
from gpucache.folders import Folder
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, EntryReport
from gpucache.units import format_size

_NAMES_SHOWN = 16
_LABELS = {
    Family.PROGRAM: ("device", "image", "spec constants", "build options"),
    Family.KERNEL: ("", "device", "build options", "source"),
    Family.IR: ("", "source, options and compiler"),
}


def report(entry: CacheEntry, folder: Folder, slot: Slot) -> EntryReport:
    """An entry whole; raises FormatError, OSError."""
    key = tuple(KeyField(label, value) for label, value in (*_stored(folder, slot), *_place(slot)))
    return EntryReport(entry=entry, key_fields=key, payload=tuple(_payload(folder, slot)))


def _stored(folder: Folder, slot: Slot) -> Iterator[tuple[str, str]]:
    if not slot.with_source:
        yield "key", f"not stored by a {slot.group.family}; only its hashes are known"
        return
    shape, read = slots.source_of(folder, slot)
    yield from fields.device_pairs(slots.head(read, shape.device, fields.SHOWN_BYTES))
    yield "build options", fields.text(slots.head(read, shape.options, fields.SHOWN_BYTES))
    spec = slots.head(read, shape.spec, fields.SHOWN_BYTES)
    yield "spec constants", fields.blob(spec, shape.spec.length)
    yield from _images(read, shape.images)


def _images(read: Read, span: Span) -> Iterator[tuple[str, str]]:
    unseen = slots.unseen(span)
    if unseen:
        yield "image", f"{format_size(span.length)}, {unseen}"
        return
    stored = slots.part(read, span)
    yield "image", f"{format_size(len(stored))}, SHA-256 {fields.sha256(stored)}"
    names = images.kernels(stored).names
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
    yield "SHA-256", fields.sha256(data)
