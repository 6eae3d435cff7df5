"""``gpucache inspect --why``: would it hit, and if not why; and two entries compared."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.cli.globals import given, leave
from gpucache.cli.parameters import Named, field, read_programs, read_whole
from gpucache.cli.streams import complain
from gpucache.engine.selection import Opened
from gpucache.errors import ExitCode, SourceError, UsageError
from gpucache.host import os_errors

if TYPE_CHECKING:
    from gpucache.answers.entries import CacheEntry
    from gpucache.answers.schema import EntriesCompared, WhySummary
    from gpucache.manifest import ProgramSpec


class Asked(NamedTuple):
    """The subject of a question, and how it would be built."""

    what: tuple[str, ...]
    targets: tuple[str, ...]
    named: Named
    """The programs to warm, and the options for their builds."""
    profile: Path | None
    wanted: tuple[str, ...] = ()
    """``FIELD=VALUE`` or ``FIELD=@FILE``, of the key of another system's cache."""


def explain(opened: Opened, asked: Asked) -> None:
    """Explain sources, programs, two keys, or requests to other caches."""

    from gpucache.engine.selection import is_key_prefix

    if asked.wanted:
        _reach(opened, asked)
        return
    if not asked.what and asked.named.manifest is None:
        raise UsageError(
            "--why needs a subject: a source, a program, --manifest FILE, or two keys to compare"
        )
    if asked.what and asked.named.manifest is not None:
        raise UsageError("sources and --manifest do not go together; give one of them")
    if len(asked.what) == 2 and all(map(is_key_prefix, asked.what)):
        _compare(opened, asked.what)
        return
    _answer(opened, asked)


def _answer(opened: Opened, asked: Asked) -> None:
    from gpucache.answers.why import answers
    from gpucache.assembly import backends, open_stores
    from gpucache.caches.opening import present_caches
    from gpucache.caches.registry import systems
    from gpucache.engine.machine import machine_for
    from gpucache.engine.why import plan_why, replies, why

    meant = [_meant(opened, word, asked) for word in asked.what] or [(read_programs(asked.named), [])]
    every = [spec for specs, _ in meant for spec in specs]
    entries = [one for _, found in meant for one in found]
    here = machine_for(every, asked.targets, asked.profile, entries)
    given().say(*here.notes)
    items = plan_why(meant, here.devices, asked.targets, backends(), opened.own)
    settings = opened.settings._replace(read_only=True)
    stores = open_stores(settings, command="gpucache inspect", warn=complain)
    known = tuple(systems())
    folder = None  # the current directory, perhaps the program's too, unless it is gone
    with suppress(OSError):
        folder = str(Path.cwd())
    found = [
        replace(one, caches=replies(one, item, known, present_caches))
        for one, item in zip(why(items, backends(), stores, here.environment, folder), items, strict=True)
    ]
    hits = sum(one.hit for one in found)
    given().answer("inspect", found, _counted(len(found), hits), answers(found, time.time_ns()))
    leave(ExitCode.DONE if hits == len(found) else ExitCode.FINDINGS)


def _counted(asked: int, hits: int) -> "WhySummary":
    return {"asked": asked, "hits": hits, "misses": asked - hits}


def _meant(opened: Opened, word: str, asked: Asked) -> "tuple[list[ProgramSpec], list[CacheEntry]]":
    """The programs read from files, or the existing entries, that a word means.

    A file or directory without a source may be named as a program is, and then the program is meant.
    """
    from gpucache.engine.why import entries_of
    from gpucache.manifest import LANGUAGES

    path = Path(word)
    if path.exists():
        manifest = path if path.suffix == ".toml" else None
        named = asked.named._replace(sources=() if manifest else (path,), manifest=manifest)
        try:
            return read_programs(named), []
        except SourceError:
            if path.suffix not in LANGUAGES and not asked.named.builds:
                with suppress(UsageError):
                    return [], entries_of(opened.require_own("--why with a program"), word, asked.targets)
            raise
    if asked.named.builds:
        raise UsageError(
            f"-I, -D, --option, --name-expression and --local-size are for sources, and there is no file "
            f"{word!r}; an entry is looked up as it was built"
        )
    return [], entries_of(opened.require_own("--why with a program"), word, asked.targets)


def _compare(opened: Opened, keys: Sequence[str]) -> None:
    from gpucache.answers.why import comparison
    from gpucache.engine.why import compare
    from gpucache.keys import difference

    left, right = (opened.report(key) for key in keys)
    differences = difference(left.compared, right.compared)
    summary: EntriesCompared = {
        "left": left.entry.key,
        "right": right.entry.key,
        "differences": len(differences),
    }
    given().answer(
        "inspect", differences, summary, comparison(left.entry.key, right.entry.key, compare(left, right))
    )


def _reach(opened: Opened, asked: Asked) -> None:
    from gpucache.answers.why import reaches

    if asked.what or asked.named.anything or asked.targets:
        raise UsageError("--want queries other caches by their key fields; leave sources and options out")
    wanted: dict[str, tuple[bytes, ...]] = {}
    for text in asked.wanted:
        label, value = field("--want", text, " or FIELD=@FILE")
        wanted[label] = (*wanted.get(label, ()), _value(value))
    found = [reach for cache in opened.caches for reach in cache.explain(wanted)]
    hits = sum(one.hit for one in found)
    given().answer("inspect", found, _counted(len(found), hits), reaches(found))
    leave(ExitCode.DONE if hits else ExitCode.FINDINGS)


def _value(text: str) -> bytes:
    if not text.startswith("@"):
        return os.fsencode(text)
    try:
        return read_whole(Path(text[1:]))
    except OSError as error:
        raise os_errors.unreadable(text[1:], error, "name a file after @") from None
