"""Man pages made from the Click tree, in the man(7) macros.

Owns their sections and the roff. Must not hold what the tree says already: names, options and help
are read from it, exit codes from the group, variables from the settings.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator

import click

from gpucache import __version__
from gpucache.cli.group import EXIT_STATUS
from gpucache.settings import ENVIRONMENT

FILES = (
    ("CACHEDIR.TAG", "Tells backup tools that this is a cache; a shared cache has none."),
    ("v1/entries/", "The entries, one file each, found by their key alone."),
    ("v1/programs/", "What was built, evicted and quarantined under each program's name; explains misses."),
    ("v1/journal/", "The last misses with their verdicts, as inspect --misses shows them."),
    ("v1/quarantine/", "Damaged entries, moved out of the way; a bounded number of them."),
    ("v1/tmp/", "Entries being written."),
    ("v1/locks/", "Locks of the programs being compiled."),
    ("v1/targets.json", "The targets that the last probe found, for completions."),
)
"""Paths below the cache's root, and what lies there."""

_ROOT = (
    "The cache lives in the user's cache directory (~/.cache/gpucache on Linux, ~/Library/Caches/gpucache on "
    "macOS, %LOCALAPPDATA%\\gpucache\\Cache on Windows), unless --root or GPUCACHE_DIR names another."
)
_ROFF = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")


def pages(context: click.Context) -> dict[str, str]:
    """The page of a group and of each of its commands, by file name."""
    group = context.command
    assert isinstance(group, click.Group)
    names = [page_name(context), *(f"{page_name(context)}-{verb}" for verb in group.commands)]
    made = {f"{names[0]}.1": _page(context, names)}
    for verb, command in group.commands.items():
        inner = click.Context(command, info_name=verb, parent=context)
        made[f"{page_name(inner)}.1"] = _page(inner, names)
    return made


def page_name(context: click.Context) -> str:
    """``gpucache`` or ``gpucache-warm``."""
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, names: Iterable[str]) -> str:
    name = page_name(context)
    lines = [
        f'.TH {_text(name.upper())} 1 "" "gpucache {__version__}" "gpucache manual"',
        ".nh",
        ".ad l",
        ".SH NAME",
        rf"{_text(name)} \- {_text(_headline(context.command))}",
        ".SH SYNOPSIS",
        _synopsis(context),
        ".SH DESCRIPTION",
        *_paragraphs(context.command.help or ""),
        *_commands(context),
        ".SH OPTIONS",
        *_options(context),
        ".SH EXIT STATUS",
        *_list((str(code), meaning) for code, meaning in EXIT_STATUS.items()),
        ".SH ENVIRONMENT",
        *_list((variable.name, variable.meaning) for variable in ENVIRONMENT),
        ".SH FILES",
        _filled(_ROOT),
        *_list(FILES),
        ".SH SEE ALSO",
        ",\n".join(_reference(other) for other in names if other != name),
    ]
    return "\n".join(lines) + "\n"


def _headline(command: click.Command) -> str:
    """The short help as the NAME section wants it: no capital, no full stop."""
    text = command.short_help or inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return (text[:1].lower() + text[1:]).rstrip(".")


def _synopsis(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    arguments = _PLACEHOLDER.sub(r"\\fI\g<0>\\fR", _text(pieces))
    return rf"\fB{_text(context.command_path)}\fR {arguments}"


def _commands(context: click.Context) -> Iterator[str]:
    if isinstance(context.command, click.Group):
        yield ".SH COMMANDS"
        for verb, command in context.command.commands.items():
            yield from (".TP", _reference(f"{page_name(context)}-{verb}"), _filled(command.short_help or ""))


def _options(context: click.Context) -> Iterator[str]:
    for param in context.command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and record[1]:  # arguments have no help of their own
            yield from (".TP", _term(record[0]), _filled(record[1]))


def _term(spelled: str) -> str:
    """``-j, --jobs N`` with its names in bold and its value in italics."""
    *others, last = spelled.split(", ")
    name, _, value = last.partition(" ")
    bold = ", ".join(rf"\fB{_text(one)}\fR" for one in (*others, name))
    return rf"{bold} \fI{_text(value)}\fR" if value else bold


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, meaning in rows:
        yield from (".TP", rf"\fB{_text(term)}\fR", _filled(meaning))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text, filled again but for those that Click's ``\\b`` keeps as they are."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", *map(_text, paragraph.splitlines()[1:]), ".fi")
        else:
            yield _filled(" ".join(paragraph.split()))


def _reference(name: str) -> str:
    return rf"\fB{_text(name)}\fR(1)"


def _filled(text: str) -> str:
    return "\n".join(map(_text, textwrap.wrap(text, 90, break_long_words=False, break_on_hyphens=False)))


def _text(text: str) -> str:
    """Text in which roff finds nothing to do."""
    escaped = text.translate(_ROFF)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
