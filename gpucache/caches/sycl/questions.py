"""The fields by which libsycl's cache can be queried, as texts that compare with a stored key.

Source of how the fields are put together: libsycl, ``persistent_device_code_cache.cpp``: several images are
joined in the order of their first kernels' names, compile and link options without a separator. Must not know
files.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import entry
from gpucache.caches.sycl.entry import DEVICE_LABELS, IDENTITY_LABELS, Source
from gpucache.caches.why import Field, TextsAlike
from gpucache.errors import UsageError
from gpucache.keys import digest
from gpucache.payload import spirv
from gpucache.payload.mangled import readable
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
_OPTIONS, _SPEC, _SIZE, _SHA256, _NAMES = (
    "build options", "spec constants", "image size", "image SHA-256", "kernels",
)  # fmt: skip
_ALIASES = {_OPTIONS: "options", _SPEC: "spec"}
"""The labels that inspect prints, by field."""
_NO_SPEC = b"none"
_NAMED = 4


def _names_alike(stored: str, asked: str) -> float:
    left, right = set(stored.split(", ")), set(asked.split(", "))
    return len(left & right) / len(left | right)


WEIGHTS = {
    **dict.fromkeys(DEVICE_LABELS, Field(1)),
    _OPTIONS: Field(3, TextsAlike()),
    _SPEC: Field(3),
    _SIZE: Field(4),
    _SHA256: Field(4),
    _NAMES: Field(1, _names_alike),
    "kernel": Field(3),
}


@dataclass(frozen=True, slots=True)
class Question:
    """The question, in words and by label."""

    words: str
    asked: Mapping[str, str]
    kernels: tuple[str, ...]
    image_bytes: int | None

    @property
    def unasked(self) -> list[str]:
        """The parts of a key that are not compared, by name."""
        device = [label for label in DEVICE_LABELS if label not in self.asked]
        rest = (("options", _OPTIONS), ("spec", _SPEC), ("image", _SHA256))
        lacking = [name for name, label in rest if label not in self.asked]
        return [*(["device"] if len(device) == len(DEVICE_LABELS) else device), *lacking]

    def stored(self, source: Source) -> Mapping[str, str]:
        """The values of a stored key in the requested fields; raises FormatError, OSError."""
        pairs = dict(source.pairs)
        found = {**pairs, "device name": pairs.get("device name", pairs.get("device", ""))}
        if _OPTIONS in self.asked:
            found[_OPTIONS] = _text(source.part(source.options, entry.LOOKED_INTO_BYTES))
        if _SPEC in self.asked:
            found[_SPEC] = _blob(source.part(source.spec, entry.LOOKED_INTO_BYTES))
        names = source.kernels if {_NAMES, "kernel"} & set(self.asked) else ()
        if _SHA256 in self.asked:
            found[_SIZE], found[_NAMES] = f"{source.images.length} bytes", _named(names)
            # A different size means different content, so it need not be read.
            same = source.images.length == self.image_bytes
            found[_SHA256] = source.sha256(source.images) if same else self.asked[_SHA256]
        if self.kernels:
            known = {*names, *map(readable, names)}
            found["kernel"] = self.asked["kernel"] if known.issuperset(self.kernels) else _named(names)
        return found


def ask(wanted: Wanted) -> Question:
    """The question in some fields; raises UsageError for unknown, missing or ambiguous ones."""
    given = _by_name(wanted)
    asked = dict(_device(given))
    if not asked and not set(given) - {"device", *DEVICE_LABELS}:
        raise UsageError("the requested device has no part; give platform/device/version/driver, or one")
    kernels = tuple(entry.text(name) for name in given.get("kernel", ()))
    words = [*kernels]
    if asked:
        shown = [asked[label] for label in IDENTITY_LABELS if label in asked]
        words.append(f"for {'/'.join(shown or asked.values())}")
    image: bytes | None = None
    if "image" in given:
        parts = sorted(given["image"], key=lambda one: min(spirv.kernel_names(one), default=""))
        image = b"".join(parts)
        names = spirv.kernel_names(image)
        asked |= {_SIZE: f"{len(image)} bytes", _SHA256: digest(image), _NAMES: _named(names)}
        words.insert(0, f"{entry.shown(names, image) or 'no image'} ({format_size(len(image))})")
    if "options" in given:
        options = b"".join(given["options"])
        asked[_OPTIONS] = _text(options)
        words.append(f"with options {entry.text(options)!r}")
    if "spec" in given:
        spec = b"".join(given["spec"])
        asked[_SPEC] = _blob(spec)
        words.append(f"with spec constants {entry.blob(spec)}")
    if kernels:
        asked["kernel"] = ", ".join(kernels)
    return Question(" ".join(words), asked, kernels, None if image is None else len(image))


def _by_name(wanted: Wanted) -> dict[str, tuple[bytes, ...]]:
    """The values by the fields' own names; an empty text replaces inspect's word none."""
    given: dict[str, tuple[bytes, ...]] = {}
    for label, values in wanted.items():
        told = tuple(b"" if label == _SPEC and one == _NO_SPEC else one for one in values)
        if told:
            name = _ALIASES.get(label, label)
            given[name] = (*given.get(name, ()), *told)
    known = "; ".join(f"{name} ({meaning})" for name, meaning in WANTED.items())
    if unknown := sorted(set(given) - {*WANTED, *DEVICE_LABELS}):
        raise UsageError(f"SYCL's cache knows no field {', '.join(unknown)}; it knows {known}")
    if not given:
        raise UsageError(f"name the subject to look for in SYCL's cache, by one or more of: {known}")
    return given


def _device(given: Mapping[str, tuple[bytes, ...]]) -> Mapping[str, str]:
    """The given parts of a device, by label: without a slash its name, empty parts left out."""
    named = {label: given[label] for label in ("device", *DEVICE_LABELS) if label in given}
    if any(len(values) > 1 for values in named.values()):
        raise UsageError("a program runs on one device; give each field of the device once")
    raw = named.pop("device", (b"",))[0]
    pairs = entry.device_pairs(raw)
    if len(pairs) == 1:
        shown = entry.text(raw)
        labels = DEVICE_LABELS if "/" in shown else DEVICE_LABELS[1:]
        pairs = tuple(zip(labels, shown.split("/"), strict=False))
    parts = {label: value for label, value in pairs if value}
    for label, (value,) in named.items():
        text = entry.text(value)
        if parts.setdefault(label, text) != text:
            raise UsageError(
                f"a program runs on one device; {label} is given as {parts[label]!r} and {text!r}"
            )
    return {label: parts[label] for label in DEVICE_LABELS if label in parts}


def _named(names: tuple[str, ...]) -> str:
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _text(raw: bytes) -> str:
    """Options for people, as a text that differs if the bytes do."""
    return entry.text(raw) if len(raw) <= entry.SHOWN_BYTES else f"{entry.text(raw)} (SHA-256 {digest(raw)})"


def _blob(raw: bytes) -> str:
    """Specialisation constants for people, as a text that differs if the bytes do."""
    return entry.blob(raw) if len(raw) <= entry.HEX_SHOWN else f"{entry.blob(raw)} (SHA-256 {digest(raw)})"
