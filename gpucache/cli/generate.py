"""The files made from the code that owns their facts: man pages, completions, and lines that C writes too.

    python -m gpucache.cli.generate          write them
    python -m gpucache.cli.generate --check  list the outdated ones; exit 3 if there are any

Owns their places in a checkout. They contain no date, no path of this machine and no terminal's width.

The manual pages are of commands (section 1), of a manifest and the documents of ``--json`` (5), and of topics
(7); their sentences are in ``pages/``. Must not repeat facts from elsewhere: names, options and help are read
from the Click tree, examples from ``usage``, exit codes from the group, keys from the types of outcomes,
places of caches from the registry.
"""

import inspect
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import click

from gpucache.answers.bench import BenchVerdict
from gpucache.answers.document import record_name
from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.run import RunResult
from gpucache.answers.run_lines import NOT_STARTED, unbuilt
from gpucache.answers.schema import ANSWERS, Answered, Document, Error, meanings, records, words
from gpucache.answers.transfer import PullResult, PushResult
from gpucache.answers.warm import WarmResult
from gpucache.caches.registry import SYSTEMS, described, moves
from gpucache.cli import completion, manual
from gpucache.cli.group import COMMANDED, PROGRAM, gpucache
from gpucache.cli.usage import EXAMPLES, Example, VerbCommand
from gpucache.errors import ExitCode
from gpucache.host.file_stamps import FUNCTIONS_OF_FILES
from gpucache.host.scratch import MARK
from gpucache.library.rows import ABI
from gpucache.serve.command import PASSED_ON
from gpucache.serve.environment import ROOM, ROOM_BYTES
from gpucache.serve.listening import PATH_BYTES_CAP
from gpucache.store.bounded_log import LOG_CAP
from gpucache.store.tag import TAG_NAME, TAG_TEXT

