"""A hit: the first sound entry of a request in any layer. Compiles nothing, and explains nothing."""

from gpucache.answers.lookup import Hit
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers, NoEntry


def find(layers: Layers, prepared: Prepared, *, whole: bool = False) -> Hit | NoEntry:
    """A sound entry for a request. Compiles nothing, and explains nothing.

    With ``whole`` the entry has to be compiled for all local sizes of the request. That is for filling the
    cache: a program can use an incomplete entry.
    """
    if layers.disabled or prepared.refusal is not None:
        return NoEntry()
    found = layers.find(prepared.keys())
    if whole and isinstance(found, Hit) and prepared.lacking_sizes(found.head):
        return NoEntry(incomplete=found)
    return found


def build_log(layers: Layers, hit: Hit) -> str:
    """What the compiler said when a hit was built; empty if its entry is gone."""
    for store in layers.on_disk():
        detail = store.detail(hit.key)
        if detail is not None:
            return detail.build_log
    return ""
