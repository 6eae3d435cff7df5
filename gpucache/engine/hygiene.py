"""What the keys of a cache say about its users: fields that do not matter, keys that never repeat.

Owns the judgement over many entries of one program; reads the key fields of a few of them. Must not
know how an advice is shown.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from gpucache.keys import Difference, difference
from gpucache.model import KeyField
from gpucache.outcomes import Advice, AdviceKind, CacheEntry

Fields = Callable[[CacheEntry], Sequence[KeyField]]
"""Reads the key fields of an entry; empty where they cannot be read."""

RESTLESS_ENTRIES = 3
"""How many keys in a row must differ in one field before that field is said to change at every run."""
GROWTH_ENTRIES = 8
"""How many entries of a program, none ever hit, are growth and not a beginning."""
_NOT_TOLD = frozenset({"resolution of includes"})
_LOOKS = (
    ("an address", re.compile(r"0x[0-9a-fA-F]{6,}")),
    ("a date or time", re.compile(r"\b(19|20)\d\d-?[01]\d-?[0-3]\d\b|\b\d\d:\d\d:\d\d\b|\b1[5-9]\d{8}\b")),
    ("a path below a temporary folder", re.compile(r"(/var)?/tmp/|/T/tmp|/run/user/|\\Temp\\")),
    ("a path below a home folder", re.compile(r"/home/[^/\s]+|/root/|/Users/[^/\s]+|C:\\Users\\")),
    ("a random name", re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")),
    ("a process number", re.compile(r"(?:=|\b)\d{2,7}\b")),
)


def advise(entries: Iterable[CacheEntry], fields: Fields) -> Iterator[Advice]:
    """What is worth saying about the entries of a cache, program by program."""
    programs: dict[tuple[str, str], list[CacheEntry]] = defaultdict(list)
    for entry in entries:
        if entry.program and not entry.damage:
            programs[entry.program, entry.target].append(entry)
    for (program, target), own in sorted(programs.items()):
        own.sort(key=lambda entry: entry.created_ns)
        yield from _twins(program, target, own, fields)
        restless = _restless(program, target, own, fields)
        if restless is not None:
            yield restless
        yield from _unread(program, target, own)


def looks_like(values: Iterable[str]) -> str:
    """What a value that never repeats looks like; empty where it looks like nothing known."""
    texts = list(values)
    for name, pattern in _LOOKS:
        if texts and all(pattern.search(text) for text in texts):
            return name
    return ""


def _twins(program: str, target: str, own: Sequence[CacheEntry], fields: Fields) -> Iterator[Advice]:
    """Entries with the same bytes under different keys: a field that did not matter."""
    same: dict[str, list[CacheEntry]] = defaultdict(list)
    for entry in own:
        if entry.payload_sha256:
            same[entry.payload_sha256].append(entry)
    for twins in same.values():
        if len(twins) < 2:
            continue
        labels = _labels(difference(fields(twins[0]), fields(twins[-1])))
        named = ", ".join(labels) or "nothing that can be read"
        yield Advice(
            AdviceKind.IDENTICAL,
            program,
            target,
            f"{len(twins)} entries hold the same bytes; what tells their keys apart did not matter: {named}",
            tuple(labels),
            tuple(entry.key for entry in twins),
        )


def _restless(program: str, target: str, own: Sequence[CacheEntry], fields: Fields) -> Advice | None:
    """One field that is different in each of the latest entries."""
    latest = own[-RESTLESS_ENTRIES - 1 :]
    if len(latest) <= RESTLESS_ENTRIES:
        return None
    read = [fields(entry) for entry in latest]
    steps = [difference(one, other) for one, other in pairwise(read)]
    always = [
        label
        for label in _labels(steps[0])
        if all(label in _labels(step) for step in steps) and _never_repeats(label, steps)
    ]
    if not always:
        return None
    described = ", ".join(_described(label, steps) for label in always)
    return Advice(
        AdviceKind.RESTLESS,
        program,
        target,
        f"its key is another one at every build, by {described}",
        tuple(always),
        tuple(entry.key for entry in latest),
    )


def _unread(program: str, target: str, own: Sequence[CacheEntry]) -> Iterator[Advice]:
    """Entries that nobody read since they were made."""
    unread = [entry for entry in own if entry.last_used_ns <= entry.created_ns]
    if len(own) >= GROWTH_ENTRIES and len(unread) == len(own):
        text = f"{len(own)} entries and not one was ever hit: it grows and helps nobody"
        yield Advice(AdviceKind.GROWTH, program, target, text, (), tuple(entry.key for entry in own))
    elif unread:
        text = f"{len(unread)} of {len(own)} entries were not read since they were made"
        yield Advice(AdviceKind.UNREAD, program, target, text, (), tuple(entry.key for entry in unread))


def _labels(differences: Iterable[Difference]) -> list[str]:
    return [item.label for item in differences if item.label not in _NOT_TOLD]


def _never_repeats(label: str, steps: Sequence[Sequence[Difference]]) -> bool:
    values = _values(label, steps)
    return len(set(values)) == len(values)


def _values(label: str, steps: Sequence[Sequence[Difference]]) -> list[str]:
    told = [item for step in steps for item in step if item.label == label]
    return [told[0].left or "", *(item.right or "" for item in told)]


def _described(label: str, steps: Sequence[Sequence[Difference]]) -> str:
    values = _values(label, steps)
    changing = _changing_parts(values)
    look = looks_like(changing)
    return f"{label}, which looks like {look} ({changing[-1]})" if look else f"{label} ({changing[-1][:40]})"


def _changing_parts(values: Sequence[str]) -> list[str]:
    """The words of each value that are not in all of them."""
    common = set(values[0].split()).intersection(*(value.split() for value in values[1:]))
    return [" ".join(word for word in value.split() if word not in common) or value for value in values]
