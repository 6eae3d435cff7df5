"""The facts of a machine that decide which entries its programs hit, and how an entry's facts differ.

Owns the comparison. An entry fits unless a fact of it is known of the machine and is another there. Must not
probe: whoever puts parts together says what is known.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpucache.answers.transfer import Mismatch
from gpucache.caches.portable import Fact
from gpucache.caches.registry import OWN
from gpucache.remote.records import Record


class Machine(NamedTuple):
    """What is known of a machine."""

    known: Mapping[str, frozenset[str]] = {}
    """By label of ``Fact``: the values that programs of the machine have."""
    of_system: Mapping[tuple[str, str], frozenset[str]] = {}
    """The same by system and label, where a system has its own, such as its version."""
    toolchains: Sequence[tuple[tuple[str, str], ...]] = ()
    """The fields of the compilers of the machine, for our own entries: one of them has to be the entry's."""

    def differences(self, record: Record) -> tuple[Mismatch, ...]:
        """The facts that are others on this machine; empty if the entry fits as far as is known."""
        if record.system == OWN:
            return self._own(record)
        found = []
        for label, there in record.facts:
            here = self._here(record.system, label)
            if here is not None and not any(_fits(label, there, one) for one in here):
                found.append(Mismatch(label, there, ", ".join(sorted(here)) or "none"))
        return tuple(found)

    def unknown(self, record: Record) -> tuple[str, ...]:
        """The facts of an entry that are not known of this machine."""
        if record.system == OWN:
            return () if self.toolchains else ("toolchain",)
        return tuple(label for label, _ in record.facts if self._here(record.system, label) is None)

    def _here(self, system: str, label: str) -> frozenset[str] | None:
        return self.of_system.get((system, label), self.known.get(label))

    def _own(self, record: Record) -> tuple[Mismatch, ...]:
        """The fewest fields in which a compiler here differs; none if there is no compiler of the kind."""
        wanted = dict(record.facts)
        alike = [dict(one) for one in self.toolchains if dict(one).keys() == wanted.keys()]
        ways = [
            tuple(
                Mismatch(label, value, one[label]) for label, value in wanted.items() if one[label] != value
            )
            for one in alike
        ]
        return min(ways, key=len, default=())


def _fits(label: str, there: str, here: str) -> bool:
    """Whether a value of an entry serves a machine with another."""
    if there == here:
        return True
    # gfx90a:sramecc+ runs as gfx90a, and an owner may leave the features out.
    return (
        label == Fact.ARCHITECTURE
        and there.partition(":")[0] == here.partition(":")[0]
        and ":" in here + there
    )
