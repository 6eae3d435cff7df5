"""A hit: the first sound entry of a request in any store, also where another process is compiling it.

Compiles nothing, and explains nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gpucache.answers.lookup import Hit
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores

WAIT_S = 300.0


def find(stores: Stores, prepared: Prepared, *, whole: bool = False) -> Hit | NoEntry:
    """A sound entry for a request. Compiles nothing, and explains nothing.

    With ``whole`` the entry has to be compiled for all local sizes of the request. That is for filling the
    cache: a program can use an incomplete entry.
    """
    found = _find_here(stores, prepared, whole=whole)
    if stores.remote is None or isinstance(found, Hit):
        return found
    from gpucache.engine.elsewhere import ask

    return ask(stores, [prepared], [found], whole=whole)[0]


def find_all(stores: Stores, prepared: Sequence[Prepared], *, whole: bool = False) -> list[Hit | NoEntry]:
    """The results of ``find`` for some requests; a store on another machine is asked for all at once."""
    found = [_find_here(stores, one, whole=whole) for one in prepared]
    if stores.remote is None or all(isinstance(one, Hit) for one in found):
        return found
    from gpucache.engine.elsewhere import ask

    return ask(stores, prepared, found, whole=whole)


def _find_here(stores: Stores, prepared: Prepared, *, whole: bool) -> Hit | NoEntry:
    if stores.disabled or prepared.refusal is not None:
        return NoEntry()
    found = stores.find(prepared.keys())
    if whole and isinstance(found, Hit) and prepared.lacking_sizes(found.head):
        return NoEntry(incomplete=found)
    return found


@contextmanager
def alone(
    stores: Stores, prepared: Prepared, *, wait_s: float = WAIT_S, useless: Hit | None = None
) -> Iterator[Hit | None]:
    """Hold a key's lock while it is compiled and published; yields what was published meanwhile, if it was.

    If another process is compiling for the key, this one waits for it once. If that process then published
    nothing, all that waited compile at the same time and do not queue again. ``useless`` is an entry that was
    found and has to be replaced.
    """
    store = stores.target
    if store is None or prepared.refusal is not None:  # nothing will be published
        yield None
        return
    with store.single_flight(prepared.key, 0) as holding:
        if holding:
            yield _published_meanwhile(stores, prepared, useless)
            return
    with store.single_flight(prepared.key, wait_s):
        pass  # its holder has ended
    yield _published_meanwhile(stores, prepared, useless)


def _published_meanwhile(stores: Stores, prepared: Prepared, useless: Hit | None) -> Hit | None:
    """The entry that another process published while it had the lock; None if there is none."""
    if useless is not None:
        stores = stores._replace(memory=None)
    found = _find_here(stores, prepared, whole=True)
    replaced = isinstance(found, Hit) and (useless is None or found.head != useless.head)
    return found if isinstance(found, Hit) and replaced else None


def build_log(stores: Stores, hit: Hit) -> str:
    """The compiler's log of the build of a hit; empty if its entry is gone."""
    if hit.log:
        return hit.log
    for store in stores.on_disk():
        detail = store.detail(hit.key)
        if detail is not None:
            return detail.build_log
    return ""
