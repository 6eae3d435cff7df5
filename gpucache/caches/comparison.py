"""The comparison of a question with the entries of a cache: the nearest stored one explains a miss.

A format provides the fields ``asked`` for and the values that each item has ``stored`` in them. The nearest
item has the lightest differing fields; of equally light ones it is the one with more similar values, and then
the first. Must not know any system.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from gpucache.answers.entries import CacheEntry, FindingKind, Location, Problem
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Wanted
from gpucache.errors import FormatError, UsageError
from gpucache.keys import Difference
from gpucache.units import format_size, printable

if TYPE_CHECKING:
    from gpucache.caches.format import Format

N = TypeVar("N")
Fields = Mapping[str, Any]
"""Values by label; two entries differ in a field where the values are unequal."""
_COMPARED_CHARS = 300
_TEXTS_COMPARED = 5000
_NAMED, _SHORT = 4, 200


class Field(NamedTuple):
    """The weight of a difference in a field."""

    weight: int = 1
    alike: Callable[[Any, Any], float] | None = None
    """The similarity of a stored and a requested value, from 0 to 1; None if they have nothing in common."""
    least: float = 0.0
    """The least similarity for the entry to be near at all."""


class Near(NamedTuple, Generic[N]):
    """The item that would be found, or the nearest one."""

    item: N
    stored: Fields
    differing: tuple[str, ...]
    """The labels of the fields in which the item differs from the request; empty if it has all."""
    wrong: Problem | None = None
    """The reason why an item with all requested fields is not served."""

    def differences(self, asked: Fields) -> tuple[Difference, ...]:
        """The differing fields, whose values must be texts; only the first differing line of long ones."""
        return tuple(_difference(label, self.stored.get(label), asked[label]) for label in self.differing)


def _difference(label: str, stored: str | None, asked: str) -> Difference:
    if "\n" not in (stored or "") + asked:
        return Difference(label, stored, asked)
    left, right = (stored or "").splitlines(), asked.splitlines()
    pairs = enumerate(zip(left, right, strict=False))
    number = next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))
    one, other = (printable(lines[number]) if number < len(lines) else None for lines in (left, right))
    return Difference(f"{label}, line {number + 1}", one, other)


def nearest(
    items: Iterable[N],
    asked: Fields,
    stored: Callable[[N], Fields],
    known: Mapping[str, Field],
    wrong: Callable[[N], Problem | None] = lambda _: None,
) -> Near[N] | None:
    """The first sound item with all requested fields, else an unsound one, else the nearest.

    None if nothing is near. ``known`` has the fields that count differently from ``Field()``. An item whose
    ``stored`` raises FormatError or OSError is skipped.
    """
    for field in known.values():
        if isinstance(field.alike, TextsAlike):
            field.alike.begin()
    best: Near[N] | None = None
    spoiled: Near[N] | None = None
    least: tuple[float, float] | None = None
    for item in items:
        try:
            fields = stored(item)
        except (OSError, FormatError):
            continue
        differing = tuple(label for label, value in asked.items() if fields.get(label) != value)
        if not differing:
            problem = wrong(item)
            if problem is None:
                return Near(item, fields, ())
            spoiled = spoiled or Near(item, fields, (), problem)
            continue
        rank = None if spoiled else _rank(fields, asked, differing, known)
        if rank is not None and (least is None or rank < least):
            best, least = Near(item, fields, differing), rank
    return spoiled or best


def _rank(
    stored: Fields, asked: Fields, differing: Iterable[str], known: Mapping[str, Field]
) -> tuple[float, float] | None:
    """The distance of an item from the request; None if it is not near."""
    weight = unlike = 0.0
    for label in differing:
        field = known.get(label, Field())
        alike = field.alike(stored.get(label), asked[label]) if field.alike else 0.0
        if alike < field.least:
            return None
        weight += field.weight
        unlike += field.weight * (1 - alike)
    return weight, unlike


class TextsAlike:
    """The similarity of two texts; only a limited number of pairs are compared, as that takes time."""

    def __init__(self, least: float = 0.0) -> None:
        from difflib import SequenceMatcher  # only a question needs it

        self._matcher = SequenceMatcher(autojunk=False)
        self._least = least
        self.begin()

    def begin(self) -> None:
        self._left = _TEXTS_COMPARED

    def __call__(self, stored: str, asked: str) -> float:
        """The similarity from 0 to 1; 0 below the minimum and after the last permitted comparison."""
        self._left -= 1
        if self._left < 0:
            return 0.0
        self._matcher.set_seq2(asked[:_COMPARED_CHARS])
        self._matcher.set_seq1(stored[:_COMPARED_CHARS])
        bounds = (self._matcher.real_quick_ratio, self._matcher.quick_ratio)
        return 0.0 if any(bound() < self._least for bound in bounds) else self._matcher.ratio()


def once(wanted: Wanted, name: str) -> bytes | None:
    """The only value of a requested field, or None; raises UsageError for several values."""
    values = wanted.get(name, ())
    if len(values) > 1:
        raise UsageError(f"the field {name!r} is given {len(values)} times; give it once")
    return values[0] if values else None


def compared(made: "Format", asked: Mapping[str, str]) -> Reach:
    """The answer of a cache to requested values: whether an entry has all of them and programs find it."""
    words = ", ".join(f"{label} {_short(value)}" for label, value in asked.items())

    def stored(entry: CacheEntry) -> Fields:
        told = made.stored(entry, asked)
        return {
            label: asked.get(label)
            if values is None or asked.get(label) in values
            else ", ".join(values[:_NAMED])
            for label, values in told.items()
        }

    if closed := made.closed():
        return Reach(made.name, words, Verdict.NOT_CONSULTED, closed)
    broken: list[CacheEntry] = []
    near = nearest(_looks(made, broken), asked, stored, made.compared, made.hinders)
    verdict: Verdict | Served
    if near is None and broken:
        detail = f"no sound entry is like it, but {len(broken)} cannot be read; {repair(made.location)}"
        return Reach(made.name, words, Verdict.CORRUPT, detail, nearest=broken[0].key)
    if near is None:
        detail = (
            "the cache has no entry like it: it was never built, or was removed; run the program to make one"
        )
        return Reach(made.name, words, Verdict.NEVER_BUILT, detail)
    key = near.item.key
    if near.differing:
        lacking = ", ".join(made.unstored if label == "key" else label for label in near.differing)
        verdict = Verdict.KEY_CHANGED
        detail = f"no entry has all of it; the nearest, {key[:12]}, differs in {lacking}"
    elif wrong := near.wrong:
        verdict = {
            FindingKind.LOCKED: Verdict.NOT_CONSULTED,
            FindingKind.STALE: Verdict.KEY_CHANGED,
            FindingKind.MISLABELLED: Served.FALSE_HIT if made.serves_others else Verdict.CORRUPT,
        }.get(wrong.kind or FindingKind.CORRUPT, Verdict.CORRUPT)
        detail = f"it is present, but {wrong.detail}; {wrong.remedy or repair(made.location)}"
    else:
        rest = ", ".join(label for label in made.compared if label not in asked)
        missing = made.decides and made.decides not in asked
        verdict = Verdict.NOT_RECORDED if missing else Served.HIT
        told = f"; not compared: {rest}" if rest else ""
        more = f"; {made.served}" if made.served else ""
        gets = f", and {made.decides} decides" if missing else " and programs get to it"
        detail = f"{key[:12]} has all of it{gets}{told}{more}"
    return Reach(made.name, words, verdict, detail, near.differences(asked), key)


def _short(value: str) -> str:
    """A value, short enough for a sentence."""
    return value if len(value) <= _SHORT and "\n" not in value else f"of {format_size(len(value))}"


def repair(location: Location) -> str:
    """The command that repairs a cache, with its place if no variable leads to it."""
    by_hand = location.decided_by == "--cache"
    name = shlex.quote(f"{location.cache}:{location.root}") if by_hand else location.cache
    command = f"gpucache verify --repair --cache {name}"
    return f"run {command}" if "'" in name else f"run '{command}'"


def _looks(made: "Format", broken: list[CacheEntry]) -> Iterator[CacheEntry]:
    """The entries of a cache as a scan sees them, none if it cannot be read; damaged ones that have no fields
    are put into a list."""
    with suppress(OSError):
        for item in made.items(""):
            with suppress(OSError, FormatError):
                if (entry := made.look(item)) is not None and entry.fields:
                    yield entry
                elif entry is not None and entry.damage:
                    broken.append(entry)
