"""Push and pull in forked children that are killed, or that work at the same time, and the traces of each.

    python moving_process.py calls FOLDER EVERY [SYSTEM]...   killed before each EVERY-th call that writes
    python moving_process.py together FOLDER ENTRIES ROUNDS   pushes, pulls, merges and readers at once
    python moving_process.py contested FOLDER ENTRIES ROUNDS  pulls into caches that others change

Writes one JSON document: ``trials`` by operation, and ``problems``, a sentence each.
"""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from gpucache.answers.transfer import Pulled, PullResult, Pushed, PushResult
from gpucache.caches import restoring
from gpucache.caches.registry import OWN
from gpucache.errors import RemoteError
from gpucache.remote import catalogue, folder, push
from gpucache.remote.records import record_of
from gpucache.remote.signing import load_signing_key, make_pair
from tests.contracts.examples import EXAMPLES
from tests.faults.forking import forked
from tests.faults.tracing import WRITING, killed_before_call
from tests.remote.test_push_pull import Fleet

HOUR_NS = 3600 * 10**9
ENTRIES = 2


def _one_by_one(call: Callable[[Any], Any], items: Any, *_: object, **__: object) -> Iterator[Any]:
    return map(call, items)


def digests(cache: Any) -> dict[str, str]:
    """The entries of a cache by key, each as it would be sent."""
    return {entry.key: record_of(cache.pack(entry)).digest for entry in cache.scan()}


def files(place: Path) -> dict[str, int]:
    """The modes of everything below a place, by path."""
    return {str(path.relative_to(place)): path.lstat().st_mode for path in place.rglob("*")}


def wrong_entries(cache: Any, whole: dict[str, str], *, all_of_them: bool) -> Iterator[str]:
    """Findings of a reader of a cache other than whole entries, a sentence each."""
    found = {}
    for entry in cache.scan(beside=True):
        findings = cache.check(entry).findings
        yield from (f"{entry.key[:12]} is {one.kind}: {one.detail}" for one in findings if one.kind.wrong)
        if not findings:  # no program is served half of one that is an orphan
            found[entry.key] = record_of(cache.pack(entry)).digest
    yield from (f"{key[:12]} has other bytes" for key, digest in found.items() if whole.get(key) != digest)
    if all_of_them and found.keys() != whole.keys():
        yield f"{len(whole) - len(found)} entries are lost"


def wrong_outcomes(outcomes: Sequence[object], *fine: object) -> Iterator[str]:
    """The outcomes that are not among the expected ones."""
    for one in outcomes:
        if not isinstance(one, Pushed | Pulled) or one.result not in fine:
            yield f"told {one}"


def _pulled(fleet: Fleet, *caches: Any) -> list[object]:
    """The outcomes of a pull; none before anything was pushed."""
    try:
        return fleet.pull(*caches, trusted=fleet.trusted)
    except RemoteError as error:
        if "is not a store" not in str(error):
            raise
        return []


class Killed:
    """A push and a pull of one system's entries, each killed before one of its calls."""

    def __init__(self, place: Path, system: str) -> None:
        make_pair(place / "key")
        self._fleet = Fleet(place, load_signing_key(place / "key"))
        self._system = system
        there = self._fleet.make("there", system, ENTRIES)
        self._whole = digests(there)
        self._fleet.push(there, key=self._fleet.key)
        self._pull("model")
        (place / "store").rename(place / "full")
        self._model = files(place / "model")
        self._place = place

    def _pull(self, machine: str) -> list[object]:
        return _pulled(self._fleet, self._fleet.cache(machine, self._system))

    def _wrong(self, machine: str, *, all_of_them: bool) -> Iterator[str]:
        cache = self._fleet.cache(machine, self._system)
        return wrong_entries(cache, self._whole, all_of_them=all_of_them)

    def push(self, number: int) -> tuple[bool, list[str]]:
        """Kill a push; whether it made so many calls, and the errors."""
        for name in ("store", "early", "late"):
            shutil.rmtree(self._place / name, ignore_errors=True)
        there = self._fleet.cache("there", self._system)
        died = killed_before_call(partial(self._fleet.push, there, key=self._fleet.key), number, WRITING)
        problems = list(wrong_outcomes(self._pull("early"), PullResult.PULLED))
        problems += self._wrong("early", all_of_them=False)
        again = self._fleet.push(self._fleet.cache("there", self._system), key=self._fleet.key)
        problems += wrong_outcomes(again, PushResult.SENT, PushResult.PRESENT)
        problems += wrong_outcomes(self._pull("late"), PullResult.PULLED)
        problems += self._wrong("late", all_of_them=True)
        store = self._place / "store"
        for path in store.glob("tmp/*"):  # a process that starts an hour later
            os.utime(path, ns=(0, 0))
        list(self._fleet.store.create([("blobs/00/0", b"")]))
        (store / "blobs/00/0").unlink()
        objects_of = {
            path
            for path in files(store)
            if path.startswith(("blobs/", "entries/", "tmp/")) and (store / path).is_file()
        }
        full = self._place / "full"
        if objects_of != {
            path
            for path in files(full)
            if path.startswith(("blobs/", "entries/")) and (full / path).is_file()
        }:
            problems.append("the store has other objects than after an undisturbed push")
        return died, problems

    def pull(self, number: int) -> tuple[bool, list[str]]:
        """Kill a pull; whether it made so many calls, and the errors."""
        shutil.rmtree(self._place / "store", ignore_errors=True)
        (self._place / "store").symlink_to("full")
        shutil.rmtree(self._place / "here", ignore_errors=True)
        died = killed_before_call(partial(self._pull, "here"), number, WRITING)
        problems = list(self._wrong("here", all_of_them=False))
        problems += wrong_outcomes(self._pull("here"), PullResult.PULLED, PullResult.PRESENT)
        problems += self._wrong("here", all_of_them=True)
        here = files(self._place / "here")
        problems += (f"{path} stays" for path in here if restoring.STAGING in path)
        # Our own store keeps temporary files of killed writers for an hour, and its tag is not a part of it.
        differing = [
            path
            for path in {*here, *self._model}
            if (self._system != OWN or "/v1/entries/" in path) and here.get(path) != self._model.get(path)
        ]
        if differing:
            problems.append(f"the cache differs from an undisturbed one: {differing[:3]}")
        (self._place / "store").unlink()
        return died, problems


