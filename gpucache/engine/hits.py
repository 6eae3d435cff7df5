"""A hit: the first sound entry of a request in any store, also where another process is compiling it.

Compiles nothing, and explains nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from gpucache.answers.lookup import Hit
from gpucache.engine.prepare import Prepared, spelled_headers
from gpucache.engine.stores import NoEntry, Stores

WAIT_S = 300.0
_FOLDER = "<include directory>"
_OPTIONS = r"(?m)^(Options used by backend compiler: ).*$"
_NO_PATH = r"(?<![\w./\"<-])"
_ABOVE = r"(?=[^\s:]*\.\./)"
"""Follows an include directory if the rest of the path leads upwards, and so maybe out of it."""


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
    """The results of ``find`` for several requests, with one query to the store on another machine."""
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


def kept_log(prepared: Prepared, log: str) -> str:
    """A compiler's log as an entry keeps it: without the directories in which the program was built."""
    found = [*spelled_headers(prepared)]
    paths = {folder + rest: rest for *folders, rest in found for folder in folders}
    if paths:
        written = _NO_PATH + _any(paths)
        if len({place for _, place, _ in found}) == 1:  # another header can only have been found through it
            written += rf"|{_NO_PATH}{_any({place for *places, _ in found for place in places})}{_ABOVE}"
        log = re.sub(written, lambda match: f"{_FOLDER}/{paths.get(match[0], '')}", log)
    return re.sub(_OPTIONS, r"\1<build options>", log)


def build_log(stores: Stores, prepared: Prepared, hit: Hit, options: str) -> str:
    """The log that the compiler would have given this request of a hit; empty if its entry is gone.

    ``options`` are the build options as the program gives them, which Intel's compiler repeats.
    """
    details = (store.detail(hit.key) for store in stores.on_disk())
    log = hit.log or next((detail.build_log for detail in details if detail is not None), "")
    log = re.sub(_OPTIONS, lambda found: f"{found[1]}{options}", log)
    if _FOLDER not in log:
        return log
    paths = {rest: spelled + rest for spelled, _, rest in reversed([*spelled_headers(prepared)])}
    first = next((spelled for spelled, *_ in spelled_headers(prepared)), "")
    return re.sub(f"{_FOLDER}/{_any(paths)}?", lambda match: paths.get(match[1], first), log)


def _any(paths: Iterable[str]) -> str:
    return f"({'|'.join(map(re.escape, sorted(paths, key=len, reverse=True)))})"
