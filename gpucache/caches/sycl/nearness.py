"""How a stored entry differs from what is wanted, and by how much.

Must not walk the cache, nor know what keeps programs from an entry.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from gpucache.caches.sycl import fields, images, shapes, slots
from gpucache.caches.sycl.question import Question
from gpucache.caches.sycl.shapes import SourceShape, Span
from gpucache.keys import Difference
from gpucache.payload.mangled import readable

_COMPARED_BYTES = 300


@dataclass(frozen=True, slots=True, order=True)
class Distance:
    """How far an entry is from what is wanted, the most telling first."""

    fields: int
    """How many of the given fields differ."""
    image: int
    device: int
    """How many of the given parts of the device differ."""
    strangers: int
    """Kernels that only one of both has."""
    options: float = 0.0
    """How unlike the options are, from 0 to 1."""


def unlike(question: Question, shape: SourceShape, read: shapes.Read) -> list[str]:
    """The given fields that a stored entry has otherwise; raises FormatError, OSError."""
    found = [] if _same_device(question, shape, read) else ["device"]
    found += [name for name, wanted, span in _values(question, shape) if not _equal(read, span, wanted)]
    return found + (["kernel"] if _lacking(question, shape, read) else [])


def distance(question: Question, shape: SourceShape, read: shapes.Read, differing: list[str]) -> Distance:
    """How far a stored entry is from what is wanted; raises FormatError, OSError."""
    strangers = device = 0
    if "image" in differing:
        strangers = len(_names(shape, read) ^ set(images.kernels(question.images or b"").names))
    if "device" in differing:
        device = len(set(question.parts) - set(fields.device_pairs(_head(read, shape.device))))
    options = _unlikeness(question, shape, read) if "options" in differing else 0.0
    return Distance(len(differing), int("image" in differing), device, strangers, options)


def _unlikeness(question: Question, shape: SourceShape, read: shapes.Read) -> float:
    """How unlike two texts of options are: an empty one is as unlike any other as one can be."""
    stored = fields.text(slots.head(read, shape.options, _COMPARED_BYTES))
    wanted = fields.text((question.options or b"")[:_COMPARED_BYTES])
    return 1 - SequenceMatcher(None, stored, wanted, autojunk=False).ratio()


def differences(question: Question, shape: SourceShape, read: shapes.Read) -> Iterator[Difference]:
    """What tells a stored entry from what is wanted: left is stored; raises FormatError, OSError."""
    if not _same_device(question, shape, read):
        yield from _device(slots.head(read, shape.device, fields.SHOWN_BYTES), question)
    for name, wanted, span in _values(question, shape):
        if _equal(read, span, wanted):
            continue
        if name == "image":
            yield from _image(read, shape, wanted)
            continue
        stored = slots.head(read, span, fields.SHOWN_BYTES)
        if name == "spec":
            yield Difference("spec constants", fields.blob(stored, span.length), fields.blob(wanted))
        else:
            yield Difference("build options", fields.text(stored), fields.text(wanted))
    lacking = _lacking(question, shape, read)
    if lacking:
        yield Difference("kernel", ", ".join(sorted(_names(shape, read))[:4]) or None, ", ".join(lacking))


def _values(question: Question, shape: SourceShape) -> Iterator[tuple[str, bytes, Span]]:
    """Each given field of bytes: its name, what is wanted, and where the stored one lies."""
    pairs = (("options", question.options, shape.options), ("spec", question.spec, shape.spec),
             ("image", question.images, shape.images))  # fmt: skip
    yield from ((name, wanted, span) for name, wanted, span in pairs if wanted is not None)


def _same_device(question: Question, shape: SourceShape, read: shapes.Read) -> bool:
    if question.device is not None:
        return _equal(read, shape.device, question.device)
    stored = dict(fields.device_pairs(_head(read, shape.device)))
    name = stored.get("device")  # of another form, which has no parts but may be named whole
    return question.parts == (("device name", name),) or all(
        stored.get(label) == value for label, value in question.parts
    )


def _device(stored: bytes, question: Question) -> Iterator[Difference]:
    left, right = dict(fields.device_pairs(stored)), dict(question.parts)
    for label in dict.fromkeys((*(label for label in left if label in right or label == "device"), *right)):
        if left.get(label) != right.get(label):
            yield Difference(label, left.get(label), right.get(label))


def _image(read: shapes.Read, shape: SourceShape, wanted: bytes) -> Iterator[Difference]:
    span = shape.images
    own, asked = _names(shape, read), set(images.kernels(wanted[: images.READ_BYTES]).names)
    if span.length != len(wanted):
        yield Difference("image size", f"{span.length} bytes", f"{len(wanted)} bytes")
    digest = slots.unseen(span) or slots.sha256(read, span)
    yield Difference("image SHA-256", digest, fields.sha256(wanted))
    if own != asked:
        common = f"{len(own & asked)} in common"
        left, right = (", ".join(sorted(one)[:4]) or "none" for one in (own - asked, asked - own))
        yield Difference(f"kernels ({common})", left, right)


def _lacking(question: Question, shape: SourceShape, read: shapes.Read) -> list[str]:
    """The wanted kernels that are not in the stored images."""
    if not question.kernels:
        return []
    own = _names(shape, read)
    known = own | {readable(name) for name in own}
    return [name for name in question.kernels if name not in known]


def _names(shape: SourceShape, read: shapes.Read) -> set[str]:
    return set(images.kernels(_head(read, shape.images)).names)


def _equal(read: shapes.Read, span: Span, wanted: bytes) -> bool:
    if span.length != len(wanted):
        return False
    start = 0
    for piece in slots.pieces(read, span):
        if wanted[start : start + len(piece)] != piece:
            return False
        start += len(piece)
    return True


def _head(read: shapes.Read, span: Span) -> bytes:
    return read(span.offset, min(span.length, images.READ_BYTES))