def calls(place: Path, every: int, systems: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Each operation of each system once for each of its writing calls, or for every n-th one."""
    # One thread makes all calls, so that they have an order.
    setattr(folder, "in_parallel", _one_by_one)  # noqa: B010
    trials: dict[str, int] = {}
    problems: list[str] = []
    for system in systems:
        (place / system).mkdir()
        killed = Killed(place / system, system)
        for name, operation in (("push", killed.push), ("pull", killed.pull)):
            for number in count(1, every):
                died, told = operation(number)
                problems += (f"{name} of {system}, killed before call {number}: {one}" for one in told)
                if not died:
                    break
                trials[f"{name} of {system}"] = trials.get(f"{name} of {system}", 0) + 1
        shutil.rmtree(place / system)
    return trials, problems


SYSTEMS = ("gpucache", "triton", "cupy")


def _made(fleet: Fleet, machine: str, numbers: range) -> list[Any]:
    """The caches of a machine with the entries of some numbers."""
    for system in SYSTEMS:
        for number in numbers:
            EXAMPLES[system].add(fleet.place / machine / system / EXAMPLES[system].place, number)
    return _caches(fleet, machine)


def _caches(fleet: Fleet, machine: str) -> list[Any]:
    return [fleet.cache(machine, system) for system in SYSTEMS]


def _push(fleet: Fleet, machine: str) -> Iterator[str]:
    outcomes = fleet.push(*_caches(fleet, machine), key=fleet.key)
    yield from wrong_outcomes(outcomes, PushResult.SENT, PushResult.PRESENT)


def _pull(fleet: Fleet, machine: str, done: Path) -> Iterator[str]:
    """Pull repeatedly until everything was pushed, and once more."""
    last = False
    while not last:
        last = done.exists()
        outcomes = _pulled(fleet, *_caches(fleet, machine))
        yield from wrong_outcomes(outcomes, PullResult.PULLED, PullResult.PRESENT)


def _merge(fleet: Fleet, done: Path) -> Iterator[str]:
    while not done.exists():
        catalogue.finish_catalogue(fleet.store)
    yield from ()


def _read(fleet: Fleet, machine: str, whole: dict[str, str], done: Path) -> Iterator[str]:
    while not done.exists():
        for cache in _caches(fleet, machine):
            for entry in cache.scan():
                checked = cache.check(entry)
                yield from (f"{entry.key[:12]} is {one.kind}: {one.detail}" for one in checked.findings)
                if checked.counts and record_of(cache.pack(entry)).digest != whole[entry.key]:
                    yield f"{entry.key[:12]} has other bytes"


def _told(work: Iterator[str], report: Path) -> None:
    report.write_text(json.dumps(list(work)))


def together(place: Path, entries: int, rounds: int) -> tuple[dict[str, int], list[str]]:
    """Two machines that push, two pulls into each of two others, one that merges, and a reader, at once."""
    setattr(catalogue, "_MANY", 2)  # noqa: B010
    setattr(push, "_AT_ONCE", 16)  # noqa: B010
    problems: list[str] = []
    for number in range(rounds):
        below = place / str(number)
        below.mkdir()
        make_pair(below / "key")
        fleet = Fleet(below, load_signing_key(below / "key"))
        whole = {
            key: digest
            for machine, numbers in (
                ("a", range(entries)),
                ("b", range(entries // 2, entries + entries // 2)),
            )
            for cache in _made(fleet, machine, numbers)
            for key, digest in digests(cache).items()
        }
        done = below / "done"
        pushes = [_push(fleet, machine) for machine in "ab"]
        rest = [
            *(_pull(fleet, machine, done) for machine in "xxyy"),
            _merge(fleet, done),
            _read(fleet, "x", whole, done),
        ]
        children = [
            forked(_told, work, below / f"report{count}") for count, work in enumerate((*pushes, *rest))
        ]
        status = [os.waitpid(child, 0)[1] for child in children[:2]]
        done.touch()
        status += [os.waitpid(child, 0)[1] for child in children[2:]]
        told = [one for path in below.glob("report*") for one in json.loads(path.read_text())]
        told += ["a process failed"] * sum(map(bool, status))
        for machine in "xy":
            found: dict[str, str] = {}
            for cache in _caches(fleet, machine):
                found |= digests(cache)
                told += wrong_entries(cache, whole, all_of_them=False)
            told += [f"{key[:12]} is lost" for key in whole.keys() - found.keys()]
            told += [f"{path} stays" for path in files(below / machine) if restoring.STAGING in path]
        problems += (f"round {number}: {one}" for one in told)
        shutil.rmtree(below)
    return {"entries": rounds * 3 * (entries + entries // 2)}, problems


def _disturb(fleet: Fleet, machine: str, seed: int, done: Path) -> Iterator[str]:
    """Remove, damage and repair entries until the pulls are done."""
    chance = random.Random(seed)
    while not done.exists():
        cache = chance.choice(_caches(fleet, machine))
        for entry in chance.sample(found := list(cache.scan()), len(found) // 4):
            what = chance.random()
            with suppress(FileNotFoundError):
                if what < 0.4:
                    cache.remove(entry, "a test")
                elif what < 0.7:
                    if entry.damage:  # of half an entry it would be a text, whose damage nothing shows
                        continue
                    path = EXAMPLES[cache.name].file_of(entry)
                    cut = path.with_name(f"cut-{seed}")
                    cut.write_bytes(path.read_bytes()[:-3])
                    cut.replace(path)
                else:
                    cache.repair(cache.check(entry), entry)
    yield from ()


def contested(place: Path, entries: int, rounds: int) -> tuple[dict[str, int], list[str]]:
    """Two pulls into caches whose entries are removed, damaged and repaired at the same time."""
    make_pair(place / "key")
    fleet = Fleet(place, load_signing_key(place / "key"))
    there = _made(fleet, "a", range(entries))
    whole = {key: digest for cache in there for key, digest in digests(cache).items()}
    done = place / "done"
    list(_push(fleet, "a"))

    def pull() -> Iterator[str]:
        for _ in range(rounds):
            outcomes = fleet.pull(*_caches(fleet, "x"), trusted=fleet.trusted)
            yield from wrong_outcomes(outcomes, PullResult.PULLED, PullResult.PRESENT, PullResult.REFUSED)

    work = [pull(), pull(), *(_disturb(fleet, "x", seed, done) for seed in range(2))]
    children = [forked(_told, one, place / f"report{count}") for count, one in enumerate(work)]
    status = [os.waitpid(child, 0)[1] for child in children[:2]]
    done.touch()
    status += [os.waitpid(child, 0)[1] for child in children[2:]]
    told = [one for path in place.glob("report*") for one in json.loads(path.read_text())]
    told += ["a process failed"] * sum(map(bool, status))
    for cache in _caches(fleet, "x"):  # a file cut during a removal is half an entry, like one being written
        for entry in cache.scan():
            if cache.check(entry).findings:
                cache.remove(entry, "a test")
    told += _pull(fleet, "x", done)
    found = {key: digest for cache in _caches(fleet, "x") for key, digest in digests(cache).items()}
    told += [f"{key[:12]} is lost or another" for key in whole if whole[key] != found.get(key)]
    return {"entries": 2 * rounds * len(whole)}, told


def main() -> None:
    place = Path(sys.argv[2])
    if sys.argv[1] == "calls":
        trials, problems = calls(place, int(sys.argv[3]), sys.argv[4:] or SYSTEMS)
    elif sys.argv[1] == "contested":
        trials, problems = contested(place, int(sys.argv[3]), int(sys.argv[4]))
    else:
        trials, problems = together(place, int(sys.argv[3]), int(sys.argv[4]))
    json.dump({"trials": trials, "problems": problems}, sys.stdout)


if __name__ == "__main__":
    main()
