"""Entries that a store on another machine has: asked for together, and kept here.

Imported by the first miss where such a store is configured. Owns the requests, the time for a reply, and its
use. Must not know how the store is reached or which keys it trusts.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

from gpucache.answers.lookup import Hit
from gpucache.engine.prepare import Prepared, named
from gpucache.engine.stores import NoEntry, Remote, Stores, not_kept, record_build
from gpucache.errors import CacheUnusableError
from gpucache.model import CacheKey, Entry, EntryDetail
from gpucache.store.interface import REMOTE


def ask(
    stores: Stores, prepared: Sequence[Prepared], met: Sequence[Hit | NoEntry], *, whole: bool = False
) -> list[Hit | NoEntry]:
    """The results of a lookup, with the remote store's entries in place of misses.

    ``whole`` is as for ``gpucache.engine.hits.find``.
    """
    if stores.remote is None or stores.disabled:
        return list(met)
    wanted = [
        tuple(one.keys()) if isinstance(part, NoEntry) and _may_be_elsewhere(one, part) else ()
        for one, part in zip(prepared, met, strict=True)
    ]
    if not any(wanted):
        return list(met)
    remote = stores.remote()
    answers = list(met)
    found = remote.find(wanted)
    for place, (one, fetched) in enumerate(zip(prepared, found, strict=True)):
        if fetched is not None:
            entry, file = fetched
            kept = _keep(stores, remote, entry, file, one)
            if stores.memory is not None and (kept or not entry.head.has_log):
                stores.memory.publish(entry._replace(detail=EntryDetail(())))
            hit = Hit(entry.key, entry.head, entry.payload, REMOTE, entry.detail.build_log)
            lacks = whole and one.lacking_sizes(entry.head)
            answers[place] = NoEntry(incomplete=hit) if lacks else hit
    if stores.trim is not None and any(found):
        with suppress(OSError, CacheUnusableError):
            stores.trim()
    return answers


def fetch(stores: Stores, key: CacheKey) -> Entry | None:
    if stores.remote is None or stores.disabled:
        return None
    remote = stores.remote()
    for fetched in remote.find([(key,)]):
        if fetched is not None:
            _keep(stores, remote, *fetched)
            return fetched[0]
    return None


def _may_be_elsewhere(prepared: Prepared, part: NoEntry) -> bool:
    return prepared.refusal is None and part.incomplete is None


def _keep(
    stores: Stores, remote: Remote, entry: Entry, file: bytes, prepared: Prepared | None = None
) -> bool:
    store = stores.target
    if store is None:
        return False
    try:
        # As it can be fetched again, it need not survive a power cut.
        if store.put_file(entry, file, time.time_ns()) and prepared is not None:
            record_build(store, named(prepared.request.program), entry, what="pulled")
    except (OSError, CacheUnusableError) as error:
        remote.warn(f"entries of GPUCACHE_REMOTE are fetched at each start: {not_kept(store.root, error)}")
        return False
    return True
