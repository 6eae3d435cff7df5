"""Advice from the entries of a cache: key fields that do not matter, and keys that never repeat.

Compares the many entries of one program. Keeps a few numbers of each entry, and reads the key fields of a
bounded number. Must not know how an advice is shown.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Advice, AdviceKind
from gpucache.model import KeyField

if TYPE_CHECKING:
    from gpucache.keys import Difference

Fields = Callable[[str], Sequence[KeyField]]
"""Reads the key fields of an entry by its key; empty if they cannot be read."""

RESTLESS_STEPS = 3
"""How many keys in a row must differ in one field before we say that it changes at every build."""
GROWTH_ENTRIES = 8
"""How many entries of a program, none ever hit, count as growth."""
PROGRAMS_READ = 50
"""For how many programs key fields are read: those with the most entries."""
TWINS_READ = 4
"""For how many sets of entries with equal bytes key fields are read: the largest of a program."""
_NOT_TOLD = frozenset({"resolution of includes"})
# People change these on purpose, so they are reported only if the values look made by a machine.
_CHOSEN = frozenset({"option", "checks", "local size", "name expression"})
_DIGEST = r"[0-9a-f]{64}"
_LOOKS = (
    ("an address", r"0x[0-9a-fA-F]{6,}"),
    ("a random name", r"(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("a date or time", r"\b(19|20)\d\d-?[01]\d-?[0-3]\d|\b\d\d:\d\d:\d\d\b|\b1[5-9]\d{8}(\.\d+)?\b"),
    ("a path below a temporary directory", r"(/var)?/tmp/|/T/tmp|/run/user/|\\Temp\\"),
    ("a path below a home directory", r"/home/[^/\s]+|/root/|/Users/[^/\s]+|C:\\Users\\"),
)
_NUMBER = r"(?<![\w.])\d{2,7}(?![\w.])"


_PACKED = struct.Struct(">Q?32sq")
"""The record of an entry until all were seen, in 49 bytes, as there may be a million."""


class _Trace(NamedTuple):
    """The same unpacked."""

    created_ns: int
    was_read: bool
    """Whether it was read since it was made, or may have been."""
    digest: bytes
    """Its key."""
    payload: int
    """The hash of its payload's digest, which distinguishes it from the other entries of a program."""

    @property
    def key(self) -> str:
        """Its key in hex."""
        return self.digest.hex()


class Traces:
    """A few numbers of every entry of our own cache, by program and target."""

    def __init__(self) -> None:
        self._programs: defaultdict[tuple[str, str], bytearray] = defaultdict(bytearray)
        self.shows_use = False
        """Whether any entry was used since it was made: else nothing says that one was not."""

    def of(self, entries: Iterable[CacheEntry]) -> Iterator[CacheEntry]:
        """Passes entries through, one by one, and keeps a trace of each."""
        for entry in entries:
            if entry.program and not entry.damage:
                made, key = entry.created_ns, bytes.fromhex(entry.key)
                was_read = entry.last_used_ns > made
                self.shows_use |= was_read and entry.uses_show
                self._programs[entry.program, entry.target] += _PACKED.pack(
                    made, was_read or not entry.uses_show, key, hash(entry.payload_sha256)
                )
            yield entry

    def largest(self) -> Iterator[tuple[str, str, list[_Trace]]]:
        """Each program and target with its traces in the order of making, that with the most first."""
        for (program, target), own in sorted(
            self._programs.items(), key=lambda item: (-len(item[1]), item[0])
        ):
            yield program, target, sorted(map(_Trace._make, _PACKED.iter_unpack(own)))


def advise(entries: Iterable[CacheEntry], fields: Fields) -> Iterator[Advice]:
    """Advice on the entries of a cache, for the program with the most entries first."""
    traces = Traces()
    for _ in traces.of(entries):
        pass
    yield from advise_on(traces, fields)


def advise_on(traces: Traces, fields: Fields) -> Iterator[Advice]:
    """Advice on entries of which traces were kept."""
    for number, (program, target, own) in enumerate(traces.largest()):
        if number < PROGRAMS_READ and len(own) > 1:
            yield from _twins(program, target, own, fields)
            yield from _restless(program, target, own, fields)
        yield from _unread(program, target, own, shows_use=traces.shows_use)


