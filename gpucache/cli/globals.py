"""Options that every verb has, before or after it, and their effects.

Owns the merged value and the form of a verb's output: one JSON document, or text.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from gpucache.cli.streams import complain
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from click.shell_completion import CompletionItem

    from gpucache.answers.console import Block, Display
    from gpucache.cli.running import Running
    from gpucache.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


FORMS = ("text", "json", "markdown", "prometheus")


class Globals(NamedTuple):
    """The values of the global options. Not a dataclass, whose import would delay --help and --version."""

    root: str | None = None
    cache_file: str | None = None
    json: bool = False
    format: str = "text"
    """The form of the text: ``text``, ``markdown``, or of inspect --stats also ``prometheus``."""
    quiet: bool = False
    verbose: int = 0
    command: tuple[str, ...] = ()
    """The words after ``--``: a user's command."""
    running: "Running | None" = None
    """The user's command as it ran, if it has been run already."""

    @property
    def whole(self) -> bool:
        return self.verbose > 0

    def settings(self) -> "Settings":
        """The settings, in which an option counts before the environment, and that before the default."""
        from gpucache.settings import read_settings

        return in_folder(read_settings(os.environ, root=self.root, file=self.cache_file))

    def environment(self) -> dict[str, str]:
        """The environment of a user's command, in which gpucache's cache is the directory that it is here."""
        environ = {**os.environ}
        if self.root is None and self.cache_file is None and "GPUCACHE_FILE" not in environ:
            return environ
        environ.pop("GPUCACHE_FILE", None)
        settings = self.settings()
        root = settings.folder or settings.root
        return {**environ, **({} if root is None else {"GPUCACHE_DIR": str(root)})}

    def show(self, blocks: "Iterable[Block]") -> None:
        if self.json or self.quiet:
            return
        from gpucache.answers.console import markdown_lines, show

        if self.format == "markdown":
            sys.stdout.writelines(f"{line}\n" for line in markdown_lines(blocks))
        else:
            show(sys.stdout, blocks)

    def answer(
        self,
        command: str,
        outcomes: "Iterable[object]",
        summary: object,
        text: "Iterable[Block]",
    ) -> None:
        """Print the document or the text, whichever was requested, and read no more than that needs."""
        self.document(command, outcomes, summary)
        self.show(text)

    def tell(
        self, command: str, outcomes: "Iterable[object]", summary: object, sentences: "Iterable[str]"
    ) -> None:
        """Show a command's outcome on stderr, as the user's own command owns standard output."""
        if self.json:
            from gpucache.answers.document import document

            complain("".join(document(command, outcomes, summary)), whole=True)
        for sentence in sentences:
            self.say(f"gpucache: {sentence}")

    def document(self, command: str, outcomes: "Iterable[object]", summary: object) -> None:
        """Write the document for machines to stdout, if it was requested: outcomes, then their summary."""
        if self.json:
            from gpucache.answers.document import document

            for piece in document(command, outcomes, summary):
                click.echo(piece, nl=False)
            click.echo()

    def progress(self) -> "AbstractContextManager[Display]":
        """A bar on stderr for the time of a run, if a user may look at it."""
        from gpucache.answers.console import display

        return display(quiet=self.quiet or self.json)

    def say(self, *sentences: str) -> None:
        if not (self.quiet or self.json):
            sys.stdout.flush()  # the product comes first where both go into one pipe
            for sentence in sentences:
                complain(sentence)


def in_folder(settings: "Settings") -> "Settings":
    """Settings with the directory of a root that is in a file; raises CacheUnusableError, UsageError."""
    if not settings.in_file:
        return settings
    from gpucache.assembly import opened

    return opened(settings, lambda told: complain(f"gpucache: {told}"))


def given() -> Globals:
    value = click.get_current_context().find_root().obj
    return value if isinstance(value, Globals) else Globals()


def global_options(function: F) -> F:
    """Add the global options to a command; each updates the one merged value."""
    options = (
        click.option(
            "--root", metavar="DIR", shell_complete=_folder, expose_value=False, callback=keep,
            help="The cache's directory.",
        ),
        click.option(
            "--json", is_flag=True, expose_value=False, callback=keep, help="Print one JSON document."
        ),
        click.option(
            "--format", metavar="FORM", type=click.Choice(FORMS), expose_value=False, callback=_keep_format,
            help="text, json, markdown, or prometheus (inspect --stats).",
        ),
        click.option(
            "--color", metavar="WHEN", type=click.Choice(["auto", "always", "never"]), expose_value=False,
            callback=_keep_color, help="auto (on a terminal), always or never.",
        ),
        click.option(
            "--quiet", "-q", is_flag=True, expose_value=False, callback=keep, help="Print only errors."
        ),
        click.option(
            "-v", "--verbose", count=True, expose_value=False, callback=keep, help="Print more."
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Put a global option that was given into the one merged value, wherever on the line it is."""
    if value in (None, False, 0):
        return
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, str) and value.startswith("~"):
        from pathlib import Path

        value = str(Path(value).expanduser())
    root = context.find_root()
    so_far = root.obj if isinstance(root.obj, Globals) else Globals()
    root.obj = so_far._replace(**{str(option.name): value})
    if root.obj.quiet and root.obj.verbose:
        raise UsageError("--quiet and --verbose contradict each other; give one of them")


def _keep_format(context: click.Context, option: click.Parameter, value: "str | None") -> None:
    if value == "prometheus" and context.command.name != "inspect":
        raise UsageError("--format prometheus is for 'gpucache inspect --stats'")
    if value == "json":
        root = context.find_root()
        root.obj = (root.obj if isinstance(root.obj, Globals) else Globals())._replace(json=True)
    else:
        keep(context, option, value)


def _keep_color(_: click.Context, __: click.Parameter, value: "str | None") -> None:
    if value is not None:
        from gpucache.answers import console

        console.choose_color(value)


def _folder(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def leave(code: int) -> None:
    sys.stdout.flush()
    click.get_current_context().exit(code)