AT_80_COLUMNS = 78  # Click leaves two columns of a terminal free
_SCRIPTS = {"bash": "gpucache.bash", "zsh": "_gpucache", "fish": "gpucache.fish"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing; name the outdated files and exit 3.")
def generate(check: bool) -> None:
    top = top_level(Path(__file__))
    changed = {path: text for path, text in files(top).items() if _read(path) != text}
    strays = list(stray_pages(top))
    for path in (*changed, *strays):
        click.echo(f"{path.relative_to(top).as_posix()} {'is out of date' if check else 'written'}")
    if check:
        raise click.exceptions.Exit(ExitCode.FINDINGS if changed or strays else ExitCode.DONE)
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for path in strays:
        path.unlink()


def top_level(module: Path) -> Path:
    """The checkout that contains a module of ``gpucache/cli/``; raises ClickException if there is none."""
    top = module.resolve().parents[2]
    if not (top / "pyproject.toml").is_file():
        raise click.ClickException(
            f"{top} is not a checkout of gpucache (no pyproject.toml); run this in one"
        )
    return top


def files(top: Path) -> dict[Path, str]:
    made = {top / "man" / name: text for name, text in pages().items()}
    made[top / "gpucache/native/constants.h"] = _constants()
    for shell in completion.SHELLS:
        made[top / "completions" / _SCRIPTS[shell.name]] = completion.script(shell, gpucache)
    return made


def _constants() -> str:
    """The C header with the constants that C shares with Python; 111 stands for a number in a sentence."""
    lines = {
        "UNSEEN": unbuilt(0, loaded=False),
        "UNSEEN_CODE": unbuilt(111, loaded=False),
        "NO_ROOM": unbuilt(NOT_STARTED, loaded=False),
        "NOTHING": unbuilt(0, loaded=True),
        "NOTHING_CODE": unbuilt(111, loaded=True),
        "BINARY": unbuilt(0, loaded=True, binaries=1),
        "BINARIES": unbuilt(0, loaded=True, binaries=111),
    }
    texts: dict[str, str | int] = {f"LINE_{name}": text.replace("111", "%d") for name, text in lines.items()}
    texts |= {"MARK": MARK, "TAG_NAME": TAG_NAME, "TAG_TEXT": TAG_TEXT.decode(), "ROOM": ROOM_BYTES}
    texts |= {"ROOM_NAME": ROOM, "LOG_CAP": LOG_CAP, "LIBRARY_ABI": ABI, "SOCKET_CAP": PATH_BYTES_CAP}
    values = {name: json.dumps(value) for name, value in texts.items()}
    values["PASSED_ON"] = ", ".join(PASSED_ON)
    values["FUNCTIONS_OF_FILES"] = ", ".join(
        f"{{\"{name}\", '{form}'}}" for name, form in FUNCTIONS_OF_FILES.items()
    )
    made = "".join(f"#define {name} {value}\n" for name, value in values.items())
    return f"/* Made by python -m gpucache.cli.generate. */\n{made}"


def pages() -> dict[str, str]:
    return texts(tree())


def stray_pages(top: Path) -> Iterator[Path]:
    """Manual pages in the checkout that are no longer generated."""
    names = pages()
    return (path for path in sorted((top / "man").glob("gpucache*.[157]")) if path.name not in names)


def tree() -> click.Context:
    """The context of the whole command line, at a fixed width."""
    return click.Context(
        gpucache, info_name=PROGRAM, terminal_width=AT_80_COLUMNS, **gpucache.context_settings
    )


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


TOPICS = ("caches", "keys", "checks", "fleet", "recipes")
MANIFEST = "gpucache-manifest"
JSON = "gpucache-json"
OTHERS = ((MANIFEST, 5), (JSON, 5), *((f"gpucache-{name}", 7) for name in TOPICS))
"""The pages that belong to no command, with their sections."""

_STORE_UNUSABLE = "the store cannot be reached or refuses, or a cache cannot be used or only partly be read"
EXIT_CODES: dict[str, dict[ExitCode, str]] = {
    "push": {
        ExitCode.DONE: "the store has every entry that was selected, except those that are refused (RESULTS)",
        ExitCode.USAGE: "no such store, cache, entry or key file, or an extra that is not installed",
        ExitCode.FINDINGS: "an entry is damaged and was not sent, or the store has objects that are garbage",
        ExitCode.CACHE_UNUSABLE: _STORE_UNUSABLE,
    },
    "pull": {
        ExitCode.DONE: "the caches have every entry that fits the machine, also if none does; and whatever "
        "happens with --best-effort, unless the command line is wrong or the command is interrupted",
        ExitCode.USAGE: "the directory is not a store; no such cache or key; or an extra is not installed",
        ExitCode.FINDINGS: "an entry is not signed by a trusted key, is damaged or could not be written, or "
        "the store has objects that are garbage; all others were pulled",
        ExitCode.CACHE_UNUSABLE: f"there is no store at the URL, {_STORE_UNUSABLE}",
    },
    "key": {
        ExitCode.DONE: "both files were written, or the public key was printed",
        ExitCode.USAGE: "a file of that name exists or cannot be written; with --public, it is not a secret "
        "key or others may read it; or the extra 'remote' is not installed",
    },
}
"""The exit codes of verbs that mean more than the common ones."""

WORDS: dict[str, tuple[str, type[StrEnum]]] = {
    "warm": ("RESULTS", WarmResult),
    "inspect": ("VERDICTS", Verdict),
    "verify": ("FINDINGS", FindingKind),
    "run": ("RESULTS", RunResult),
    "bench": ("VERDICTS", BenchVerdict),
    "push": ("RESULTS", PushResult),
    "pull": ("RESULTS", PullResult),
}
"""The words in a verb's output, by verb and under their heading."""


def texts(context: click.Context) -> dict[str, str]:
    """Every page by file name: for a group, each of its commands, manifests and documents."""
    tree = list(_tree(context))
    every = [*((page_name(one), 1) for one in tree), *OTHERS]
    found = {f"{page_name(one)}.1": _page(one, every) for one in tree}
    others = {f"{MANIFEST}.5": manual.page(MANIFEST, 5, "manifest"), f"{JSON}.5": _json()}
    made = {
        "systems": manual.listing((name, described(name)) for name in SYSTEMS),
        "moving": manual.listing((name, moves(name)) for name in SYSTEMS),
        "reasons": manual.listing(words(Verdict)),
    }
    others |= {f"gpucache-{name}.7": manual.page(f"gpucache-{name}", 7, name, **made) for name in TOPICS}
    return found | {name: "\n".join(lines) + "\n" for name, lines in others.items()}


def _tree(context: click.Context) -> Iterator[click.Context]:
    yield context
    for name, command in commands(context).items():
        yield from _tree(click.Context(command, info_name=name, parent=context))


def commands(context: click.Context) -> dict[str, click.Command]:
    """The commands of a group by name; empty for a command that is not a group."""
    group = context.command
    if not isinstance(group, click.Group):
        return {}
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, every: Sequence[tuple[str, int]]) -> str:
    name, command = page_name(context), context.command
    first, *more = _paragraphs(command)
    lines = [
        *manual.title(name, 1, command.short_help or first),
        manual.heading("SYNOPSIS"),
        manual.synopsis(context.command_path, " ".join(command.collect_usage_pieces(context))),
        manual.heading("DESCRIPTION"),
        *manual.paragraphs([first, *more] if command.short_help or not more else more),
        *_commands(context),
        manual.heading("OPTIONS"),
        *manual.options(_options(context)),
        *_words(str(context.info_name)),
        *_examples(EXAMPLES.get(context.command_path.partition(" ")[2], ())),
        manual.heading("EXIT STATUS"),
        *_exit_codes(context),
        *_surroundings(context),
        *manual.see_also([page for page in every if page[0] != name]),
    ]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context) -> Iterator[str]:
    if isinstance(context.command, click.Group):
        yield manual.heading("COMMANDS")
        for verb, command in commands(context).items():
            page = manual.reference(f"{page_name(context)}-{verb}", 1)
            yield from (".TP", page, manual.filled(command.short_help or ""))


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    command = context.command
    texts = command.page_texts if isinstance(command, VerbCommand) else {}
    for param in command.get_params(context):
        spelled, told = param.get_help_record(context) or ("", "")
        if isinstance(param, click.Option) and told:  # arguments have none
            short = param.help or ""
            yield spelled, (texts.get(param) or short) + told.removeprefix(short)


