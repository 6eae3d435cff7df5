"""Programs that no PoCL of this machine may find any more, as far as that can be told.

The version of LLVM is in the hash, and the name of the LLVM that made it in each program. Two PoCLs may
share a cache. So programs of an LLVM are called out of reach only if none of them was used since programs
of another LLVM appeared, nor for a week. A rebuild of PoCL with the same LLVM changes the hash as well, and
is seen by nothing on disk. Pure.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucache.caches.pocl.entries import NAME, llvm_of
from gpucache.outcomes import CacheEntry, Checked, Finding, FindingKind
from gpucache.units import format_instant, format_size

WEEK_NS = 7 * 86_400 * 10**9


@dataclass(slots=True)
class _Builder:
    llvm: str
    first_ns: int
    last_ns: int
    count: int = 0
    size_bytes: int = 0

    def add(self, entry: CacheEntry) -> None:
        self.first_ns = min(self.first_ns, entry.created_ns)
        self.last_ns = max(self.last_ns, entry.last_used_ns)
        self.count += 1
        self.size_bytes += entry.size_bytes


def out_of_reach(entries: Iterable[CacheEntry], root: str, now_ns: int) -> Iterator[Checked]:
    """A finding for each LLVM of which nothing was used since the newest appeared, nor for a week."""
    builders: dict[str, _Builder] = {}
    for entry in entries:
        llvm = llvm_of(entry)
        if llvm and not entry.damage:
            found = builders.setdefault(llvm, _Builder(llvm, entry.created_ns, entry.last_used_ns))
            found.add(entry)
    if not builders:
        return
    newest = max(builders.values(), key=lambda one: (one.first_ns, one.llvm))
    for builder in sorted(builders.values(), key=lambda one: one.llvm):
        if builder.last_ns < min(newest.first_ns, now_ns - WEEK_NS):
            yield _told(builder, newest, root)


def _told(old: _Builder, new: _Builder, root: str) -> Checked:
    detail = (
        f"programs of LLVM {old.llvm}, which a PoCL with another LLVM never finds: {old.count} "
        f"({format_size(old.size_bytes)}), last used {format_instant(old.last_ns)}, before those of LLVM "
        f"{new.llvm} came; run 'gpucache evict --cache {shlex.quote(f'{NAME}:{root}')} "
        f"--unlike LLVM={new.llvm}'"
    )
    finding = Finding(NAME, f"LLVM {old.llvm}", FindingKind.STALE, detail)
    return Checked(f"{root} (LLVM {old.llvm})", (finding,), counts=False)
