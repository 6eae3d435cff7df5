"""Operations of a store in forked children that are killed, and the traces of each.

    python killed_process.py calls FOLDER EVERY         operations, killed before each EVERY-th system call
    python killed_process.py moments FOLDER KILLS SEED  writers on one root, killed at random moments

Writes one JSON document: ``trials`` by operation, and ``problems``, a sentence each.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from gpucache.answers.lookup import Miss
from gpucache.engine.evict import Limits, plan, run_evict, trim
from gpucache.engine.lookup import build, look_up
from gpucache.engine.stores import Stores
from gpucache.engine.verify import repaired, run_verify
from gpucache.keys import cache_key, digest
from gpucache.model import Entry, EntryDetail, EntryHead, KeyField
from gpucache.store.bounded_log import LOG_CAP
from gpucache.store.directory import DirectoryStore
from gpucache.store.history import FILE_CAP
from gpucache.store.interface import Absent, Event, Found, MissedRequest
from tests.engine.conftest import Compiler, make_ready
from tests.faults.conftest import own
from tests.faults.forking import forked
from tests.faults.tracing import killed_before_call
from tests.store.conftest import left

HOUR_NS = 3600 * 10**9
PREPARED = make_ready()
SEEDS = tuple("abc")


def build_entry(seed: str) -> Entry:
    """A sound entry, also for verify: its key is that of its key fields."""
    payload = f"payload of {seed}".encode()
    head = EntryHead("saxpy", "cuda:sm_90", "unknown", 10**18, 10**6, digest(payload))
    fields = (KeyField("seed", seed),)
    return Entry(cache_key(fields), head, EntryDetail(fields), payload)


@dataclass(frozen=True)
class Operation:
    """An operation to kill, its initial state, and the keys that may be without an entry after it."""

    run: Callable[[DirectoryStore], object]
    begin: Callable[[DirectoryStore], object] = lambda store: [
        store.publish(build_entry(seed)) for seed in SEEDS
    ]
    loses: str = ""
    """The seeds whose entries it may remove."""


def _damage(store: DirectoryStore) -> None:
    for seed in SEEDS:
        store.publish(build_entry(seed))
    path = store.root / "v1" / "entries" / build_entry("a").key.hex[:2] / f"{build_entry('a').key.hex}.gpc"
    path.write_bytes(path.read_bytes()[:-1])
    partial = store.root / "v1" / f"1-{16 * 'a'}-{64 * 'b'}.gpc"
    partial.write_bytes(b"half")


def _build(store: DirectoryStore) -> object:
    stores = Stores(user=store, trim=lambda: trim(own(store), 10_000, time.time_ns()))
    miss = look_up(stores, PREPARED)
    return build(stores, PREPARED, Compiler(), miss, wait_s=1) if isinstance(miss, Miss) else miss


def _repair(store: DirectoryStore) -> object:
    cache = own(store)
    return repaired(cache, list(run_verify(cache, list(cache.scan()))))


def _evict(store: DirectoryStore) -> object:
    cache = own(store)
    return list(run_evict(cache, plan(cache.entries(), Limits(everything=True), time.time_ns())))


def _fill_history(store: DirectoryStore) -> None:
    for seed in SEEDS:
        store.publish(build_entry(seed))
    place = store.root / "v1" / "programs"
    while not any(path.stat().st_size > FILE_CAP - 800 for path in place.glob("saxpy*.jsonl")):
        store.history.record("saxpy", Event(1, "built", "0" * 64, "cuda:sm_90", "x" * 500))


def _fill_journal(store: DirectoryStore) -> None:
    for seed in SEEDS:
        store.publish(build_entry(seed))
    store.journal({"a": 1})
    file = store.root / "v1" / "log.jsonl"
    file.write_bytes(file.read_bytes() * (LOG_CAP // file.stat().st_size))


def _note(store: DirectoryStore) -> object:
    missed = MissedRequest(PREPARED.key, 1, "a test", PREPARED.request)
    noted = store.missed.note(missed)
    store.missed.forget(PREPARED.key)
    return noted


OPERATIONS = {
    "the first publish, which makes the root": Operation(
        lambda store: store.publish(build_entry("a")), begin=lambda _: None, loses="abc"
    ),
    "a publish": Operation(lambda store: store.publish(build_entry("d"))),
    "a publish over an entry": Operation(lambda store: store.publish(build_entry("a"))),
    "a hit": Operation(lambda store: store.get(build_entry("a").key)),
    "a build with its lock, history, journal and trim": Operation(_build, loses="abc"),
    "a damaged entry that goes to quarantine": Operation(
        lambda store: store.get(build_entry("a").key), begin=_damage, loses="a"
    ),
    "verify --repair": Operation(_repair, begin=_damage, loses="a"),
    "evict --all": Operation(_evict, loses="abc"),
    "a history that is cut": Operation(
        lambda store: store.history.record("saxpy", Event(2, "built", "1" * 64, "cuda:sm_90", "y" * 500)),
        begin=_fill_history,
    ),
    "a journal that is cut": Operation(lambda store: store.journal({"b": "z" * 500}), begin=_fill_journal),
    "a missed request": Operation(_note),
    "a memo": Operation(lambda store: store.remember(64 * "a", b"what headers include")),
    "a sweep": Operation(lambda store: store.sweep(0), begin=_damage, loses="a"),
}


def problems_of(store: DirectoryStore, operation: Operation, *, damaged: bool) -> Iterator[str]:
    """The damage that a killed operation caused to others, a sentence each."""
    for seed in SEEDS:
        found, entry = store.get(build_entry(seed).key), build_entry(seed)
        if isinstance(found, Found):
            if found.payload != entry.payload:
                yield f"{seed} has other bytes"
        elif seed not in operation.loses or not (damaged or found == Absent()):
            yield f"{seed} is lost: {found}"
    for key in (PREPARED.key, *(build_entry(seed).key for seed in SEEDS)):
        with store.single_flight(key, 0) as held:
            if not held:
                yield f"the lock of {key} is held by nobody"
    cache = own(store)
    for scanned in cache.scan():
        yield from (f"verify finds {finding}" for finding in cache.check(scanned).findings)
    yield from _left(store)
    # Their results may lack unwritten lines; they raise nothing.
    _ = store.history.events("saxpy"), store.journal_tail(1000), store.missed.all(), store.history.programs()


def _left(store: DirectoryStore) -> Iterator[str]:
    """The traces of a killed operation after a later repair, a sentence each."""
    for leftover in list(store.leftovers(time.time_ns() + 2 * HOUR_NS)):
        if not store.remove_leftover(leftover):
            yield f"{leftover.path} stays: {leftover.detail}"
    yield from (f"{path} stays" for path in left(store.root))


def calls(folder: Path, every: int) -> tuple[dict[str, int], list[str]]:
    """Each operation once for each of its system calls, or for every n-th one."""
    trials: dict[str, int] = {}
    problems: list[str] = []
    for name, operation in OPERATIONS.items():
        template, root = folder / "template", folder / "root"
        operation.begin(DirectoryStore(template, writable=True))
        for number in count(1, every):
            if template.exists():
                shutil.copytree(template, root)
            store = DirectoryStore(root, writable=True)
            died = killed_before_call(partial(operation.run, store), number)
            told = [*problems_of(store, operation, damaged=operation.begin is _damage)]
            operation.run(store)  # the process that comes next is not kept from it
            for seed in SEEDS:
                store.publish(build_entry(seed))
            told += problems_of(store, replace(operation, loses=""), damaged=False)
            problems += [f"{name}, killed before call {number}: {problem}" for problem in told]
            shutil.rmtree(root)
            if not died:
                break
            trials[name] = trials.get(name, 0) + 1
        shutil.rmtree(template, ignore_errors=True)
    return trials, problems


KEPT = tuple(f"kept {number}" for number in range(4))
CHANGING = tuple(f"changing {number}" for number in range(12))


def write(root: Path, seed: int) -> None:
    chance, store = random.Random(seed), DirectoryStore(root, writable=True)
    changing = {build_entry(name).key: build_entry(name) for name in CHANGING}
    while True:
        entry, what = chance.choice([*changing.values()]), chance.random()
        if what < 0.5:
            store.publish(entry)
        elif what < 0.8:
            with store.single_flight(entry.key, 60) as held:
                if held and not isinstance(store.get(entry.key), Found):
                    store.publish(entry)
                    store.history.record("saxpy", Event(time.time_ns(), "built", entry.key.hex, "cuda:sm_90"))
                    store.journal({"key": entry.key.hex})
        elif what < 0.95:
            scanned = store.look_at(entry.key)
            if scanned is not None:
                store.remove(scanned, "a test")
        else:
            _repair(store)


def read(root: Path, report: int) -> None:
    """Read every entry until the report is wanted: the number of reads, and their errors."""
    store, reads, problems, ended = DirectoryStore(root, writable=False), 0, set(), []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    entries = [build_entry(name) for name in (*KEPT, *CHANGING)]
    while not ended:
        for name, entry in zip((*KEPT, *CHANGING), entries, strict=True):
            found = store.get(entry.key)
            reads += 1
            if found != Absent() and not (isinstance(found, Found) and found.payload == entry.payload):
                problems.add(f"{name} reads as {found}")
            if name in KEPT and found == Absent():
                problems.add(f"{name} is lost")
    os.write(report, json.dumps([reads, sorted(problems)]).encode())


def _free(store: DirectoryStore, name: str) -> bool:
    """Whether a lock becomes free after a while."""
    with store.single_flight(build_entry(name).key, 60) as held:
        return held


def moments(folder: Path, kills: int, seed: int) -> tuple[dict[str, int], list[str]]:
    """Writers killed at random moments while others write and read."""
    root, chance, problems = folder / "root", random.Random(seed), []
    store = DirectoryStore(root, writable=True)
    for name in KEPT:
        store.publish(build_entry(name))
    reading, report = os.pipe()
    readers = [forked(read, root, report) for _ in range(2)]
    writers = [forked(write, root, number) for number in range(4)]
    for number in range(kills):
        time.sleep(chance.expovariate(1 / 0.005))
        child = writers.pop(chance.randrange(len(writers)))
        os.kill(child, signal.SIGKILL)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            problems.append("a writer failed by itself")
        writers.append(forked(write, root, len(writers) + number))
        if number % 100 == 0 and not problems:
            problems += [f"the lock of {name} is never free" for name in CHANGING if not _free(store, name)]
    for child in writers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    reads = 0
    for child in readers:
        os.kill(child, signal.SIGTERM)
        if os.waitpid(child, 0)[1]:
            problems.append("a reader failed")
        count_, told = json.loads(os.read(reading, 1 << 16))
        reads, problems = reads + count_, [*problems, *told]
    halves = len(left(root))
    problems += problems_of(store, Operation(lambda _: None, loses="abc"), damaged=False)
    return {"kills": kills, "reads": reads, "left": halves}, problems


def main() -> None:
    folder = Path(sys.argv[2])
    if sys.argv[1] == "calls":
        trials, problems = calls(folder, every=int(sys.argv[3]))
    else:
        trials, problems = moments(folder, kills=int(sys.argv[3]), seed=int(sys.argv[4]))
    json.dump({"trials": trials, "problems": problems}, sys.stdout)


if __name__ == "__main__":
    main()
