"""Everything that is wrong with a cache file, or worth knowing of it, each with what comes of it.

Must not change anything.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from gpucache.caches import files, places
from gpucache.caches.files import Identity
from gpucache.caches.futhark import header, names
from gpucache.caches.futhark.contents import consequence
from gpucache.caches.futhark.entries import NAME, Seen
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, Checked, Finding, FindingKind
from gpucache.payload import PayloadInfo, PayloadKind, describe
from gpucache.units import format_age, format_size

LARGEST_BYTES = 256 * 1024 * 1024
"""Of larger files only the header is checked."""
MINIMUM_AGE_NS = 3600 * 10**9
"""A file that is being written is no leftover; one that nobody changed for an hour is."""
MOVE = "name another file with --cache-file"
Problem = tuple[FindingKind, str]
Clock = Callable[[], int]


def check(folder: Folder, entry: CacheEntry, seen: Seen) -> Checked:
    """A file checked whole: header, size, payload, owner and mode, and whether its source is there."""
    try:
        with files.opened(folder, seen.name) as (_fd, status):
            problems = list(_problems(folder, seen.name, status))
    except FileNotFoundError:
        return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)
    except FormatError as error:
        problems = [(FindingKind.UNTRUSTED, f"{error}, though Futhark does; {MOVE}")]
    except OSError as error:
        return Checked(entry.key, notes=(f"it cannot be read ({error.strerror})",), counts=False)
    findings = tuple(_finding(entry, problem) for problem in problems)
    if seen.identity.size_bytes <= LARGEST_BYTES:
        return Checked(entry.key, findings)
    note = f"it is larger than {format_size(LARGEST_BYTES)}: what it holds was not looked at"
    return Checked(entry.key, findings, (note,))


def leftovers(folder: Folder, clock: Clock = time.time_ns) -> Iterator[Checked]:
    """Files that a writer of ours did not finish; raises OSError where the folder does not read."""
    for found in folder.entries():
        if names.is_partial(found.name):
            with suppress(OSError):
                status = folder.lstat(found.name)
                age_ns = clock() - status.st_ctime_ns
                if age_ns > MINIMUM_AGE_NS:
                    yield _leftover(folder, found.name, status, age_ns)


def payload_problem(payload: PayloadInfo) -> Problem | None:
    """What is wrong with a payload, and what becomes of the program that is given it."""
    becomes = consequence(payload)
    if payload.problem:
        return FindingKind.CORRUPT, f"its {payload.kind} payload is broken: {payload.problem}; {becomes}"
    if payload.kind is PayloadKind.UNKNOWN:
        return FindingKind.MISLABELLED, f"its payload is nothing that gpucache knows; {becomes}"
    return None


def unrepaired(checked: Checked, kinds: Collection[FindingKind], why: str) -> Checked:
    """A check whose findings of some kinds stay, each saying why."""
    findings = (
        replace(one, detail=f"{one.detail}; {why}") if one.kind in kinds else one for one in checked.findings
    )
    return replace(checked, findings=tuple(findings))


def _problems(folder: Folder, name: str, status: os.stat_result) -> Iterator[Problem]:
    if distrust := places.distrust(status, move=MOVE):
        yield FindingKind.UNTRUSTED, distrust
    start = files.read_part(folder, name, 0, header.HEADER_BYTES)
    damage = header.damage(start, status.st_size)
    if damage is not None:
        yield damage.kind, damage.detail
    elif status.st_size <= LARGEST_BYTES:
        payload = files.read_part(folder, name, header.HEADER_BYTES, status.st_size)
        problem = payload_problem(describe(payload))
        if problem is not None:
            yield problem
    yield from _orphaned(folder, name)


def _orphaned(folder: Folder, name: str) -> Iterator[Problem]:
    source = names.source_of(name)
    if source is None:
        return
    try:
        folder.lstat(source)
    except FileNotFoundError:
        yield (
            FindingKind.ORPHAN,
            f"{source}, which 'futhark bench' or 'futhark test' would have left it beside, is gone; "
            f"'gpucache evict --program {source}' removes it",
        )


def _leftover(folder: Folder, name: str, status: os.stat_result, age_ns: int) -> Checked:
    detail = f"left by a writer that was stopped, {format_size(status.st_size)}, {format_age(age_ns)} old"
    finding = Finding(NAME, name, FindingKind.LEFTOVER, detail)
    return Checked(str(folder.path / name), (finding,), counts=False)


def _finding(entry: CacheEntry, problem: Problem) -> Finding:
    kind, detail = problem
    return Finding(entry.cache, entry.key, kind, detail, entry.program, entry.target)


def unchanged(folder: Folder, seen: Seen) -> bool:
    """Whether a file is still the one that the scan saw; raises OSError."""
    return Identity.of(folder.lstat(seen.name)) == seen.identity
