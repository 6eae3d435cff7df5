"""The environment of this process as a plain mapping, for callers that read many variables each time.

``os.environ`` encodes every name and decodes every value on each access. That takes 10 us for all
variables, which is a third of what a whole hit may take.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


_last: tuple[dict[bytes | str, bytes | str], Mapping[str, str]] = ({}, {})


def environment() -> Mapping[str, str]:
    """All current variables, in the mapping of the last call if none has changed. Read-only."""
    global _last
    # CPython stores the encoded variables in this dictionary. If a program has put something else in place of
    # ``os.environ``, a copy of that is returned.
    kept = getattr(os.environ, "_data", None)
    if type(kept) is not dict:
        return dict(os.environ)
    before, read = _last
    if kept != before:
        before = dict(kept)  # one step, as another thread may change a variable meanwhile
        read = {os.fsdecode(name): os.fsdecode(value) for name, value in before.items()}
        _last = before, read
    return read


_derived: tuple[Mapping[str, str], dict[object, object]] = ({}, {})


class Given(dict[str, str]):
    """The variables of another process, which stay as they are."""

    def __init__(self, variables: Iterable[tuple[str, str]]) -> None:
        super().__init__(variables)
        self.derived: dict[object, object] = {}


def derived(environ: Mapping[str, str]) -> dict[object, object]:
    """Values derived from a mapping of ``environment`` or from ``Given``; of any other empty each time."""
    global _derived
    if isinstance(environ, Given):
        return environ.derived
    if environ is not _last[1] and all(environ is not marked for _, marked in _marked.values()):
        return {}
    kept = _derived  # which another thread may replace
    if kept[0] is not environ:
        kept = _derived = environ, {}
    return kept[1]


def is_true(value: str) -> bool:
    """Whether a variable of gpucache is set to a true value, as the C libraries read it."""
    return value.lower() in ("1", "true", "yes", "on")


_imported = dict(environment())
_modules = frozenset(sys.modules)
_marked: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {}


def environment_since(mark: str, module: str = "") -> Mapping[str, str]:
    """All current variables, with other values that they may have had when a module loaded a compiler.

    A variable whose value differed when this module was imported, or when the process began if the other was
    already imported by then, is added with that value under its name and ``mark``, empty for none. Without a
    ``module`` the compiler may have been loaded at any time. Read-only.
    """
    now = environment()
    marked = _marked.get(module)
    if marked is None or marked[0] is not now:
        known = [_imported, *([_begun()] if not module or module in _modules else [])]
        others = {
            f"{name}{mark}": before.get(name, "")
            for before in known
            for name in before.keys() | now.keys()
            if before.get(name) != now.get(name)
        }
        marked = _marked[module] = now, {**now, **others} if others else now
    return marked[1]


def _begun() -> Mapping[str, str]:
    """The variables with which this process began; if they cannot be read, the variables at its import."""
    with suppress(OSError):
        entries = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
        return {name: value for name, sign, value in (entry.partition("=") for entry in entries) if sign}
    return _imported
