"""Whether a program would be answered from the cache, and if not what is in the way.

Owns the fields of a question, with their other names, and the search for the entry that is wanted or the
nearest one; keeps one candidate, however many entries there are. Must not change anything. Source of how the
fields are put together: libsycl, ``persistent_device_code_cache.cpp``: several images are joined in the order
of their first kernels' names, compile and link options without a separator.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from gpucache.answers.entries import FindingKind, Location
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import checks, fields, locations, slots, tree
from gpucache.caches.sycl.checks import Verdicts
from gpucache.caches.sycl.fields import DEVICE_LABELS
from gpucache.caches.sycl.locations import Bounds
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.slots import SourceShape, Span
from gpucache.errors import FormatError, UsageError
from gpucache.keys import Difference, digest
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
_ALIASES = {"build options": "options", "spec constants": "spec"}
"""The labels that inspect prints, for the fields they are."""
_NO_SPEC = b"none"
_COMPARED_BYTES = 300
_HARMLESS = frozenset({FindingKind.ORPHAN})
"""Of what is found on an entry with both files, what does not keep programs from it."""


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
            name = slots.kernels(self.images).shown
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
    device, parts = _asked_device(given)
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


def _asked_device(given: Mapping[str, tuple[bytes, ...]]) -> tuple[bytes | None, tuple[tuple[str, str], ...]]:
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
    return tuple(sorted(values, key=lambda one: min(slots.kernels(one).names, default="")))


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


def unlike(question: Question, shape: SourceShape, read: slots.Read) -> list[str]:
    """The given fields that a stored entry has otherwise; raises FormatError, OSError."""
    found = [] if _same_device(question, shape, read) else ["device"]
    found += [name for name, wanted, span in _values(question, shape) if not _equal(read, span, wanted)]
    return found + (["kernel"] if _lacking(question, shape, read) else [])


def distance_to(question: Question, shape: SourceShape, read: slots.Read, differing: list[str]) -> Distance:
    """How far a stored entry is from what is wanted; raises FormatError, OSError."""
    strangers = device = 0
    if "image" in differing:
        strangers = len(_names(shape, read) ^ set(slots.kernels(question.images or b"").names))
    if "device" in differing:
        device = len(set(question.parts) - set(fields.device_pairs(_head(read, shape.device))))
    options = _unlikeness(question, shape, read) if "options" in differing else 0.0
    return Distance(len(differing), int("image" in differing), device, strangers, options)


def _unlikeness(question: Question, shape: SourceShape, read: slots.Read) -> float:
    """How unlike two texts of options are: an empty one is as unlike any other as one can be."""
    stored = fields.text(slots.head(read, shape.options, _COMPARED_BYTES))
    wanted = fields.text((question.options or b"")[:_COMPARED_BYTES])
    return 1 - SequenceMatcher(None, stored, wanted, autojunk=False).ratio()


def differences(question: Question, shape: SourceShape, read: slots.Read) -> Iterator[Difference]:
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


def _same_device(question: Question, shape: SourceShape, read: slots.Read) -> bool:
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


def _image(read: slots.Read, shape: SourceShape, wanted: bytes) -> Iterator[Difference]:
    span = shape.images
    own, asked = _names(shape, read), set(slots.kernels(wanted[: slots.READ_BYTES]).names)
    if span.length != len(wanted):
        yield Difference("image size", f"{span.length} bytes", f"{len(wanted)} bytes")
    stored = slots.unseen(span) or slots.sha256(read, span)
    yield Difference("image SHA-256", stored, digest(wanted))
    if own != asked:
        common = f"{len(own & asked)} in common"
        left, right = (", ".join(sorted(one)[:4]) or "none" for one in (own - asked, asked - own))
        yield Difference(f"kernels ({common})", left, right)


def _lacking(question: Question, shape: SourceShape, read: slots.Read) -> list[str]:
    """The wanted kernels that are not in the stored images."""
    if not question.kernels:
        return []
    own = _names(shape, read)
    known = own | {readable(name) for name in own}
    return [name for name in question.kernels if name not in known]


def _names(shape: SourceShape, read: slots.Read) -> set[str]:
    return set(slots.kernels(_head(read, shape.images)).names)


def _equal(read: slots.Read, span: Span, wanted: bytes) -> bool:
    if span.length != len(wanted):
        return False
    start = 0
    for piece in slots.pieces(read, span):
        if wanted[start : start + len(piece)] != piece:
            return False
        start += len(piece)
    return True


def _head(read: slots.Read, span: Span) -> bytes:
    return read(span.offset, min(span.length, slots.READ_BYTES))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry, how far it is from what is wanted, and what keeps programs from it."""

    distance: Distance
    group: Group
    stem: str
    obstacle: str
    written: bool = False
    """A program may be writing it: its lock is young."""

    @property
    def key(self) -> str:
        return self.group.key(self.stem)

    @property
    def rank(self) -> tuple[Distance, bool, str]:
        return self.distance, bool(self.obstacle), self.key


