"""The outcome of each build in a process: counted, logged, and with GPUCACHE_LEARN built after its end."""

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Built, Hit, Miss, Noted, Plain, Verdict
from gpucache.engine.stores import Stores
from gpucache.library.process import INFO, WARNING, log, log_hit, say_once
from gpucache.library.rows import COUNTER

if TYPE_CHECKING:
    from gpucache.engine.prepare import Prepared

_LOW_PRIORITY = 10
_INTERPRETERS = ("python", "pypy")


class _Learner:
    """At the end of this process, starts ``gpucache warm --misses`` for each root where it noted a miss."""

    def __init__(self) -> None:
        self._registered = False
        self._roots: set[Path] = set()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._roots.clear)

    def add(self, root: Path) -> None:
        if not self._registered:
            self._registered = True
            atexit.register(self.start)
        self._roots.add(root)

    def start(self) -> None:
        # For an application that embeds Python this is the application itself, and would start it again.
        if not Path(sys.executable or "").name.lower().startswith(_INTERPRETERS):
            return
        import subprocess  # which takes longer to import than a hit

        # Run in a separate session, without our open files, so that nothing waits for it.
        environment = {name: value for name, value in os.environ.items() if name != "GPUCACHE_LEARN"}
        root_file = sys.modules.get("gpucache.store.root_file")
        if root_file is not None:
            root_file.write_all()  # whose directory goes with this process
        for root in tuple(self._roots):  # threads may go on adding
            place = root if root_file is None else root_file.path_of(root)
            options = ("--root", str(place), "--quiet", "warm", "--misses", "--jobs", "1")
            with suppress(Exception):  # if it cannot be started, a later process will try
                from gpucache.host.process_groups import yield_as_before

                child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "gpucache", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    cwd=os.sep,
                    start_new_session=True,
                )
                child.returncode = 0  # no code waits for it, and Popen should not warn of that
                if sys.platform != "win32":
                    os.setpriority(os.PRIO_PROCESS, child.pid, _LOW_PRIORITY)
                yield_as_before(child.pid)


_LEARNER = _Learner()


def learn(stores: Stores, noted: Noted) -> None:
    """If GPUCACHE_LEARN asks for it, build a request that was just noted after the end of this process."""
    if noted is Noted.NEW and stores.learn and stores.target is not None:
        _LEARNER.add(stores.target.root)


def tell_hit(stores: Stores, hit: Hit, name: str = "") -> None:
    """Count a hit, and log one line with the name that the program has."""
    COUNTER.count(stores, hit=True, saved_ns=hit.head.compile_ns)
    log_hit(name or hit.head.program, hit.head.target, hit.key.short, hit.store)


def count_miss(stores: Stores) -> None:
    """Count a miss that is logged once more is known."""
    COUNTER.count(stores, hit=False)


def log_miss(program: str, target: str, miss: Miss, compile_ns: int, note: str = "", then: str = "") -> None:
    told = program, target, miss.verdict.value, miss.detail, compile_ns // 1_000_000, note, then
    log(INFO, "miss %s for %s: %s: %s; compiled in %d ms%s%s", *told)


def tell(stores: Stores, prepared: "Prepared", outcome: Hit | Built | Plain) -> None:
    request = prepared.request
    if isinstance(outcome, Hit):
        tell_hit(stores, outcome, request.program.name)
        return
    count_miss(stores)
    from gpucache.engine.prepare import lacks_kernels

    if isinstance(outcome, Built) and lacks_kernels(prepared, outcome.artifact.payload):
        log(
            WARNING,
            "%s for %s compiles to no kernel; name the instances of a template with name_expressions=[...]",
            request.program.name,
            request.target,
        )
    miss: Miss = outcome.miss
    compile_ns = outcome.compile_ns if isinstance(outcome, Plain) else outcome.artifact.compile_ns
    noted = isinstance(outcome, Plain) and outcome.noted.is_kept
    failed = outcome.publish_failed if isinstance(outcome, Built) else outcome.noted is Noted.LOST
    # An entry that could not be read matters only if this build did not replace it.
    unread = miss.unread if isinstance(outcome, Plain) or outcome.key is None else ""
    warned = failed or miss.verdict is Verdict.UNCACHEABLE
    note = f" ({outcome.note})" if outcome.note and not (warned or outcome.told_by_miss) else ""
    is_told = miss.verdict is Verdict.POISONED  # the miss itself says what to do
    then = "; 'gpucache warm --misses' builds it for the next start" if noted and not is_told else ""
    log_miss(request.program.name, str(request.target), miss, compile_ns, note, then)
    if warned:
        say_once(f"programs are compiled uncached: {outcome.note}")
    elif unread:
        say_once(f"programs are compiled uncached: {unread}")