def looks_like(values: Sequence[str]) -> str:
    """The kind of values that never repeat, such as an address; empty if it is not a known one."""
    for name, pattern in _LOOKS:
        if values and all(re.search(pattern, value) for value in values):
            return name
    numbers = [re.findall(_NUMBER, value) for value in values]
    if numbers and all(numbers) and any(int(number) % 8 for of_one in numbers for number in of_one):
        return "a process number"  # multiples of 8 alone are rather the block sizes of a parameter sweep
    return ""


def _twins(program: str, target: str, own: Sequence[_Trace], fields: Fields) -> Iterator[Advice]:
    """Entries with the same bytes under different keys: the field that differs did not matter."""
    from gpucache.keys import difference

    same: dict[int, list[_Trace]] = defaultdict(list)
    for trace in own:
        same[trace.payload].append(trace)
    sets = sorted((twins for twins in same.values() if len(twins) > 1), key=len, reverse=True)
    for twins in sets[:TWINS_READ]:
        labels = _labels(difference(fields(twins[0].key), fields(twins[-1].key)))
        named = ", ".join(labels) or "nothing that can be read"
        text = (
            f"{len(twins)} entries have the same bytes; the difference of their keys did not matter: {named}"
        )
        keys = tuple(trace.key for trace in twins)
        yield Advice(AdviceKind.IDENTICAL, program, target, text, tuple(labels), keys)


def _restless(program: str, target: str, own: Sequence[_Trace], fields: Fields) -> Iterator[Advice]:
    """Fields that differ in each of the latest entries, so that no key comes back.

    Of these entries only the newest may have been hit, as a hit means that its key came back.
    """
    latest = own[-RESTLESS_STEPS - 1 :]
    if len(latest) <= RESTLESS_STEPS or any(trace.was_read for trace in latest[:-1]):
        return
    from gpucache.keys import difference

    steps = [difference(one, other) for one, other in pairwise([fields(trace.key) for trace in latest])]
    always = [
        label
        for label in _labels(steps[0])
        if all(label in _labels(step) for step in steps) and _is_told(label, _values(label, steps))
    ]
    if always:
        told = ", ".join(_described(label, _values(label, steps)) for label in always)
        keys = tuple(trace.key for trace in latest)
        text = f"its key changes with every build, by {told}"
        yield Advice(AdviceKind.RESTLESS, program, target, text, tuple(always), keys)


def _unread(program: str, target: str, own: Sequence[_Trace], *, shows_use: bool) -> Iterator[Advice]:
    """Entries that were not read since they were made, if others were: else their uses may leave no trace."""
    unread = [trace for trace in own if not trace.was_read]
    keys = tuple(trace.key for trace in unread)
    if len(own) >= GROWTH_ENTRIES and len(unread) == len(own):
        text = f"{len(own)} entries and none was ever hit: it grows without use"
        yield Advice(AdviceKind.GROWTH, program, target, text, (), keys)
    elif unread and shows_use:
        text = f"{len(unread)} of {len(own)} entries were not read since they were made"
        yield Advice(AdviceKind.UNREAD, program, target, text, (), keys)


def _labels(differences: "Iterable[Difference]") -> list[str]:
    return [item.label for item in differences if item.label not in _NOT_TOLD]


def _is_told(label: str, values: Sequence[str]) -> bool:
    """Whether values never repeat, and were not chosen by a person."""
    return len(set(values)) == len(values) and bool(label not in _CHOSEN or looks_like(_changing(values)))


def _values(label: str, steps: "Sequence[Sequence[Difference]]") -> list[str]:
    told = [item for step in steps for item in step if item.label == label]
    return [told[0].left or "", *(item.right or "" for item in told)]


def _described(label: str, values: Sequence[str]) -> str:
    """A field with the part of its value that changes, unless that is a digest, which people cannot read."""
    changing = _changing(values)
    if re.fullmatch(_DIGEST, values[-1]):
        return label
    look = looks_like(changing)
    return f"{label}, which looks like {look} ({changing[-1]})" if look else f"{label} ({changing[-1][:40]})"


def _changing(values: Sequence[str]) -> list[str]:
    """The words of each value that are not in all of them."""
    common = set(values[0].split()).intersection(*(value.split() for value in values[1:]))
    return [" ".join(word for word in value.split() if word not in common) or value for value in values]
