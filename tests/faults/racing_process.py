"""Programs that race on one root, each forked from this process or a thread of it.

    python racing_process.py processes|threads COUNT ROUNDS KEYS   programs that want the same keys at once
    python racing_process.py everybody FOLDER READS                readers, writers, evict, repair and damage

Programs compile with NVRTC, or with a stand-in for ``everybody``. Writes one JSON document.
"""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.answers.lookup import Built, Hit, Miss, Verdict
from gpucache.engine.evict import trim
from gpucache.engine.lookup import build, get_or_build
from gpucache.engine.stores import Stores
from gpucache.engine.verify import repaired, run_verify
from gpucache.store.directory import DirectoryStore
from tests.engine.conftest import Compiler, make_ready
from tests.faults.conftest import own
from tests.faults.forking import forked


def source(key: int) -> str:
    return f'extern "C" __global__ void show(int *out) {{ *out = {key}; }}'


def want(keys: Sequence[int], begin: Callable[[], object], log: int) -> None:
    """Get programs after the start signal; writes a line for each."""
    from gpucache.cuda import compile_program, flush

    begin()
    for key in keys:
        code = compile_program(source(key), target="compute_90", name=f"race-{key}").code
        os.write(log, f"{key} {f'{key};'.encode() in code}\n".encode())
    flush()  # a forked child ends at once


def watch_compiler(log: int) -> None:
    """Write a line for each call of NVRTC."""
    from cuda.bindings import nvrtc

    compile_ = nvrtc.nvrtcCompileProgram

    def watched(*arguments: object) -> object:
        os.write(log, b"compiled\n")
        return compile_(*arguments)

    nvrtc.nvrtcCompileProgram = watched


def race(how: str, orders: Sequence[Sequence[int]], log: int) -> None:
    """All begin together, as processes or as threads; raises RuntimeError if a process fails."""
    watch_compiler(log)
    if how == "threads":
        barrier = threading.Barrier(len(orders))
        threads = [threading.Thread(target=want, args=(order, barrier.wait, log)) for order in orders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    gate, opened = os.pipe()
    children = [forked(want, order, lambda: os.read(gate, 1), log) for order in orders]
    os.write(opened, bytes(len(orders)))
    if sum(os.waitpid(child, 0)[1] for child in children):  # waits for all of them
        raise RuntimeError("a process failed")


def one_round(how: str, count: int, keys: int, chance: random.Random) -> dict[str, int]:
    """The number of compiles, and of programs that came back with the right result."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUCACHE_DIR"] = f"{folder}/root"
        log = os.open(f"{folder}/log", os.O_CREAT | os.O_APPEND | os.O_RDWR)
        orders = [chance.sample(range(keys), keys) for _ in range(count)]
        failed = os.waitpid(forked(race, how, orders, log), 0)[1]  # a process with nothing in memory
        lines = Path(f"{folder}/log").read_text(encoding="ascii").splitlines()
        os.close(log)
    right = sum(line.endswith("True") for line in lines)
    return {"asked": lines.count("compiled"), "right": right, "failed": failed}


PREPARED = [make_ready(options=(f"-DKEY={number}",)) for number in range(8)]
COMPILERS = [Compiler(f"of {number}" * 1000) for number in range(8)]


def read(root: Path, seed: int, enough: int, report: int) -> None:
    """A program that gets one kernel after the other; the errors of any."""
    chance, store, problems, built = random.Random(seed), DirectoryStore(root, writable=True), set(), 0
    for _ in range(enough):
        number = chance.randrange(len(PREPARED))
        outcome = get_or_build(Stores(user=store), PREPARED[number], COMPILERS[number])
        payload = outcome.payload if isinstance(outcome, Hit) else outcome.artifact.payload
        if payload != COMPILERS[number].payload:
            problems.add("other bytes than were compiled")
        if isinstance(outcome, Built):
            built += 1
            if outcome.key is None:
                problems.add(f"not kept: {outcome.note}")
    os.write(report, json.dumps([built, sorted(problems)]).encode() + b"\n")


def for_ever(root: Path, seed: int, act: Callable[[DirectoryStore, random.Random], object]) -> None:
    chance, store = random.Random(seed), DirectoryStore(root, writable=True)
    while True:
        act(store, chance)


def publish(store: DirectoryStore, chance: random.Random) -> None:
    number = chance.randrange(len(PREPARED))
    build(
        Stores(user=store), PREPARED[number], COMPILERS[number], Miss(Verdict.NEVER_BUILT, "a test"), wait_s=0
    )


def evict(store: DirectoryStore, chance: random.Random) -> None:
    trim(own(store), chance.randrange(80_000), time.time_ns())


def repair(store: DirectoryStore, chance: random.Random) -> None:
    cache = own(store)
    repaired(cache, list(run_verify(cache, list(cache.scan()))))


def damage(store: DirectoryStore, chance: random.Random) -> None:
    """Write into one entry, or cut it, as a failing disk would; seldom enough that most reads hit."""
    time.sleep(chance.random() / 100)
    paths = sorted(store.root.glob("v1/entries/*/*.gpc"))
    with suppress(OSError):
        fd = os.open(chance.choice(paths or [store.root]), os.O_WRONLY)
        try:
            size = os.fstat(fd).st_size
            if chance.random() < 0.5:
                os.pwrite(fd, b"\x5a", chance.randrange(size or 1))
            else:
                os.ftruncate(fd, chance.randrange(size or 1))
        finally:
            os.close(fd)


def everybody(folder: Path, enough: int) -> dict[str, object]:
    """Readers next to writers, evict, repair and damage, until each reader has read enough."""
    root = folder / "root"
    reading, report = os.pipe()
    others = [publish, publish, publish, publish, evict, repair, damage]
    children = [forked(for_ever, root, seed, act) for seed, act in enumerate(others)]
    readers = [forked(read, root, seed, enough, report) for seed in range(6)]
    failed = sum([os.waitpid(child, 0)[1] != 0 for child in readers])
    for child in children:
        os.kill(child, signal.SIGKILL)
        failed += not os.WIFSIGNALED(os.waitpid(child, 0)[1])
    os.close(report)
    with os.fdopen(reading, encoding="ascii") as lines:
        told = [json.loads(line) for line in lines]
    problems = [problem for _, each in told for problem in each]
    return {
        "reads": enough * len(readers),
        "built": sum(built for built, _ in told),
        "problems": problems + failed * ["a process failed"],
        "quarantined": len(list(root.glob("v1/quarantine/*"))),
    }


def main() -> None:
    if sys.argv[1] == "everybody":
        json.dump(everybody(Path(sys.argv[2]), int(sys.argv[3])), sys.stdout)
        return
    how, count, rounds, keys = sys.argv[1], *map(int, sys.argv[2:])
    chance = random.Random(1)
    json.dump([one_round(how, count, keys, chance) for _ in range(rounds)], sys.stdout)


if __name__ == "__main__":
    main()