def _words(verb: str) -> Iterator[str]:
    if verb in WORDS:
        heading, kind = WORDS[verb]
        yield manual.heading(heading)
        yield from manual.listing(words(kind))


def _examples(examples: Sequence[Example]) -> Iterator[str]:
    if examples:
        yield manual.heading("EXAMPLES")
    for number, one in enumerate(examples):
        yield from ((".PP",) if number else ())
        yield from (manual.filled(one.wish), *manual.verbatim(one.command))


def _exit_codes(context: click.Context) -> Iterator[str]:
    """The exit codes for the whole run, and those for a command that could not be started."""
    codes = list(ExitCode)
    verb = context.command_path.partition(" ")[2]
    if verb in COMMANDED[:2]:
        yield manual.filled(
            "That of the command; if a signal ended it, this process ends by the same one. If nothing was "
            "started:"
        )
        of_verbs = (ExitCode.DONE, ExitCode.FINDINGS, ExitCode.INTERRUPTED)
        codes = [code for code in codes if code not in of_verbs]
    elif verb == "export layer":
        yield manual.filled(
            "That of the command if it failed; if a signal ended it, this process ends by the same one, "
            "which a shell shows as 128 and the signal's number. 3 also if the layer serves nothing. Else:"
        )
    elif verb and verb not in COMMANDED:
        codes = [code for code in codes if code not in (ExitCode.NOT_EXECUTABLE, ExitCode.NOT_FOUND)]
    own = EXIT_CODES.get(verb)
    if own is not None:
        codes = [code for code in codes if code in own or code in (ExitCode.UNEXPECTED, ExitCode.INTERRUPTED)]
    yield from manual.listing((str(code.value), (own or {}).get(code, code.meaning)) for code in codes)


def _surroundings(context: click.Context) -> Iterator[str]:
    """Variables and files on the page of gpucache itself; on other pages a reference to it."""
    if context.parent is not None:
        yield manual.heading("ENVIRONMENT")
        page = manual.reference(page_name(context.find_root()), 1)
        told = manual.filled("lists the variables that say where the cache is and how it is used.")
        yield f"{page}\n{told}"
        return
    yield from manual.part("surroundings")


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(text.split()) for text in inspect.cleandoc(command.help or "").split("\n\n")]


def _json() -> Iterator[str]:
    return manual.page(
        JSON,
        5,
        "json",
        document=manual.listing(_rows(Document)),
        error=manual.listing(_rows(Error)),
        output=(line for answered in ANSWERS for line in _answered(answered)),
        records=(line for kind in records() for line in _record(kind)),
    )


def _record(kind: type) -> Iterator[str]:
    meaning = (kind.__doc__ or "").partition("\n\n")[0]
    yield from (manual.subheading(record_name(kind)), manual.filled(meaning))
    yield from manual.listing(_rows(kind))


def _answered(one: Answered) -> Iterator[str]:
    outcomes = f"Outcomes: {record_name(one.outcome)}. " if one.outcome else "No outcomes. "
    yield from (
        manual.subheading(f"gpucache {one.asked}"),
        manual.filled(f"{outcomes}{one.meaning} Summary:"),
    )
    yield from manual.listing(_rows(one.summary)) if one.summary else ()


def _rows(kind: type) -> Iterator[tuple[str, str]]:
    return ((key.name, f"({key.form.words}) {meaning}") for key, meaning in meanings(kind))


if __name__ == "__main__":
    generate(prog_name="python -m gpucache.cli.generate")
