"""The process: arguments in, exit code out. The one place where exceptions become sentences.

The words after ``--`` are a user's command, which gpucache never parses. Click drops the mark
itself, so it is looked for before Click sees the arguments, and the command is passed separately.
"""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from gpucache import __version__
from gpucache.cli import streams
from gpucache.cli.globals import Globals
from gpucache.cli.group import COMMAND_LINES, COMMANDED, COMPLETE, NEAR, VERBS, gpucache
from gpucache.errors import CompileError, ExitCode, GpucacheError
from gpucache.host import interrupts, os_errors

if TYPE_CHECKING:
    from gpucache.cli.running import Running

_VERBS = f"{', '.join(COMMANDED[:-1])} and {COMMANDED[-1]}"
NO_COMMAND = f"only {_VERBS} run a command, so this command takes no words after '--'"
EMPTY_COMMAND = "no command follows '--'; write it there, as in 'gpucache {}'"


def main(arguments: Sequence[str] | None = None, running: "Running | None" = None) -> int:
    """Run the command line, or report on a command that has been run; returns the exit code."""
    streams.prepare()
    # A umask that takes permissions from the owner would lock us out of the directories that we make.
    os.umask(os.umask(0o077) & 0o077)
    own = list(sys.argv[1:] if arguments is None else arguments)
    own = [*own[1:], "--help"] if own[:1] == ["help"] else own
    interrupts.arm()
    own, command, wrong = _split(own)
    if wrong:
        return _fail(own, wrong, ExitCode.USAGE)
    try:
        _read_variables(own)
        code = gpucache.main(
            args=own,
            prog_name="gpucache",
            standalone_mode=False,
            obj=Globals(command=command, running=running),
        )
        return _kept(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort as error:  # Click raises it for Ctrl-C, and ends the line with the terminal's ^C
        return interrupted(own, str(error.__cause__ or ""))
    except click.ClickException as error:
        return _usage(own, error)
    except GpucacheError as error:
        return _fail(own, _words(error), error.exit_code)
    except (BrokenPipeError, SystemExit):  # Click and rich turn the first into the second
        if COMPLETE in os.environ:
            raise  # completion ends so
        streams.give_up()  # the reader of our output has gone; nothing is wrong
        return 0
    except Exception as error:  # the last line of defence
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return _failed(own, error) if isinstance(error, OSError) else _unexpected(own, error)


def _kept(code: int) -> int:
    """Write caches in files that a verb changed; gives the exit code, which a failure changes."""
    root_file = sys.modules.get("gpucache.store.root_file")
    for written in root_file.write_all() if root_file is not None else ():
        if written.problem:
            streams.complain(f"gpucache: {written.problem}")
            code = code or ExitCode.CACHE_UNUSABLE
    return code


def interrupted(arguments: Sequence[str], so_far: str = "") -> int:
    """Say that Ctrl-C or a signal ended a command, and how far it came; gives the exit code."""
    interrupts.disarm()
    told = "; ".join(filter(None, ("interrupted", so_far)))
    return _fail(_split(list(arguments))[0], told, ExitCode.INTERRUPTED)


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...], str]:
    """gpucache's arguments, the command after ``--``, and a sentence on a mistake in them, or empty text."""
    if "--" not in arguments:
        return arguments, (), ""
    place = arguments.index("--")
    own, command = arguments[:place], tuple(arguments[place + 1 :])
    verb, words = _verb(own), {*own}
    line = next(
        (line for name, line in COMMAND_LINES.items() if name.startswith(verb) and {*name.split()} <= words),
        "",
    )
    if not line:  # Click names a mistyped command, which says more than the mark after it
        return own, command, "" if _mistyped(own) else NO_COMMAND
    return own, command, "" if command else EMPTY_COMMAND.format(line)


def _mistyped(own: Sequence[str]) -> bool:
    group: click.Command | None = gpucache
    for before, word in pairwise(["", *own]):
        if not isinstance(group, click.Group):
            break
        if not word.startswith("-") and before != "--root":
            group = group.get_command(click.Context(group), word)
    return group is None


