"""The library's state in a process: settings and stores, the counter of hits and misses, and the log.

Owns the library's promise that a cache never makes a program fail. Must not import a GPU stack.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Built, Hit, Miss, Noted, Plain, Verdict
from gpucache.assembly import open_stores, opened, process_memory
from gpucache.engine.stores import Stores
from gpucache.errors import CacheMissError, GpucacheError
from gpucache.host import os_errors
from gpucache.host.environment import environment, is_true
from gpucache.library.rows import COUNTER
from gpucache.settings import ENVIRONMENT, Settings, file_defaults, read_settings, unknown_variables

if TYPE_CHECKING:
    from logging import Logger

    from gpucache.engine.prepare import Prepared

HOW_TO_WARM = "'gpucache warm --misses' builds it for the next start"
_LOW_PRIORITY = 10
_SENTENCES_KEPT = 64
_INFO, _WARNING = 20, 30
"""Levels of ``logging``, which a hit that logs nothing does not import."""
_INTERPRETERS = ("python", "pypy")
_NAMES = (*ENVIRONMENT, "HOME", "XDG_CACHE_HOME")


_last: "tuple[Mapping[str, str], Stores] | None" = None
_file: str | None = None
"""The file that has the cache of this process, by ``keep_in``."""


def stores() -> Stores:
    global _last
    now, last = environment(), _last
    if last is None or last[0] is not now:
        last = _last = now, _stores(tuple([(name, now[name]) for name in _NAMES if name in now]))
    return last[1]


def uncached(stores: Stores, program: str, error: Exception) -> None:
    """Log that a program is compiled without the cache; raises CacheMissError if a hit is required."""
    if stores.require:
        raise CacheMissError(
            f"{program} cannot be looked up, and GPUCACHE_REQUIRE is set: {Verdict.UNCACHEABLE}: {error}"
        ) from error
    why = os_errors.told(error).message if isinstance(error, OSError) else f"{program}: {error}"
    say_once(f"programs are compiled uncached: {why}")


def note(given: Stores | None, hits: int, misses: int, saved_ns: int) -> None:
    """Write the hits and misses of this process to the journal of a root that exists. Raises OSError."""
    found = given or stores()
    if found.target is not None and found.target.root.is_dir():  # counting alone makes no cache
        from gpucache.engine.stores import note_process

        note_process(found, hits, misses, saved_ns)


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


def log_hit(name: str, target: str, key: str, store: str) -> None:
    _log(_INFO, "hit %s for %s: %s in %s", name, target, key, store)


def count_miss(stores: Stores) -> None:
    """Count a miss that is logged once more is known."""
    COUNTER.count(stores, hit=False)


def log_miss(program: str, target: str, miss: Miss, compile_ns: int, note: str = "", then: str = "") -> None:
    told = program, target, miss.verdict.value, miss.detail, compile_ns // 1_000_000, note, then
    _log(_INFO, "miss %s for %s: %s: %s; compiled in %d ms%s%s", *told)


def tell(stores: Stores, prepared: "Prepared", outcome: Hit | Built | Plain) -> None:
    request = prepared.request
    if isinstance(outcome, Hit):
        tell_hit(stores, outcome, request.program.name)
        return
    count_miss(stores)
    from gpucache.engine.prepare import lacks_kernels

    if isinstance(outcome, Built) and lacks_kernels(prepared, outcome.artifact.payload):
        _log(
            _WARNING,
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
    then = f"; {HOW_TO_WARM}" if noted else ""
    log_miss(request.program.name, str(request.target), miss, compile_ns, note, then)
    if warned:
        say_once(f"programs are compiled uncached: {outcome.note}")
    elif unread:
        say_once(f"programs are compiled uncached: {unread}")


_SAID: dict[str, object] = {}


def say_once(sentence: str) -> None:
    """Log a warning once in this process, although its cause affects every build in every thread."""
    if len(_SAID) >= _SENTENCES_KEPT:
        _SAID.clear()
    mine = object()
    if _SAID.setdefault(sentence, mine) is mine:  # without a lock, as a fork could leave one locked
        _log(_WARNING, "%s", sentence)


def _log(level: int, form: str, *told: object) -> None:
    """Log a line in which no name breaks the line or moves a terminal's cursor."""
    if level == _INFO and "logging" not in sys.modules:
        return  # so there is no listener; importing it takes longer than a hit
    logger = _logger()
    if logger.isEnabledFor(level):
        from gpucache.units import printable  # most hits log nothing

        logger.log(level, form, *(printable(one, None) if isinstance(one, str) else one for one in told))


@lru_cache(maxsize=8)
def _stores(environment: tuple[tuple[str, str], ...]) -> Stores:
    environ = dict(environment)
    try:
        environ = file_defaults(environ) | environ
        settings = opened(read_settings(environ, file=_file), say_once)
    except (GpucacheError, OSError) as error:
        gone = "a root is named by a relative path, and the current directory is gone; name its full path"
        say_once(f"the cache is not used: {gone if isinstance(error, OSError) else error}")
        required = is_true(environ.get("GPUCACHE_REQUIRE", ""))
        settings = Settings(root=None, root_origin="none", disabled=True, require=required)
    _listen(settings.log)
    for sentence in unknown_variables(os.environ):
        say_once(sentence)
    memory = process_memory(settings.memory_bytes) if settings.memory_bytes else None
    command = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    found = open_stores(settings, memory=memory, command=command, warn=say_once)
    if found.unusable and not found.systems and not settings.disabled:
        say_once(f"programs are compiled uncached: {found.unusable}")
    for refused in () if settings.disabled else found.refused:
        say_once(str(refused))
    return found


def write_files() -> None:
    """Write a cache that is in a file, if it has changed."""
    root_file = sys.modules.get("gpucache.store.root_file")
    for written in root_file.write_all() if root_file is not None else ():
        if written.problem:
            say_once(written.problem)


def keep_in(file: "str | os.PathLike[str] | None") -> None:
    """Use the cache in a file instead of the one that the environment names; with None that one again.

    The file is read now.
    """
    global _file, _last
    _file, _last = None if file is None else os.path.abspath(os.fspath(file)), None  # noqa: PTH100 - light
    _stores.cache_clear()
    stores()


@cache
def _logger() -> "Logger":
    from logging import getLogger

    return getLogger("gpucache")


def _listen(level: str) -> None:
    """Print our log lines if GPUCACHE_LOG asks for them and no handler of the program does."""
    if not level or _logger().handlers:
        return
    import logging

    logger = _logger()
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        return  # which gets all variables
    logger.setLevel(number)
    if logger.hasHandlers():
        return  # the program has a handler, and would print each line twice
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("gpucache: %(message)s"))
    logger.addHandler(handler)
