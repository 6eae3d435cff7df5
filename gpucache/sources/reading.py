"""The include closure of a program, found in the cheapest safe way: nothing to ask, remembered, or walked.

The walk, ``closure``, uses many regular expressions, which take longer to compile than a whole hit; so it is
imported by the first program that needs it. Most programs ask nothing; for the others a memo is stored.
"""

import os
import sys
from collections.abc import Sequence

from gpucache.host.file_stamps import is_redirected, replaced_functions
from gpucache.keys import Closure, Include, digest
from gpucache.sources.closure_memos import Memos, name_of, recall, remember
from gpucache.sources.disk import Disk
from gpucache.sources.rules import Wanted

_WALK = "gpucache.sources.closure"
_OF_NOTHING = Closure(resolution=digest(b""))
# Signs of a directive, in any spelling and reading, and of everything that asks without a directive.
_SIGNS = (
    *(b"#", b"%:", b"??", b"\\", b"__DATE__", b"__TIME", b"__has_", b"asm", b"ragma", b"import"),
    *(b"FILE", b"source_location", b"PRETTY_FUNCTION", b"assert"),
)
# Compilers do not agree on quotes.
_SIGNS_IN_OPTIONS = (*(sign.decode() for sign in _SIGNS), '"', "'")


def asks_nothing(source: bytes, definitions: Sequence[str]) -> bool:
    """Whether a program certainly asks nothing: its text and its ``-D`` options have no sign of a question.

    If this is False, the program may still ask nothing: only the walk shows that.
    """
    if any(map(source.__contains__, _SIGNS)):
        return False
    given = "".join(definitions)
    return not given or not any(sign in given for sign in _SIGNS_IN_OPTIONS)


def read_closure(wanted: Wanted, *, memos: Memos | None = None, light: bool = False) -> Closure:
    """The closure of a source, resolved by the rule of its compiler.

    ``memos`` store closures of many headers for the next process. Raises nothing, for any content of disk and
    the source: ``uncacheable`` says why a source cannot be keyed. With ``light`` a remembered closure is used
    if the status of its files is unchanged, and has no stamps.
    """
    closure = _found(wanted, memos, light=light)
    if closure.asked == () or not replaced_functions():
        return closure
    for _, path, _ in closure.asked or ():
        if is_redirected(os.fsencode(path)):
            why = f"a preloaded library redirects {path!r}, so that its compiler may read other files"
            return closure._replace(uncacheable=f"{why}; unset LD_PRELOAD")
    return closure


def _found(wanted: Wanted, memos: Memos | None, *, light: bool) -> Closure:
    source, rule, dirs, cwd, forced, definitions, named, name_them, limits, held = wanted
    texts = (source, *(text for _, text in held))
    if not (forced or named) and all(asks_nothing(text, definitions) for text in texts):
        closure = _OF_NOTHING if not rule.configuration else _unconfigured(rule.configuration, cwd)
        if closure is not None:
            return closure
    if not (rule.searches_cwd or forced or named or not all(map(os.path.isabs, (*dirs, *rule.system)))):
        cwd = None  # it makes no difference, so programs in all directories share one memo
    name, first = "", light and _WALK not in sys.modules  # then even a walk of few headers takes long
    if memos is not None and (first or forced or named or any(b"include" in text for text in texts)):
        given = map(tuple, (dirs, rule.system, forced, definitions, named))
        name = name_of(*map(digest, texts), tuple(place for place, _ in held), rule, cwd, *given, limits)
        known = recall(memos, name, limits, name_them, light=light)
        if known is not None:
            return known
    from gpucache.sources.closure import walk_closure

    disk = Disk()
    closure = walk_closure(wanted._replace(cwd=cwd), disk, memos if name else None)
    if memos is not None and name:
        remember(memos, name, disk, closure, name_them, few=first)
    return closure


def _unconfigured(name: str, cwd: str | None) -> Closure | None:
    """The closure of a source that asks nothing if its compiler has no configuration; None if it has one."""
    disk = Disk()
    if cwd is not None:
        place = disk.real(os.fsencode(cwd))
        if disk.look(os.path.join(place, os.fsencode(name))).kind or disk.failed:  # noqa: PTH118
            return None
    parts = (b"0 0 0", b'"', os.fsencode(name), b"")  # as the walk frames an edge that resolves nowhere
    edges = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return Closure((Include(name, None),), digest(edges), stamps=tuple(disk.stamps), asked=tuple(disk.asked))
