"""What an explanation is asked for, and how a stored entry differs from it.

Source of how the fields are put together: libsycl, ``persistent_device_code_cache.cpp``: several images
are joined in the order of their first kernels' names, compile and link options without a separator.
Must not walk the cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import fields, images, shapes, slots
from gpucache.caches.sycl.shapes import SourceShape, Span
from gpucache.errors import UsageError
from gpucache.keys import Difference
from gpucache.units import format_size

WANTED: Mapping[str, str] = {
    "device": "platform/device/version/driver, as inspect shows it",
    "options": "compile and link options as one text",
    "spec": "the bytes of the specialisation constants",
    "image": "the bytes of a device image, such as SPIR-V; several are put into libsycl's order",
}


@dataclass(frozen=True, slots=True)
class Question:
    """The fields that are given; None for one that is not."""

    device: bytes | None = None
    options: bytes | None = None
    spec: bytes | None = None
    images: bytes | None = None

    @property
    def shown(self) -> str:
        """What is asked for, in a few words."""
        parts = []
        if self.images is not None:
            name = images.kernels(self.images).shown
            parts.append(f"{name or 'no image'} ({format_size(len(self.images))})")
        if self.device is not None:
            parts.append(f"for {fields.target(self.device)}")
        if self.options is not None:
            parts.append(f"with options {fields.text(self.options)!r}")
        if self.spec is not None:
            parts.append(f"with spec constants {fields.blob(self.spec)}")
        return " ".join(parts)

    def values(self, shape: SourceShape) -> Iterator[tuple[str, bytes, Span]]:
        """Each given field: its name, what is wanted, and where the stored one lies."""
        pairs = (("device", self.device, shape.device), ("options", self.options, shape.options),
                 ("spec", self.spec, shape.spec), ("image", self.images, shape.images))  # fmt: skip
        yield from ((name, wanted, span) for name, wanted, span in pairs if wanted is not None)


@dataclass(frozen=True, slots=True, order=True)
class Distance:
    """How far an entry is from what is wanted, the most telling first."""

    fields: int
    """How many of the given fields differ."""
    image: int
    device: int
    """How many parts of the device string differ."""
    strangers: int
    """Kernels that only one of both has."""


def ask(wanted: Wanted) -> Question:
    """The question in some fields; raises UsageError for unknown, missing or ambiguous ones."""
    unknown = sorted(set(wanted) - set(WANTED))
    names = ", ".join(WANTED)
    if unknown:
        raise UsageError(f"SYCL's cache knows no field {', '.join(unknown)}; it knows {names}")
    given = {name: values for name, values in wanted.items() if values}
    if not given:
        raise UsageError(f"say what is wanted of SYCL's cache, by one or more of {names}")
    if len(given.get("device", ())) > 1:
        raise UsageError("a program runs on one device; give the field device once")
    return Question(
        device=_joined(given.get("device")),
        options=_joined(given.get("options")),
        spec=_joined(given.get("spec")),
        images=_joined(_sorted(given["image"])) if "image" in given else None,
    )


def unlike(question: Question, shape: SourceShape, read: shapes.Read) -> list[str]:
    """The given fields that a stored entry has otherwise; raises FormatError, OSError."""
    return [name for name, wanted, span in question.values(shape) if not _equal(read, span, wanted)]


def distance(question: Question, shape: SourceShape, read: shapes.Read, differing: list[str]) -> Distance:
    """How far a stored entry is from what is wanted; raises FormatError, OSError."""
    strangers = device = 0
    if "image" in differing:
        own, wanted = _kernel_sets(question, shape, read)
        strangers = len(own ^ wanted)
    if "device" in differing and question.device is not None:
        stored = fields.device_pairs(_head(read, shape.device))
        device = len(set(stored) ^ set(fields.device_pairs(question.device)))
    return Distance(len(differing), int("image" in differing), device, strangers)


def differences(question: Question, shape: SourceShape, read: shapes.Read) -> Iterator[Difference]:
    """What tells a stored entry from what is wanted: left is stored; raises FormatError, OSError."""
    for name, wanted, span in question.values(shape):
        if _equal(read, span, wanted):
            continue
        stored = slots.part(read, span)
        if name == "device":
            yield from _device(stored, wanted)
        elif name == "image":
            yield from _image(stored, wanted)
        elif name == "spec":
            yield Difference("spec constants", fields.blob(stored), fields.blob(wanted))
        else:
            yield Difference("build options", fields.text(stored), fields.text(wanted))


def _device(stored: bytes, wanted: bytes) -> Iterator[Difference]:
    left, right = dict(fields.device_pairs(stored)), dict(fields.device_pairs(wanted))
    for label in dict.fromkeys((*left, *right)):
        if left.get(label) != right.get(label):
            yield Difference(label, left.get(label), right.get(label))


def _image(stored: bytes, wanted: bytes) -> Iterator[Difference]:
    own, asked = (set(images.kernels(one).names) for one in (stored, wanted))
    if len(stored) != len(wanted):
        yield Difference("image size", f"{len(stored)} bytes", f"{len(wanted)} bytes")
    yield Difference("image SHA-256", fields.sha256(stored), fields.sha256(wanted))
    if own != asked:
        common = f"{len(own & asked)} in common"
        left, right = (", ".join(sorted(one)[:4]) or "none" for one in (own - asked, asked - own))
        yield Difference(f"entry points ({common})", left, right)


def _kernel_sets(question: Question, shape: SourceShape, read: shapes.Read) -> tuple[set[str], set[str]]:
    stored = read(shape.images.offset, min(shape.images.length, images.READ_BYTES))
    return set(images.kernels(stored).names), set(images.kernels(question.images or b"").names)


def _equal(read: shapes.Read, span: Span, wanted: bytes) -> bool:
    return span.length == len(wanted) and slots.part(read, span) == wanted


def _head(read: shapes.Read, span: Span) -> bytes:
    return read(span.offset, min(span.length, images.READ_BYTES))


def _joined(values: tuple[bytes, ...] | None) -> bytes | None:
    return None if values is None else b"".join(values)


def _sorted(values: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(sorted(values, key=lambda one: min(images.kernels(one).names, default="")))