def _read_variables(own: Sequence[str]) -> None:
    """Register the completion if a shell asks for it; else warn of misspelt variables, which do nothing."""
    if COMPLETE in os.environ:
        from gpucache.cli import completion

        completion.register()
        return
    if _verb(own) and not {"-h", "--help"} & set(own):  # help waits for nothing but Click
        from gpucache.settings import file_defaults

        try:
            found = file_defaults(os.environ)
        except GpucacheError as error:
            if _verb(own) != "run":
                raise
            streams.complain(f"gpucache: {_words(error)}; the command runs with GPUCACHE_DISABLE=1")
            found = {"GPUCACHE_DISABLE": "1"}
        os.environ.update(found)
    if {"-q", "--quiet"} & set(own) or not any(name.startswith("GPUCACHE_") for name in os.environ):
        return
    from gpucache.settings import unknown_variables
    from gpucache.units import printable

    for sentence in unknown_variables(os.environ):
        streams.complain(f"gpucache: {printable(sentence, None)}")


def _words(error: GpucacheError) -> str:
    """The message of an error, with the compiler's own words if it came from one."""
    log = error.log if isinstance(error, CompileError) else ""
    return "\n".join(filter(None, (error.message, log)))


def _usage(own: Sequence[str], error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if _wants_json(own):
            return _fail(own, "no verb is given; see 'gpucache --help'", error.exit_code)
        streams.complain(error.format_message())
        return error.exit_code
    context = getattr(error, "ctx", None)
    # Click forgets the verb if an option lacks its value.
    where = context.command_path if context is not None else f"gpucache {_verb(own)}".rstrip()
    page = _page(error)
    near, page = ("", page) if page else (_meant(error), f"{where} --help")
    said = (error.message if near else error.format_message()).rstrip(".")
    guess = f"did you mean '{near}'? " if near else ""
    return _fail(own, f"{said[:1].lower()}{said[1:]}; {guess}see '{page}'", ExitCode.USAGE)


def _page(error: click.ClickException) -> str:
    """The hint for a word that is not a verb but a topic or a command of export, or empty text."""
    word, context = getattr(error, "command_name", ""), getattr(error, "ctx", None)
    if not (word and context) or context.parent:
        return ""
    from gpucache.cli.export import export
    from gpucache.cli.generate import OTHERS

    if word in export.list_commands(context):
        return f"gpucache help export {word}"
    return f"man gpucache-{word}" if f"gpucache-{word}" in dict(OTHERS) else ""


def _meant(error: click.ClickException) -> str:
    """The option or command nearest to one that does not exist, or empty text."""
    if isinstance(error, click.NoSuchOption):
        verb = error.ctx.info_name if error.ctx is not None else ""
        return NEAR.get(f"{verb} {error.option_name}") or (error.possibilities or [""])[0]
    context, word = getattr(error, "ctx", None), getattr(error, "command_name", "")
    if word in NEAR and context and not context.parent:
        return NEAR[word]
    if not (word and context and isinstance(context.command, click.Group)):
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, context.command.list_commands(context))), "")


def _verb(own: Sequence[str]) -> str:
    return next((word for word in own if word in VERBS), "")


def _wants_json(own: Sequence[str]) -> bool:
    return "--json" in own or "--format=json" in own or ("--format", "json") in pairwise(own)


def _fail(own: Sequence[str], message: str, code: int) -> int:
    if _wants_json(own):
        from gpucache.answers.document import error_document

        with suppress(OSError):
            click.echo(error_document(_verb(own), message, code))
        streams.refusal()
    streams.complain(f"gpucache: {message}")
    return code


def _failed(own: Sequence[str], error: OSError) -> int:
    """Print the operating system's refusal; if it names a reason, that is not a defect of gpucache."""
    if unwritten := streams.refusal():
        closed = unwritten.errno == errno.EBADF
        remedy = "leave standard output open" if closed else os_errors.remedy(unwritten)
        why = f"{os_errors.reason(unwritten)}); {remedy}"
        return _fail([], f"the output could not be written ({why} and run it again", ExitCode.UNEXPECTED)
    try:
        os.getcwd()  # noqa: PTH109 - raises if there is none
    except OSError:
        return _fail(own, "the current directory is gone; go to another one", ExitCode.USAGE)
    if not os_errors.is_of_the_machine(error):
        return _unexpected(own, error)
    refused = os_errors.told(error)
    return _fail(own, refused.message, refused.exit_code)


def _unexpected(own: Sequence[str], error: Exception) -> int:
    code = _fail(own, f"unexpected {type(error).__name__}: {error}", ExitCode.UNEXPECTED)
    if os.environ.get("GPUCACHE_LOG", "").lower() == "debug":
        import traceback

        traceback.print_exc()
    else:
        streams.complain(
            "This is a defect of gpucache. Run it again with GPUCACHE_LOG=debug and report what it prints, "
            f"with gpucache {__version__}, Python {sys.version.split()[0]} and {sys.platform}."
        )
    return code
