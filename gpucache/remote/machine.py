"""The facts of a machine that decide which entries its programs hit, and how an entry's facts differ.

Owns the comparison. An entry fits unless one of its facts is known of the machine and differs there; of
several values that an entry has for one fact, one that fits suffices. Must not probe: the caller passes
what is known.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpucache.answers.transfer import Mismatch
from gpucache.caches.portable import Fact
from gpucache.caches.registry import OWN
from gpucache.remote.records import Record

_NUMBER = re.compile(r"(?:sm|compute)_(\d+)([af]?)")
_AS_IN_NAMES = re.compile("[^A-Za-z0-9-]")
"""The characters that owners replace by ``_`` where a value is part of a file's name."""
_GRAPHICS = re.compile(r"(sm|compute|gfx)[_\d]")


class Machine(NamedTuple):
    """The known facts of a machine."""

    known: Mapping[str, frozenset[str]] = {}
    """By label of ``Fact``: the values that programs of the machine have."""
    toolchains: Sequence[Mapping[str, str]] = ()
    """The fields of the compilers of the machine, for our own entries: one of them has to be the entry's."""

    elsewhere: bool = False
    """Whether it is a different machine, so that this machine's caches say nothing about it."""
    untold: tuple[str, ...] = ()
    """The facts that also decide about hits of a cache and that no entry names, as ``Moving.untold``."""

    def with_cache(self, facts: Callable[[], Mapping[str, frozenset[str]]]) -> "Machine":
        """This machine with the known facts of one cache's programs."""
        return self if self.elsewhere else self._replace(known={**self.known, **facts()})

    def differences(self, record: Record) -> tuple[Mismatch, ...]:
        """The facts that differ on this machine; empty if the entry fits as far as is known."""
        if record.system == OWN:
            return self._own(record)
        found = []
        for label, there in _by_label(record).items():
            here = self._here(label, there)
            if here and not any(_fits(label, one, other) for one in there for other in here):
                found.append(Mismatch(label, ", ".join(there), ", ".join(sorted(here))))
        return tuple(found)

    def unknown(self, record: Record) -> tuple[str, ...]:
        """The facts that decide about an entry as well and are not known, of this machine or of the entry."""
        if record.system == OWN:
            return () if self._alike(record) else ("toolchain",)
        facts = _by_label(record)
        hidden = (label for label in self.untold if label not in facts)
        return (*(label for label, there in facts.items() if not self._here(label, there)), *hidden)

    def _here(self, label: str, there: Sequence[str]) -> frozenset[str]:
        """The known values for a label; for an architecture, the values of its kind."""
        if label not in (Fact.ARCHITECTURE, Fact.PTX):
            return self.known.get(label, frozenset())
        kinds = {_kind(one) for one in there}
        return frozenset(one for one in self.known.get(Fact.ARCHITECTURE, ()) if _kind(one) in kinds)

    def _own(self, record: Record) -> tuple[Mismatch, ...]:
        """The differences to the most similar compiler of this kind here; empty if there is none."""
        ways = [
            tuple(Mismatch(label, value, one[label]) for label, value in record.facts if one[label] != value)
            for one in self._alike(record)
        ]
        return min(ways, key=len, default=())

    def _alike(self, record: Record) -> list[Mapping[str, str]]:
        labels = dict(record.facts).keys()
        return [one for one in self.toolchains if one.keys() == labels]


def backends_of(records: Iterable[Record]) -> Sequence[str] | None:
    """The backends whose devices show the facts of some records: CUDA alone, or None for all."""
    for record in records:
        asked = {value for label, value in record.facts if label in (Fact.ARCHITECTURE, Fact.PTX)}
        of_others = any(label in (Fact.DRIVER, Fact.CPU, Fact.FEATURE) for label, _ in record.facts)
        if of_others or any(_kind(one) != "cuda" for one in asked) or not record.target.startswith("cuda:"):
            return None
    return ("cuda",)


def _by_label(record: Record) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, value in record.facts:
        found.setdefault(label, []).append(value)
    return found


def _kind(architecture: str) -> str:
    """The namespace of an architecture's name: CUDA, AMD or, for all others, OpenCL."""
    match = _GRAPHICS.match(architecture)
    return "gfx" if match and match[1] == "gfx" else "cuda" if match else "opencl"


def _fits(label: str, there: str, here: str) -> bool:
    """Whether an entry with one value of a fact can be used where the fact has another value."""
    if there == here or there == _AS_IN_NAMES.sub("_", here):
        return True
    if label == Fact.PTX:
        old, new = _NUMBER.fullmatch(there), _NUMBER.fullmatch(here)
        return bool(old and new and not old[2] and int(old[1]) <= int(new[1]))
    # An owner may leave out features, as in gfx90a:sramecc+.
    apart = ":" in there + here
    return label == Fact.ARCHITECTURE and apart and there.partition(":")[0] == here.partition(":")[0]
