"""The manual pages of section 1: the command and its verbs, made from the Click tree.

Owns their sections. Must not hold what is said elsewhere: names, options and help are read from the
tree, examples from the usage, exit codes from the group, variables from the settings.
"""

import inspect
from collections.abc import Iterator, Sequence

import click

from gpucache.cli import roff
from gpucache.cli.group import COMMANDED
from gpucache.cli.usage import EXAMPLES, WORDS, Example
from gpucache.errors import ExitCode
from gpucache.settings import ENVIRONMENT, RUN_ENVIRONMENT

FORMATS = (("gpucache-manifest", 5), ("gpucache-json", 5))
"""The pages of files and documents, which another module makes."""
FILES = (
    ("CACHEDIR.TAG", "Tells backup tools that this is a cache; a shared cache has none."),
    ("v1/entries/", "The entries, one file each, found by their key alone."),
    ("v1/programs/", "What was built, evicted and quarantined under each program's name; explains misses."),
    ("v1/removed.jsonl", "Of which programs that was removed, for the same reason; bounded."),
    ("v1/journal/", "The last misses with their verdicts, as inspect --misses shows them."),
    ("v1/missed/", "What programs left for warm --misses, with their sources; a bounded number of them."),
    (
        "v1/closures/",
        "Which headers programs include and what compilers consist of, for faster starts; bounded.",
    ),
    ("v1/index/", "Which entries answer a build under run, so that it needs no server; bounded."),
    ("v1/quarantine/", "Damaged entries, moved out of the way: the newest 32, of 64 MiB together."),
    (
        "v1/tmp/",
        "Entries being written. What a killed process left is removed, once it is an hour old, with the next "
        "entry that is kept, by evict and by verify --repair.",
    ),
    (
        "v1/locks/",
        "Locks of the programs being compiled. One of a killed process stops nobody, and goes likewise.",
    ),
    ("v1/targets.json", "The targets that the last probe found, for completions."),
)
"""Paths below the cache's root, and what lies there."""

_ROOT = (
    "The cache lives in the user's cache directory (~/.cache/gpucache on Linux, ~/Library/Caches/gpucache on "
    "macOS, %LOCALAPPDATA%\\gpucache\\Cache on Windows), unless --root or GPUCACHE_DIR names another. While "
    "a command runs, compilers write to its folder gpucache-* in TMPDIR; that of a killed command is removed "
    "by the next that needs one."
)


def pages(context: click.Context) -> dict[str, str]:
    """The page of a group and of each of its commands, by file name."""
    verbs = [
        click.Context(command, info_name=verb, parent=context) for verb, command in commands(context).items()
    ]
    every = [(page_name(one), 1) for one in (context, *verbs)] + list(FORMATS)
    return {f"{page_name(one)}.1": _page(one, every) for one in (context, *verbs)}


def commands(context: click.Context) -> dict[str, click.Command]:
    """The commands of a group by name; nothing for a command that is no group."""
    group = context.command
    if not isinstance(group, click.Group):
        return {}
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def page_name(context: click.Context) -> str:
    """``gpucache`` or ``gpucache-warm``."""
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, every: Sequence[tuple[str, int]]) -> str:
    name, command = page_name(context), context.command
    lines = [
        *roff.title(name, 1, command.short_help or _paragraphs(command)[0]),
        roff.heading("SYNOPSIS"),
        roff.synopsis(context.command_path, " ".join(command.collect_usage_pieces(context))),
        roff.heading("DESCRIPTION"),
        *roff.paragraphs(_paragraphs(command)),
        *_commands(context),
        roff.heading("OPTIONS"),
        *roff.options(_options(context)),
        *_words(str(context.info_name)),
        *_examples(EXAMPLES.get(str(context.info_name), ())),
        roff.heading("EXIT STATUS"),
        *_exit_codes(context),
        *_surroundings(context),
        *roff.see_also([page for page in every if page[0] != name]),
    ]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context) -> Iterator[str]:
    if isinstance(context.command, click.Group):
        yield roff.heading("COMMANDS")
        for verb, command in commands(context).items():
            page = roff.reference(f"{page_name(context)}-{verb}", 1)
            yield from (".TP", page, roff.filled(command.short_help or ""))


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    records = (param.get_help_record(context) for param in context.command.get_params(context))
    return (record for record in records if record and record[1])  # arguments have no help of their own


def _words(verb: str) -> Iterator[str]:
    """What the words of an answer mean."""
    if verb in WORDS:
        heading, words = WORDS[verb]
        yield roff.heading(heading)
        yield from roff.listing((word.value, meaning) for word, meaning in words.items())


def _examples(examples: Sequence[Example]) -> Iterator[str]:
    if examples:
        yield roff.heading("EXAMPLES")
    for number, one in enumerate(examples):
        yield from ((".PP",) if number else ())
        yield from (roff.filled(one.wish), *roff.verbatim(one.command))


def _exit_codes(context: click.Context) -> Iterator[str]:
    """What the process says of the whole, and what it says of a command that could not be started."""
    codes = list(ExitCode)
    if context.info_name in COMMANDED[:2]:
        yield roff.filled(
            "That of the command; if a signal ended it, this process ends by the same one. Where nothing was "
            "started:"
        )
        of_verbs = (ExitCode.DONE, ExitCode.FINDINGS, ExitCode.INTERRUPTED)
        codes = [code for code in codes if code not in of_verbs]
    elif context.info_name == "export":
        yield roff.filled(
            "With layer, that of the command if it failed; if a signal ended it, this process ends by the "
            "same one, which a shell tells as 128 and the signal's number. 3 also where the layer would "
            "answer nothing. Else:"
        )
    elif context.parent is not None and context.info_name not in COMMANDED:
        codes = [code for code in codes if code not in (ExitCode.NOT_EXECUTABLE, ExitCode.NOT_FOUND)]
    yield from roff.listing((str(code.value), code.meaning) for code in codes)


def _surroundings(context: click.Context) -> Iterator[str]:
    """Variables and files on the page of the whole command, and on the others where to read of them."""
    yield roff.heading("ENVIRONMENT")
    if context.parent is not None:
        page = roff.reference(page_name(context.parent), 1)
        yield f"{page}\n{roff.filled('lists the variables that say where the cache is and how it is used.')}"
        return
    variables = (*ENVIRONMENT, *RUN_ENVIRONMENT)
    yield from roff.listing((variable.name, variable.meaning) for variable in variables)
    yield from (roff.heading("FILES"), roff.filled(_ROOT), *roff.listing(FILES))


def _paragraphs(command: click.Command) -> list[str]:
    """The help of a command without its line breaks."""
    return [" ".join(text.split()) for text in inspect.cleandoc(command.help or "").split("\n\n")]
