"""Misses that a program is not kept waiting for: noted when they happen, built by ``warm --misses``.

A compiler that builds late (PoCL) compiles every kernel when it is asked for binaries: seconds where the
program took milliseconds, and in the caller's process a crash takes the program with it. So the
library asks it for none. Owns what is noted of such a miss, and what ``warm`` makes of a note. Must not
know how a program is built.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpucache.backends.interface import Backend
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import journal, why_not_kept
from gpucache.engine.prepare import Prepared
from gpucache.engine.warm import WarmItem
from gpucache.model import BuildRequest, Device
from gpucache.outcomes import Hit, Miss, Noted, Plain, Verdict, WarmOutcome, WarmResult
from gpucache.store.interface import EntryStore, MissedRequest

Variables = tuple[tuple[str, str], ...]
LATE = "this compiler is slow to give a binary to keep, so the program was built as without a cache"


def leave(
    layers: Layers, prepared: Prepared, miss: Miss, compile_ns: int, environment: Variables = ()
) -> Plain:
    """Write down a miss whose program was built without us, and note what a late compiler's wanted.

    ``environment`` are the variables that reach the compiler.
    """
    noted = Noted.NONE
    why = LATE if prepared.compilation.late else ""
    if layers.target is None or miss.verdict is Verdict.UNCACHEABLE:
        why = why_not_kept(layers, miss)
    elif prepared.compilation.late:
        rejected = miss.verdict is Verdict.REJECTED
        noted = layers.target.note_missed(_missed(layers, prepared, environment, rejected=rejected))
        if not noted.is_kept:
            why = (
                f"{LATE}, and what it wanted could not be noted for 'gpucache warm --misses': "
                f"{layers.target.root} cannot be written, or the request is larger than 8 MiB"
            )
    journal(layers, prepared, miss, noted=noted.is_kept)
    return Plain(miss, compile_ns, noted, why)


def note_lacking(layers: Layers, prepared: Prepared, found: Hit, environment: Variables = ()) -> Noted:
    """Note a request whose entry is not compiled for all of its local sizes."""
    if layers.target is None or not prepared.lacking_sizes(found.head):
        return Noted.NONE
    return layers.target.note_missed(_missed(layers, prepared, environment))


def discard(layers: Layers, found: Hit, why: str) -> None:
    """Take an entry that its driver rejects out of the way, where this process does not replace it."""
    store = layers.target
    scanned = store.look_at(found.key) if store is not None else None
    if store is not None and scanned is not None:
        store.quarantine(scanned, why)


def plan_missed(
    missed: Sequence[MissedRequest],
    devices: Sequence[Device],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
    local_sizes: Sequence[tuple[int, ...]] = (),
) -> list[WarmItem]:
    """Every noted request as it would be asked for now, for some more local sizes; shown by its key."""
    return [_item(one, devices, backends, environ, tuple(local_sizes)) for one in missed]


def forget_built(store: EntryStore, missed: Sequence[MissedRequest], outcomes: Sequence[WarmOutcome]) -> None:
    """Remove the notes of what is in the cache now."""
    there = {
        (outcome.program, outcome.target, outcome.variant)
        for outcome in outcomes
        if outcome.result in (WarmResult.BUILT, WarmResult.HIT)
    }
    for one in missed:
        if (one.request.program.name, str(one.request.target), one.key.short) in there:
            store.forget_missed(one.key)


def _missed(
    layers: Layers, prepared: Prepared, environment: Variables, *, rejected: bool = False
) -> MissedRequest:
    request = _elsewhere(prepared)
    return MissedRequest(prepared.key, time.time_ns(), layers.command, request, environment, rejected)


def _elsewhere(prepared: Prepared) -> BuildRequest:
    """A request that a worker, which runs in an empty directory, can build with the same headers."""
    request = prepared.request
    here = request.cwd.rstrip(os.sep) + os.sep
    if request.searches_cwd and any(file.startswith(here) for file in prepared.closure.files):
        request = replace(request, options=(f"-I{request.cwd}", *request.options))
    return replace(request, searches_cwd=False)


def _item(
    one: MissedRequest,
    devices: Sequence[Device],
    backends: Mapping[str, Backend],
    environ: Mapping[str, str],
    local_sizes: tuple[tuple[int, ...], ...],
) -> WarmItem:
    request, variant = one.request, one.key.short
    name, target = request.program.name, str(request.target)
    device = next((row for row in devices if row.target == request.target and row.toolchain), None)
    if device is None or device.toolchain is None:
        return WarmItem(name, target, variant, skipped="its target is not here")
    now = backends[request.target.backend].environment(device.toolchain, environ)
    if now != one.environment:
        changed = ", ".join(sorted({label for label, _ in set(now) ^ set(one.environment)}))
        return WarmItem(
            name,
            target,
            variant,
            skipped=f"it was wanted with another {changed}; set it as the program has it",
        )
    request = replace(request, local_sizes=tuple(dict.fromkeys((*request.local_sizes, *local_sizes))))
    return WarmItem(name, target, variant, request, device.toolchain)
