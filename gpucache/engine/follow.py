"""The entries of caches as programs write them, in batches, for a push that goes on beside a job.

Owns the thread that watches. A batch is complete a second or two after its first entry; the last one has
everything that was written before the end was asked for. Must not know where entries go.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpucache.answers.entries import CacheEntry
from gpucache.caches.interface import Cache
from gpucache.engine.inspect import watch
from gpucache.engine.selection import Selected
from gpucache.errors import GpucacheError

_BATCH_S = 2.0
_LOOK_S = 0.2
_Seen = tuple[str, str, str, int, int, bool]


class Following:
    """Watches caches from the beginning of the block until ``end``."""

    def __init__(
        self,
        caches: Sequence[Cache],
        ended: Callable[[], bool],
        beside: Callable[[Selected], Selected] = lambda selected: selected,
    ) -> None:
        """The caches may not exist yet; ``ended`` is asked several times a second. ``beside`` adds to the
        entries of caches what goes with them."""
        self._caches = caches
        self._ended = ended
        self._beside = beside
        self._written: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._seen: set[_Seen] = set()
        self._old: frozenset[_Seen] = frozenset()

    def start(self) -> None:
        """Begin; raises UsageError if the library is missing, or the system watches no more directories."""
        threading.Thread(target=self._watch, daemon=True).start()
        self._started.wait()
        self._raise()

    def _watch(self) -> None:
        try:
            for one in watch(lambda: self._caches, lambda _: self._started.set(), self._ended):
                self._written.put(one)
        except BaseException as error:
            self._error = error
        self._started.set()
        self._written.put(None)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def unseen(self, *, damaged: bool = False) -> Selected:
        """Every entry that was not returned before, but no damaged one, as it may be incomplete."""
        found = self._beside([(cache, cache.scan()) for cache in self._caches])
        return [(cache, self._new(cache, entries, damaged=damaged)) for cache, entries in found]

    def pass_over(self) -> None:
        """Skip all entries that the caches have now."""
        for _, entries in self.unseen(damaged=True):
            for _ in entries:
                pass
        self._old = frozenset(self._seen)

    def forget(self) -> None:
        """Return every entry again: entries returned so far may not have arrived."""
        self._seen = {*self._old}

    def try_again(self, cache: str, key: str) -> None:
        """Return an entry again with the next batch, as it did not arrive."""
        self._seen = {one for one in self._seen if (one[0], one[2]) != (cache, key)} | self._old

    def batches(self) -> Iterator[Selected]:
        """Batches of the entries written from the start on; the last one has damaged entries, too."""
        while not self._ended():
            self._raise()
            try:
                self._written.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            until = time.monotonic() + _BATCH_S
            while not self._ended() and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK_S))
            while not self._written.empty():
                self._written.get()
            yield self.unseen()
        yield self.unseen(damaged=True)

    def _new(self, cache: Cache, entries: Iterable[CacheEntry], *, damaged: bool) -> Iterator[CacheEntry]:
        root = cache.location().root
        found = iter(entries)
        while True:
            try:
                one = next(found)
            except (StopIteration, GpucacheError):  # a part that cannot be read hides nothing else
                return
            sound = one.damage is None
            same = (cache.name, root, one.key, one.size_bytes, one.created_ns, sound)
            if (sound or damaged) and same not in self._seen:
                self._seen.add(same)
                yield one
