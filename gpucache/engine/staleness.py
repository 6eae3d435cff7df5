"""Which entries no program of this machine reads again, as far as that can be known from facts. Pure.

There are three signs. The entry's device is on this machine with another driver or toolchain. Its only
reader, such as the one version of Python that its directory names, is not on this machine. Or another version
of its producer came later, and no entry of the older one was used since. The last two are not proofs, as an
owner can be installed in an unknown place, or run in a container: so a use within a week overrides them. An
entry is called stale only if one of these signs shows that it is out of reach.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Stale
from gpucache.model import Toolchain
from gpucache.units import format_age

Ask = Callable[[Iterable[CacheEntry]], Iterable[Toolchain]]
"""Finds the toolchains that can show some entries to be stale."""
WEEK_NS = 7 * 86_400 * 10**9


class Origin(NamedTuple):
    """The facts shared by entries that are out of reach together: their producer and their reader."""

    producer: str
    gone: str
    toolchain: tuple[tuple[str, str], ...]
    toolchain_identity: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The producer without its version."""
        return self.producer.rpartition(" ")[0]


class _Uses:
    """When the entries of one origin were made and used, and how much an eviction by rules may remove."""

    def __init__(self, sample: CacheEntry) -> None:
        self.sample = sample
        self.first_ns, self.last_ns = sample.created_ns, sample.last_used_ns
        self.entries = 0
        self.size_bytes = 0


def origin(entry: CacheEntry) -> Origin:
    """The facts that decide whether an entry is stale."""
    return Origin(entry.producer, entry.gone, entry.toolchain, entry.toolchain_identity)


def _is_alike(entry: CacheEntry, other: CacheEntry) -> bool:
    """Whether two entries visibly have one origin; equal tuples count only if they are one object."""
    return (
        entry.toolchain is other.toolchain
        and entry.toolchain_identity is other.toolchain_identity
        and entry.producer == other.producer
        and entry.gone == other.gone
    )


class Origins:
    """The origins of a cache's entries, with a few numbers of each, so that any number of entries fits."""

    def __init__(self) -> None:
        self.found: dict[Origin, _Uses] = {}
        self.seen = 0

    def of(self, entries: Iterable[CacheEntry]) -> Iterator[CacheEntry]:
        """Passes entries through, one by one, and counts them."""
        uses = None
        for entry in entries:
            self.seen += 1
            # Neighbours mostly share a toolchain, the same tuple, which is then not hashed again.
            if uses is None or not _is_alike(entry, uses.sample):
                uses = self.found.setdefault(origin(entry), _Uses(entry))
            if entry.created_ns < uses.first_ns:
                uses.first_ns = entry.created_ns
            if entry.last_used_ns > uses.last_ns:
                uses.last_ns = entry.last_used_ns
            if not (entry.stays or entry.indivisible):
                uses.entries += 1
                uses.size_bytes += entry.size_bytes
            yield entry

    def samples(self) -> Iterator[CacheEntry]:
        """An entry of each origin."""
        return (uses.sample for uses in self.found.values())

    def rebuilt(self) -> list[CacheEntry]:
        """An entry of each origin that needs a query of the drivers: several toolchains built for one device,
        of which at most one is still on this machine."""
        devices: dict[frozenset[tuple[str, str]], list[CacheEntry]] = {}
        for one, uses in self.found.items():
            identity = frozenset(pair for pair in one.toolchain if pair[0] in one.toolchain_identity)
            if identity:
                devices.setdefault(identity, []).append(uses.sample)
        return [entry for entries in devices.values() if len(entries) > 1 for entry in entries]

    def stale(self, toolchains: Iterable[Toolchain], now_ns: int) -> Mapping[Origin, str]:
        """The origins that no program on this machine reads again, each with the reason, a clause."""
        here = tuple(toolchains)
        told = ((one, self._why(one, uses, here, now_ns)) for one, uses in self.found.items())
        return {one: why for one, why in told if why}

    def summary(self, stale: Mapping[Origin, str]) -> Stale:
        """The number and size of the removable entries among them."""
        uses = [self.found[one] for one in stale if self.found[one].entries]
        why = dict.fromkeys(stale[one] for one in stale if self.found[one].entries)
        return Stale(sum(one.entries for one in uses), sum(one.size_bytes for one in uses), tuple(why))

    def _why(self, one: Origin, uses: _Uses, toolchains: tuple[Toolchain, ...], now_ns: int) -> str:
        if one.toolchain_identity:
            changed = is_stale(uses.sample, toolchains)
            return "its device has another driver or toolchain now" if changed else ""
        if uses.last_ns >= now_ns - WEEK_NS:
            return ""
        unused = f"unused for {format_age(now_ns - uses.last_ns)}"
        if one.gone:
            return f"{one.gone} alone reads it and is not on this machine, {unused}"
        later = self._later(one, uses)
        return f"of {one.producer}, {unused}, and {later} came since" if later else ""

    def _later(self, one: Origin, uses: _Uses) -> str:
        """Another version of the producer of some entries that came after their last use."""
        if not one.producer:
            return ""
        same = [(other, its) for other, its in self.found.items() if other.kind == one.kind]
        others = [(its.first_ns, other.producer) for other, its in same if other.producer != one.producer]
        last_ns = max(its.last_ns for other, its in same if other.producer == one.producer)
        return max((two for two in others if two[0] > max(last_ns, uses.last_ns)), default=(0, ""))[1]


def is_stale(entry: CacheEntry, toolchains: Iterable[Toolchain]) -> bool:
    """Whether an entry's platform and device are on this machine, but with another driver or toolchain."""
    identity = {pair for pair in entry.toolchain if pair[0] in entry.toolchain_identity}
    same = [toolchain for toolchain in toolchains if identity and identity <= set(toolchain.fields)]
    return bool(same) and not any(set(entry.toolchain) <= set(toolchain.fields) for toolchain in same)
