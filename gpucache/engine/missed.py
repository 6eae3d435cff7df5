"""Misses for which a program does not wait: they are noted, and ``warm --misses`` builds them later.

A compiler that builds late (PoCL) compiles every kernel when it has to return a binary. That takes seconds in
place of milliseconds, and a crash would end the calling program. So the caller requests no binary. Owns the
note of such a miss. Must not know how a program is built.
"""

import os
import time

from gpucache.answers.lookup import Hit, Miss, Noted, Plain, Verdict
from gpucache.engine.journal import note_miss
from gpucache.engine.lookup import why_not_kept
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers
from gpucache.model import BuildRequest
from gpucache.store.interface import MissedRequest

Variables = tuple[tuple[str, str], ...]
LATE = "this compiler is slow to give a binary to keep, so the program was built as without a cache"


def leave(
    layers: Layers, prepared: Prepared, miss: Miss, compile_ns: int, environment: Variables = ()
) -> Plain:
    """Write down a miss whose program was built without the cache; for a late compiler note its request.

    ``environment`` are the variables that reach the compiler.
    """
    noted, told = Noted.NONE, False
    why = LATE if prepared.compilation.late else ""
    if layers.target is None or miss.verdict is Verdict.UNCACHEABLE:
        why, told = why_not_kept(layers, miss)
    elif prepared.compilation.late:
        rejected = miss.verdict is Verdict.REJECTED
        noted = layers.target.note_missed(_missed(layers, prepared, environment, rejected=rejected))
        if not noted.is_kept:
            why = (
                f"{LATE}, and what it wanted could not be noted for 'gpucache warm --misses': "
                f"{layers.target.root} cannot be written, or the request is larger than 8 MiB"
            )
    note_miss(layers, prepared, miss, noted=noted.is_kept)
    return Plain(miss, compile_ns, noted, why, told)


def note_lacking(layers: Layers, prepared: Prepared, found: Hit | None, environment: Variables = ()) -> Noted:
    """Note a request for local sizes that its entry, or without one the next, is not compiled for."""
    sizes = prepared.compilation.inputs.local_sizes if found is None else prepared.lacking_sizes(found.head)
    if layers.target is None or not sizes:
        return Noted.NONE
    return layers.target.note_missed(_missed(layers, prepared, environment))


def discard(layers: Layers, found: Hit, why: str) -> None:
    """Quarantine an entry that its driver rejects and that this process does not replace."""
    store = layers.target
    scanned = store.look_at(found.key) if store is not None else None
    if store is not None and scanned is not None:
        store.quarantine(scanned, why)


def _missed(
    layers: Layers, prepared: Prepared, environment: Variables, *, rejected: bool = False
) -> MissedRequest:
    request = _elsewhere(prepared)
    return MissedRequest(prepared.key, time.time_ns(), layers.command, request, environment, rejected)


def _elsewhere(prepared: Prepared) -> BuildRequest:
    """The request changed so that a worker, which runs in an empty directory, finds the same headers."""
    request = prepared.request
    here = request.cwd.rstrip(os.sep) + os.sep
    if request.searches_cwd and any(file.startswith(here) for file in prepared.closure.files):
        request = request._replace(options=(f"-I{request.cwd}", *request.options))
    return request._replace(searches_cwd=False)
