"""Whether a cuda.core cache would answer a key; more than a key it cannot be asked. Must not know files."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpucache.caches.cuda_core import layout
from gpucache.caches.interface import Wanted
from gpucache.errors import UsageError
from gpucache.outcomes import CacheEntry, Checked, Reach, Served, Verdict

FIELDS: Mapping[str, str] = {
    "key": "hex digits of what cuda.core.utils.make_program_cache_key returns, or of an entry's name on disk",
}
_OPAQUE = (
    "its entries say nothing of what they were made from, so only key=HEX can be asked for; "
    "gpucache.cuda.compile_program keeps the inputs and explains its misses"
)
_ABSENT = (
    "no entry has this key: it was never built here, or was evicted, of which cuda.core keeps no record; "
    "gpucache.cuda.compile_program says which input changed"
)
Find = Callable[[str], Sequence[CacheEntry]]
Check = Callable[[CacheEntry], Checked]


def explain(wanted: Wanted, find: Find, check: Check) -> Iterator[Reach]:
    """One answer for each key, or that keys are opaque; raises UsageError."""
    unknown = [name for name in wanted if name not in FIELDS]
    if unknown:
        raise UsageError(f"cuda.core's cache has no field {unknown[0]!r}; ask for {', '.join(FIELDS)}")
    keys = [_key(value) for value in wanted.get("key", ())]
    if not keys:
        yield Reach(layout.NAME, "a program", Verdict.OPAQUE_KEY, _OPAQUE)
    for key in keys:
        yield _answer(key, find, check)


def _key(value: bytes) -> str:
    key = value.decode("ascii", "replace").strip().lower()
    if not layout.is_key(key):
        raise UsageError("a key is 4 to 64 hex digits; give key=HEX")
    return key


def _answer(key: str, find: Find, check: Check) -> Reach:
    words = f"key {key[:12]}"
    found = list(find(key))
    if not found and len(key) == 64:
        found = list(find(layout.file_key(bytes.fromhex(key))))
    if not found:
        return Reach(layout.NAME, words, Verdict.NEVER_BUILT, _ABSENT)
    if len(found) > 1:
        raise UsageError(f"{len(found)} entries have a key that begins with {key}; give more digits of one")
    entry = found[0]
    wrong = next((finding for finding in check(entry).findings if finding.kind.wrong), None)
    if wrong is not None:
        return Reach(layout.NAME, words, Verdict.CORRUPT, f"{wrong.kind}: {wrong.detail}", nearest=entry.key)
    detail = "cuda.core would serve it, without checking it"
    return Reach(layout.NAME, words, Served.HIT, detail, nearest=entry.key)
