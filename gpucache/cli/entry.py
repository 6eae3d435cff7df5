"""The process: arguments in, exit code out. The one place where exceptions become sentences.

What follows ``--`` is a command of somebody else's and never ours to read. Click drops the mark
itself, so it is looked for before Click sees the arguments, and the command travels beside them.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence

import click

from gpucache import __version__
from gpucache.cli.completion import VARIABLE
from gpucache.cli.globals import Globals
from gpucache.cli.group import gpucache
from gpucache.errors import CompileError, GpucacheError

INTERRUPTED = 130
COMMANDED = ("warm", "bench")
NO_COMMAND = "only warm and bench run a command, so nothing may follow '--' here"
EMPTY_COMMAND = "no command follows '--'; write it there, as in 'gpucache warm -- ./app'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    own = list(sys.argv[1:] if arguments is None else arguments)
    _end_as_interrupted()
    own, command, wrong = _split(own)
    if wrong:
        return _fail(own, wrong, 2)
    try:
        code = gpucache.main(
            args=own, prog_name="gpucache", standalone_mode=False, obj=Globals(command=command)
        )
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail(own, "interrupted", INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _usage(own, error)
    except GpucacheError as error:
        return _fail(own, _words(error), error.exit_code)
    except (BrokenPipeError, SystemExit):  # the second is what Click and rich make of the first
        if VARIABLE in os.environ:
            raise  # completion ends so
        return _unread()
    except Exception as error:  # the last line of defence
        return _unexpected(own, error)


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...], str]:
    """Our arguments, the command after ``--``, and what is wrong with that."""
    if "--" not in arguments:
        return arguments, (), ""
    place = arguments.index("--")
    own, command = arguments[:place], tuple(arguments[place + 1 :])
    if not any(verb in own for verb in COMMANDED):
        return own, command, NO_COMMAND
    return own, command, "" if command else EMPTY_COMMAND


def _words(error: GpucacheError) -> str:
    """What an error says, with the compiler's own words where it was one."""
    log = error.log if isinstance(error, CompileError) else ""
    return "\n".join(filter(None, (str(error), log)))


def _unread() -> int:
    """Whoever read us has gone; nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _usage(own: Sequence[str], error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "gpucache"
    return _fail(own, f"{error.format_message().rstrip('.')}; see '{where} --help'", 2)


def _end_as_interrupted() -> None:
    """Being told to end is an interrupt: workers and temporary folders go, what is known is shown."""
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.default_int_handler)


def _fail(own: Sequence[str], message: str, code: int) -> int:
    if "--json" in own:
        from gpucache.render.document import error_document

        verb = next((word for word in own if word in gpucache.commands), "")
        click.echo(error_document(verb, message, code))
    from gpucache.units import shown

    click.echo(f"gpucache: {shown(message)}", err=True)
    return code


def _unexpected(own: Sequence[str], error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        return _fail(own, f"the answer could not be written ({error.strerror}); make room and ask again", 1)
    code = _fail(own, f"unexpected {type(error).__name__}: {error}", 1)
    if os.environ.get("GPUCACHE_LOG", "").lower() == "debug":
        import traceback

        traceback.print_exc()
    else:
        click.echo(
            "This is a defect of gpucache. Run it again with GPUCACHE_LOG=debug and report what it prints, "
            "with "
            f"gpucache {__version__}, Python {sys.version.split()[0]} and {sys.platform}.",
            err=True,
        )
    return code
