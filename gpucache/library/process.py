"""The library's state in a process: settings and stores, and the log.

Owns the library's promise that a cache never makes a program fail. Must not import a GPU stack.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Verdict
from gpucache.assembly import open_stores, opened, process_memory
from gpucache.engine.stores import Stores
from gpucache.errors import CacheMissError, GpucacheError
from gpucache.host import os_errors
from gpucache.host.environment import environment, is_true
from gpucache.settings import ENVIRONMENT, Settings, file_defaults, read_settings, unknown_variables

if TYPE_CHECKING:
    from logging import Handler, Logger

_SENTENCES_KEPT = 64
INFO, WARNING = 20, 30
"""Levels of ``logging``, which a hit that logs nothing does not import."""
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


def log_hit(name: str, target: str, key: str, store: str) -> None:
    log(INFO, "hit %s for %s: %s in %s", name, target, key, store)


_SAID: dict[str, object] = {}


def say_once(sentence: str) -> None:
    """Log a warning once in this process, although its cause affects every build in every thread."""
    if len(_SAID) >= _SENTENCES_KEPT:
        _SAID.clear()
    mine = object()
    if _SAID.setdefault(sentence, mine) is mine:  # without a lock, as a fork could leave one locked
        log(WARNING, "%s", sentence)


def log(level: int, form: str, *told: object) -> None:
    """Log a line in which no name breaks the line or moves a terminal's cursor."""
    if level == INFO and "logging" not in sys.modules:
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


_HANDLER: "dict[str, Handler]" = {}


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
    # Threads that begin at once come here together, and a logger adds one handler once.
    logger.addHandler(_HANDLER.setdefault("", handler))
