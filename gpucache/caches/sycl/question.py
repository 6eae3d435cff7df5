"""What an explanation is asked for: the fields, their other names, and how their values are read.

Source of how the fields are put together: libsycl, ``persistent_device_code_cache.cpp``: several images
are joined in the order of their first kernels' names, compile and link options without a separator.
Must not read the cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import fields, images
from gpucache.caches.sycl.fields import DEVICE_LABELS
from gpucache.errors import UsageError
from gpucache.units import format_size

WANTED: Mapping[str, str] = {
    "device": (
        "platform/device/version/driver as inspect shows them, such as 'Intel(R) OpenCL/Intel(R) Xeon(R) "
        "Processor/OpenCL 3.0 (Build 0)/2024.18.7.0', parts left empty or out not compared; without a slash "
        "the device's name alone; also one by one as platform name, device name, device version and driver "
        "version"
    ),
    "options": "compile and link options as one text; also called build options",
    "spec": "the bytes of the specialisation constants; also called spec constants, which may be 'none'",
    "image": "the bytes of a device image, such as SPIR-V; several are put into libsycl's order",
    "kernel": "the name of a kernel in the image, mangled or as inspect lists it",
}
_ALIASES = {"build options": "options", "spec constants": "spec"}
"""The labels that inspect prints, for the fields they are."""
_NO_SPEC = b"none"


@dataclass(frozen=True, slots=True)
class Question:
    """The fields that are given; None or nothing for one that is not."""

    device: bytes | None = None
    """A whole device string, which is compared to the byte."""
    parts: tuple[tuple[str, str], ...] = ()
    """The parts of the device that are compared, by label."""
    options: bytes | None = None
    spec: bytes | None = None
    images: bytes | None = None
    kernels: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """What is asked for, in a few words."""
        return " ".join(self._words())

    @property
    def given(self) -> list[str]:
        """The names of the fields that are given."""
        there = (self.parts, self.options, self.spec, self.images, self.kernels or None)
        return [name for name, value in zip(WANTED, there, strict=True) if value not in (None, ())]

    @property
    def unasked(self) -> list[str]:
        """What of a key is not compared, by name."""
        asked = {label for label, _ in self.parts}
        device = [label for label in DEVICE_LABELS if label not in asked] if asked else ["device"]
        whole = self.device is not None
        others = (("options", self.options), ("spec", self.spec), ("image", self.images))
        return [*([] if whole else device), *(name for name, value in others if value is None)]

    def _words(self) -> Iterator[str]:
        if self.images is not None:
            name = images.kernels(self.images).shown
            yield f"{name or 'no image'} ({format_size(len(self.images))})"
        yield from self.kernels
        if self.parts:
            shown = [value for label, value in self.parts if label in fields.IDENTITY_LABELS]
            yield f"for {'/'.join(shown or [value for _, value in self.parts])}"
        if self.options is not None:
            yield f"with options {fields.text(self.options)!r}"
        if self.spec is not None:
            yield f"with spec constants {fields.blob(self.spec)}"


def ask(wanted: Wanted) -> Question:
    """The question in some fields; raises UsageError for unknown, missing or ambiguous ones."""
    given = _by_name(wanted)
    unknown = sorted(set(given) - {*WANTED, *DEVICE_LABELS})
    known = "; ".join(f"{name} ({meaning})" for name, meaning in WANTED.items())
    if unknown:
        raise UsageError(f"SYCL's cache knows no field {', '.join(unknown)}; it knows {known}")
    if not given:
        raise UsageError(f"say what is wanted of SYCL's cache, by one or more of: {known}")
    device, parts = _device(given)
    if not parts and not set(given) - {"device", *DEVICE_LABELS}:
        raise UsageError("the device that is wanted has no part; give platform/device/version/driver, or one")
    return Question(
        device=device,
        parts=parts,
        options=_joined(given.get("options")),
        spec=_joined(given.get("spec")),
        images=_joined(_sorted(given["image"])) if "image" in given else None,
        kernels=tuple(fields.text(name) for name in given.get("kernel", ())),
    )


def _by_name(wanted: Wanted) -> dict[str, tuple[bytes, ...]]:
    """The values by the fields' own names; an empty text stands for what inspect prints as none."""
    given: dict[str, tuple[bytes, ...]] = {}
    for label, values in wanted.items():
        name = _ALIASES.get(label, label)
        told = tuple(b"" if label == "spec constants" and one == _NO_SPEC else one for one in values)
        if told:
            given[name] = (*given.get(name, ()), *told)
    return given


def _device(given: Mapping[str, tuple[bytes, ...]]) -> tuple[bytes | None, tuple[tuple[str, str], ...]]:
    """The device where it is given whole, and the parts that are given."""
    named = {label: given[label] for label in ("device", *DEVICE_LABELS) if label in given}
    if any(len(values) > 1 for values in named.values()):
        raise UsageError("a program runs on one device; give each field of the device once")
    raw = named.pop("device", (b"",))[0]
    parts = dict(fields.wanted_pairs(raw)) if raw else {}
    for label, (value,) in named.items():
        text = fields.text(value)
        if parts.setdefault(label, text) != text:
            raise UsageError(
                f"a program runs on one device; {label} is given as {parts[label]!r} and {text!r}"
            )
    whole = bool(raw) and set(dict(fields.wanted_pairs(raw))) == set(DEVICE_LABELS)
    return raw if whole else None, tuple((label, parts[label]) for label in DEVICE_LABELS if label in parts)


def _joined(values: tuple[bytes, ...] | None) -> bytes | None:
    return None if values is None else b"".join(values)


def _sorted(values: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(sorted(values, key=lambda one: min(images.kernels(one).names, default="")))
