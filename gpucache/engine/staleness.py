"""Which entries no program reads again, or only until it is updated, as far as facts show that. Pure.

There are three signs of a stale entry. Its device is here with another driver or toolchain. Its only reader,
such as the one version of Python that its directory names, is not on this machine. Or another version of its
producer came later, and no entry of the older one was used since. None of them is a proof, as another virtual
environment or container may share the cache: so any use of the same toolchain within 30 days overrides them.

An entry is superseded by a newer one of the same program, target and variant, unless it was used since that
was made, or within an hour before: a program may build both. If another toolchain made the newer one, which
may be another environment's, or if its source is no file, so that it may be another program of that name, 30
days must have passed as well.

Days without any use of the cache do not count for a toolchain: its environments may all have been at rest.
In a cache where uses leave no trace, or none did yet, nothing is stale or superseded, nor by other toolchains
what one made of which no use left a trace: its programs may have the cache where it cannot be written.
"""

import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import Stale
from gpucache.answers.verify import Checked
from gpucache.model import Toolchain
from gpucache.units import format_age

Ask = Callable[[Iterable[CacheEntry]], Iterable[Toolchain]]
"""Finds the toolchains that can show some entries to be stale."""
UNUSED_NS = 30 * 86_400 * 10**9
"""The time without a use after which an environment that is not here counts as gone."""
_TOGETHER_NS = 3600 * 10**9
"""Entries that were used within so long may be parts of one start; of our own, a use within a minute after
another is not recorded."""
_MADE = struct.Struct(">8sIqq")
"""A place's digest, the number of an origin, when its newest entry there was made, and its newest of those
that are older than 30 days; 0 for none."""


class Origin(NamedTuple):
    """The producer and the reader of entries, which become unusable together."""

    producer: str
    gone: str
    toolchain: tuple[tuple[str, str], ...]
    toolchain_identity: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.producer.rpartition(" ")[0]

    @property
    def compiler(self) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in self.toolchain if pair[0] not in self.toolchain_identity)


class _Uses:
    """When the entries of one origin were made and used, and how much an eviction by rules may remove."""

    def __init__(self, sample: CacheEntry) -> None:
        self.sample = sample
        self.first_ns, self.last_ns = sample.created_ns, sample.last_used_ns
        self.shown = False
        self.entries = 0
        self.size_bytes = 0

    def include(self, other: "_Uses") -> None:
        self.first_ns = min(self.first_ns, other.first_ns)
        self.last_ns = max(self.last_ns, other.last_ns)
        self.shown |= other.shown
        self.entries += other.entries
        self.size_bytes += other.size_bytes