def explain(root: Path, location: Location, bounds: Bounds, question: Question) -> Reach:
    """The answer for one question. Raises nothing."""
    closed = locations.unreadable(root)
    if closed:
        return Reach(location.cache, question.shown, Verdict.NOT_CONSULTED, closed)
    mend = locations.mend(location)
    best = _best(root, question)
    refusal = bounds.refusal(len(question.images)) if question.images is not None else ""
    differing = tuple(_differences(root, question, best)) if best and best.distance.fields else ()
    verdict, detail = _answer(best, question, mend)
    if refusal:
        verdict, detail = Verdict.UNCACHEABLE, refusal
    if not location.enabled:
        verdict, detail = Verdict.NOT_CONSULTED, _not_consulted(location, detail)
    return Reach(location.cache, question.shown, verdict, detail, differing, best.key if best else "")


def _answer(best: _Candidate | None, question: Question, mend: str) -> tuple[Served | Verdict, str]:
    if best is None:
        return Verdict.NEVER_BUILT, "the cache holds no entry of a program; run the program to make one"
    if best.distance.fields:
        given = ", ".join(question.given)
        of = f"{len(question.given)} field{'s' if question.given[1:] else ''} ({given})"
        return Verdict.KEY_CHANGED, (
            f"no entry has all of it; the nearest, {best.key[:12]}, differs in {best.distance.fields} of {of}"
        )
    if best.written:
        return Verdict.NOT_CONSULTED, f"it is being written, or its writer died: {best.obstacle}"
    if best.obstacle:
        return Verdict.CORRUPT, f"it is present as {best.stem}, but {best.obstacle}; {mend}"
    unasked = f"; {', '.join(question.unasked)} were not asked for" if question.unasked else ""
    return Served.HIT, f"{best.key[:12]} has all of it and programs get to it{unasked}"


def _not_consulted(location: Location, detail: str) -> str:
    off = (locations.PERSISTENT, f"{locations.DIRECTORY} is set but empty")
    told = (problem for problem in location.problems if problem.startswith(off))
    why = next(told, f"{locations.PERSISTENT} is not set to 1; export {locations.PERSISTENT}=1")
    return f"{why} (otherwise: {detail})"


def _best(root: Path, question: Question) -> _Candidate | None:
    groups = (group for group in tree.groups(root) if group.family is Family.PROGRAM)
    found = (candidate for group in groups for candidate in _of_group(root, group, question))
    return min(found, key=lambda one: one.rank, default=None)


def _of_group(root: Path, group: Group, question: Question) -> Iterator[_Candidate]:
    verdicts = Verdicts()
    for folder, listing, slot in tree.slots_in(root, group):
        try:
            shape, read = slots.source_of(folder, slot)
            differing = unlike(question, shape, read)
            distance = distance_to(question, shape, read, differing)
            found = [] if differing else list(checks.problems(folder, listing, slot, verdicts))
        except (OSError, FormatError):
            continue  # what cannot be read answers nothing
        away = [one for one in found if one.kind not in _HARMLESS or slot.half]
        written = [one.kind for one in found] == [FindingKind.LOCKED]
        why = f"{away[0].detail}; {away[0].remedy}" if written else away[0].detail if away else ""
        yield _Candidate(distance, group, slot.stem, why, written)


def _differences(root: Path, question: Question, best: _Candidate) -> Iterator[Difference]:
    try:
        with tree.open_group(root, best.group) as folder:
            shape, read = slots.source_of(folder, slots.look(folder, best.group, best.stem))
            yield from differences(question, shape, read)
    except (OSError, FormatError):
        return
