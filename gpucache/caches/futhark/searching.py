"""Which change of options explains the difference between two keys. Pure.

The key is the XOR of what its inputs add, so the difference of two keys is the XOR of what the
differing inputs add: one change is found by trying, two by a dictionary of what single changes add.
OpenCL's options are one input, of which no part adds anything by itself: there single changes are
tried, each with the whole string. Must not know which changes there are, nor how they are told.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gpucache.caches.futhark.changes import Change, Edit, every, likely, natural
from gpucache.caches.futhark.keys import START, continued, contribution

ALTERNATIVES = 8
"""Explanations that are kept of one difference."""
_JOINED_BYTES = 16 * 1024 * 1024  # of strings that are tried per kind of change
_PAIR_LIMIT = 60_000
_SIGN = b" "
_Meaning = frozenset[tuple[bytes | None, bytes | None]]
_Ways = dict[_Meaning, Change]
_Added = dict[int, tuple[Change, ...]]


class Separate:
    """Options that are added one by one."""

    pairs = True
    limit = sys.maxsize

    def __init__(self, options: Sequence[bytes], *, signed: bool) -> None:
        self._signed = signed
        self._known = {option: contribution(option, signed=signed) for option in options}

    def added(self, change: Change) -> int:
        """What a change adds to the key."""
        number = 0
        for edit in change:
            number ^= self._one(edit.stored) ^ self._one(edit.wanted)
        return number

    def _one(self, option: bytes | None) -> int:
        if option is None:
            return 0
        known = self._known.get(option)
        return contribution(option, signed=self._signed) if known is None else known


class Joined:
    """Options that are added as one string."""

    pairs = False

    def __init__(self, options: Sequence[bytes], *, signed: bool) -> None:
        self._options = tuple(options)
        self._signed = signed
        self._starts = [(START, 0)]  # x and place where each option begins
        for option in options:
            x, place = self._starts[-1]
            self._starts.append(
                (continued(option + _SIGN, x, place, signed=signed)[0], place + len(option) + 1)
            )
        self._rests: dict[int, int] = {}
        self.limit = _JOINED_BYTES // max(1, self._starts[-1][1])

    def added(self, change: Change) -> int:
        """What a change adds to the key."""
        # An option that is last takes the space before it along, so the one before it counts as well.
        first = max(0, min(edit.place for edit in change) - 1)
        options = list(self._options)
        for edit in sorted(change, key=lambda one: one.place, reverse=True):
            taken = int(edit.wanted is not None)
            options[edit.place : edit.place + taken] = [] if edit.stored is None else [edit.stored]
        if first not in self._rests:
            self._rests[first] = self._rest(self._options, first)
        return self._rest(options, first) ^ self._rests[first]

    def _rest(self, options: Sequence[bytes], first: int) -> int:
        x, place = self._starts[first]
        return continued(_SIGN.join(options[first:]), x, place, signed=self._signed)[1]


Recipe = Separate | Joined


@dataclass(frozen=True, slots=True)
class Explanation:
    """The changes that each explain a difference, the likeliest first, at most :data:`ALTERNATIVES`."""

    alternatives: tuple[Change, ...] = ()
    together: bool = False
    """Whether each is two changes that only explain it together; tried where no change does alone."""

    @property
    def only(self) -> Change | None:
        """The one change that explains it; None where there is none, or several."""
        return self.alternatives[0] if len(self.alternatives) == 1 else None


def search(
    options: Sequence[bytes],
    backend: str,
    environ: Mapping[str, str],
    differences: Collection[int],
    *,
    signed: bool,
) -> dict[int, Explanation]:
    """What explains each difference of two keys, the likeliest kind of change first.

    Two changes together are tried only where none explains a difference alone: keys are made so that
    many unlikely pairs add what one change does.
    """
    recipe = Joined(options, signed=signed) if backend == "opencl" else Separate(options, signed=signed)
    ways: dict[int, _Ways] = {one: {} for one in differences}
    if not ways:
        return {}
    # Every kind is tried even where an earlier one explains the key: only so is one known to be alone.
    kinds = (likely(options, backend, environ), natural(options), every(options))
    tried = [_try(recipe, changes, ways) for changes in kinds]
    found = {one: Explanation(tuple(each.values())[:ALTERNATIVES]) for one, each in ways.items()}
    for one, explanation in found.items():
        if recipe.pairs and not explanation.alternatives:
            found[one] = _pairs(one, tried[0], tried[1])
    return found


def _try(recipe: Recipe, changes: Iterable[Change], ways: Mapping[int, _Ways]) -> _Added:
    """Add what explains a difference to its ways; a bounded number of changes by what they add."""
    added: _Added = {}
    for count, change in enumerate(changes):
        if count >= recipe.limit:
            break
        number = recipe.added(change)
        if number in ways:
            ways[number].setdefault(_meaning(change), change)
        if number and recipe.pairs and count < _PAIR_LIMIT:
            added[number] = (*added.get(number, ())[: ALTERNATIVES - 1], change)
    return added


def _pairs(wanted: int, likelier: _Added, other: _Added) -> Explanation:
    """Two changes that explain a difference together, two unlikely ones last."""
    ways: _Ways = {}
    for first, second in ((likelier, likelier), (likelier, other), (other, other)):
        for change in _partners(wanted, first, second):
            ways.setdefault(_meaning(change), change)
            if len(ways) == ALTERNATIVES:
                return Explanation(tuple(ways.values()), together=True)
    return Explanation(tuple(ways.values()), together=True)


def _partners(wanted: int, first: _Added, second: _Added) -> Iterator[Change]:
    for number, changes in first.items():
        for change, partner in product(changes, second.get(wanted ^ number, ())):
            if not _touched(change) & _touched(partner):
                yield (*change, *partner)


def _touched(change: Change) -> frozenset[int | bytes | None]:
    """The wanted options that a change takes away, and the new ones that it adds."""
    return frozenset(edit.place if edit.wanted is not None else edit.stored for edit in change)


def _meaning(change: Iterable[Edit]) -> _Meaning:
    return frozenset((edit.stored, edit.wanted) for edit in change)