def origin(entry: CacheEntry) -> Origin:
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
        self._versions = array("q")
        self.used_ns = 0
        """The last use of any entry; 0 if no entry shows a use since it was made."""

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
            if entry.last_used_ns > entry.created_ns and entry.uses_show:
                uses.shown = True
                self.used_ns = max(self.used_ns, entry.last_used_ns)
            if not (entry.stays or entry.indivisible):
                uses.entries += 1
                uses.size_bytes += entry.size_bytes
            yield entry

    def versions_of(
        self, checked: Iterable[tuple[CacheEntry, Checked]]
    ) -> Iterator[tuple[CacheEntry, Checked]]:
        """Passes checked entries through and counts them; keeps 24 bytes of each that has versions."""
        results: deque[Checked] = deque()

        def entries() -> Iterator[CacheEntry]:
            for entry, result in checked:
                results.append(result)
                yield entry

        for entry in self.of(entries()):
            if _has_versions(entry):
                build = hash((entry.program, entry.target, entry.artifact_kind, entry.variant))
                since_ns = max(entry.created_ns, entry.last_used_ns) + _TOGETHER_NS
                self._versions.extend((build, entry.created_ns, since_ns))
            yield entry, results.popleft()

    def include(self, other: "Origins") -> None:
        """Add the entries that a copy of this process counted."""
        self.seen += other.seen
        self.used_ns = max(self.used_ns, other.used_ns)
        self._versions += other._versions
        for one, uses in other.found.items():
            self.found.setdefault(one, _Uses(uses.sample)).include(uses)

    def may_supersede(self) -> bool:
        """Whether any entry of ``versions_of`` was made long after the last use of a version of it."""
        if not self.used_ns:
            return False
        several = {one for one, two in pairwise(sorted(self._versions[::3])) if one == two}
        made: dict[int, int] = {}
        since: dict[int, int] = {}
        for at, build in enumerate(self._versions[::3]):
            if build in several:
                made_ns, since_ns = self._versions[3 * at + 1 : 3 * at + 3]
                made[build] = max(made_ns, made.get(build, made_ns))
                since[build] = min(since_ns, since.get(build, since_ns))
        return any(since[build] < made[build] for build in several)

    def samples(self) -> Iterator[CacheEntry]:
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
        if not self.used_ns:
            return {}
        here, idle_ns, shown = tuple(toolchains), max(now_ns - self.used_ns, 0), self._shown()
        used: dict[tuple[tuple[str, str], ...], int] = {}
        for one, uses in self.found.items():
            used[one.compiler] = max(uses.last_ns, used.get(one.compiler, uses.last_ns))
        found = {}
        for one, uses in self.found.items():
            last_ns = max(uses.last_ns, used[one.compiler]) if one.toolchain else uses.last_ns
            unused_ns = now_ns - last_ns
            if one.toolchain_identity and one.compiler not in shown:
                continue
            if unused_ns - (idle_ns if one.toolchain_identity else 0) > UNUSED_NS:
                found[one] = self._why(one, uses, here, f"unused for {format_age(unused_ns)}")
        return {one: why for one, why in found.items() if why}

    def without_reader(self) -> Iterator[str]:
        """A sentence for each reader that is not here, if no use is recorded, so that nothing is stale."""
        for gone in dict.fromkeys(one.gone for one in self.found if one.gone and not self.used_ns):
            yield (
                f"{gone}, which alone reads some of its entries, is not on this machine; no use is recorded "
                "here, so evict --stale leaves them: name their keys"
            )

    def superseded(self, entries: Iterable[CacheEntry], now_ns: int) -> Callable[[CacheEntry], bool]:
        """A test whether an entry was superseded by another one of ``entries``, which are read once.

        Sources in two places are two programs even with one name, as every project has its ``main.cl``; an
        entry of an unknown place is compared with all. Some 200 bytes are kept for each program, target,
        variant and place, and none of an entry that nothing can supersede.
        """
        made: dict[bytes, bytes] = {}
        origins: dict[Origin, int] = {}
        for entry in filter(_has_versions, self.of(entries)):
            number = origins.setdefault(origin(entry), len(origins))
            made_ns = entry.created_ns if entry.created_ns <= now_ns else 0  # a clock went back
            settled = made_ns if made_ns <= now_ns - UNUSED_NS else 0
            build = _digest(entry)
            made[build] = _with(made.get(build, b""), (_place(entry), number, made_ns, settled))
        shown = self._shown()

        def judge(entry: CacheEntry) -> bool:
            if not self.used_ns or not _has_versions(entry):
                return False
            since_ns = max(entry.created_ns, entry.last_used_ns) + _TOGETHER_NS
            place, number = _place(entry), origins.get(origin(entry))
            for where, maker, newest, settled in _MADE.iter_unpack(made.get(_digest(entry), b"")):
                if maker == number and place == where != _NOWHERE:
                    found = newest > since_ns
                else:
                    found = since_ns < settled <= self.used_ns - UNUSED_NS and origin(entry).compiler in shown
                if found and (place == where or _NOWHERE in (place, where)):
                    return True
            return False

        return judge

    def _shown(self) -> set[tuple[tuple[str, str], ...]]:
        return {one.compiler for one, uses in self.found.items() if uses.shown}

    def summary(self, stale: Mapping[Origin, str]) -> Stale:
        uses = [self.found[one] for one in stale if self.found[one].entries]
        why = dict.fromkeys(stale[one] for one in stale if self.found[one].entries)
        return Stale(sum(one.entries for one in uses), sum(one.size_bytes for one in uses), tuple(why))

    def _why(self, one: Origin, uses: _Uses, toolchains: tuple[Toolchain, ...], unused: str) -> str:
        if one.toolchain_identity:
            changed = is_stale(uses.sample, toolchains)
            return f"this environment has another driver or compiler, {unused}" if changed else ""
        if one.gone:
            return f"{one.gone} alone reads it and is not on this machine, {unused}"
        later = self._later(one, uses)
        return f"of {one.producer}, {unused}, and {later} came since" if later else ""

    def _later(self, one: Origin, uses: _Uses) -> str:
        """A newer version of the program that made some entries, if it came after their last use."""
        if not one.producer:
            return ""
        same = [(other, its) for other, its in self.found.items() if other.kind == one.kind]
        others = [(its.first_ns, other.producer) for other, its in same if other.producer != one.producer]
        last_ns = max(its.last_ns for other, its in same if other.producer == one.producer)
        return max((two for two in others if two[0] > max(last_ns, uses.last_ns)), default=(0, ""))[1]


def is_stale(entry: CacheEntry, toolchains: Iterable[Toolchain]) -> bool:
    """Whether an entry's platform and device are here, but with another driver or toolchain."""
    identity = {pair for pair in entry.toolchain if pair[0] in entry.toolchain_identity}
    same = [toolchain for toolchain in toolchains if identity and identity <= set(toolchain.fields)]
    return bool(same) and not any(set(entry.toolchain) <= set(toolchain.fields) for toolchain in same)


_NOWHERE = bytes(8)


def _with(made: bytes, own: tuple[bytes, int, int, int]) -> bytes:
    """Records of ``_MADE`` with another one, joined to the record of its place and origin."""
    place, number, newest, settled = own
    others = []
    for other in _MADE.iter_unpack(made):
        if other[:2] == (place, number):
            newest, settled = max(newest, other[2]), max(settled, other[3])
        else:
            others.append(_MADE.pack(*other))
    return b"".join([*others, _MADE.pack(place, number, newest, settled)])


def _has_versions(entry: CacheEntry) -> bool:
    return bool(entry.program) and not (entry.damage or entry.unique)


def _place(entry: CacheEntry) -> bytes:
    from hashlib import blake2b

    place = entry.place.encode("utf-8", "surrogatepass")
    return blake2b(place, digest_size=8).digest() if place else _NOWHERE


def _digest(entry: CacheEntry) -> bytes:
    from hashlib import blake2b

    program, target, kind, variant = entry.program, entry.target, entry.artifact_kind, entry.variant
    framed = f"{len(program)} {len(target)} {len(kind)} {program}{target}{kind}{variant}"
    return blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=16).digest()
