"""The messages about a build while a command runs: the lines of GPUCACHE_LOG, and why one has to fail.

Owns their words, which are the same as the library's. Must not know how a build is answered.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpucache.answers.lookup import Hit
from gpucache.answers.run import Intercepted, RunResult
from gpucache.host.environment import is_true
from gpucache.serve.server import Reply
from gpucache.serve.wire import Kind

Say = Callable[[str], object]


def silent(_: str) -> None:
    """Say nothing."""


def said_at(level: str) -> Say:
    """The printer of a level's lines of GPUCACHE_LOG; messages for ``warning`` are shown at the end."""
    return _say if level.lower() in ("debug", "info") else silent


def _say(sentence: str) -> None:
    sys.stderr.write(f"gpucache: {sentence}\n")
    sys.stderr.flush()


def is_required(environ: Mapping[str, str]) -> bool:
    """Whether a process demands that its builds are hits."""
    return is_true(environ.get("GPUCACHE_REQUIRE", ""))


def hit_line(outcome: Intercepted, hit: Hit) -> str:
    return f"hit {_named(outcome)}: {hit.key.short} in {hit.store}"


def miss_line(outcome: Intercepted, compile_ns: int = 0) -> str:
    """The line for a build that was not a hit; ``compile_ns`` is how long its driver took."""
    took = f"; compiled in {compile_ns // 1_000_000} ms" if compile_ns else ""
    return f"miss {_named(outcome)}: {_why(outcome)}{took}"


def refused(outcome: Intercepted) -> tuple[Intercepted, Reply]:
    """A build that has to fail because it is not a hit, and the message for its program."""
    reason = f"{_named(outcome)}: {_why(outcome)}".encode(errors="surrogateescape")
    return replace(outcome, result=RunResult.REFUSED), Reply(Kind.REFUSED, (reason,))


def _named(outcome: Intercepted) -> str:
    named = outcome.program or "a call"
    return f"{named} for {outcome.target}" if outcome.target else named


def _why(outcome: Intercepted) -> str:
    return f"{outcome.verdict}: {outcome.reason}" if outcome.verdict else outcome.reason
