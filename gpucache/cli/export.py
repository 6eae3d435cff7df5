"""``gpucache export``: write a cache of another system, or a layer, for other machines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpucache.caches.exports import Asked, Form, Kind, Option, forms
from gpucache.cli.globals import given, global_options, leave
from gpucache.cli.parameters import Name, PathName, TargetName, field, read_whole
from gpucache.cli.run import build_noted, end_as, named_command
from gpucache.cli.running import Services, libraries
from gpucache.cli.streams import complain
from gpucache.errors import ExitCode, UsageError

F = TypeVar("F", bound=Callable[..., Any])

LAYER = "layer"
_TOLD = f"""{LAYER}: OUT is a directory for images and services, whose programs are served without gpucache.
The command after -- runs as under 'gpucache run', and all that it asked its compilers for is looked up
afterwards; several commands may add to one OUT. It holds libraries, an index that these read by themselves,
and gpucache.env with the variables, for docker run --env-file, systemd's EnvironmentFile= and, between
set -a and set +a, a shell.

A program is served where it asks for exactly the same on the same kind of device, and the contents of all
headers, the compiler's own files, the variables that reach it and the CPU are as they were; headers and
compilers keep their paths, and a driver of a GPU may be mounted there. GPUCACHE_LAYER_TELL=1 prints each hit,
and each miss with what differs. Headers in memory, headers that are included through macros and compilers
that 'gpucache run' does not reach are not covered. If nothing is printed, no library of OUT was loaded: built
by cc these need a glibc as new as this machine's. OUT holds sources, and everybody may read it. Where nothing
could be exported, none is made."""
"""The text on this form in the help of export."""
FORMS = {form.name: form for form in forms()}
_OPTIONS = tuple(dict.fromkeys(option for form in FORMS.values() for option in form.options))
_HELP = f"""Write OUT, a cache file of another system, which its programs then hit; or a layer.

{" ".join(f"{form.name}: {form.told}" for form in FORMS.values())} OUT is published whole or not at all.

{_TOLD}
"""


def _options(function: F) -> F:
    """Add every option that a form takes."""
    types: dict[Kind, Any] = {
        Kind.TARGET: TargetName(),
        Kind.FILE: PathName(dir_okay=False),
    }
    for option in reversed(_OPTIONS):
        flag = option.kind is Kind.FLAG
        function = click.option(
            option.name,
            metavar=option.metavar or None,
            type=types.get(option.kind),
            is_flag=flag,
            multiple=option.many,
            help=option.told,
        )(function)
    return function


@click.command(help=_HELP, options_metavar="[OPTIONS]")
@click.argument("form", metavar="|".join((*FORMS, LAYER)), type=click.Choice((*FORMS, LAYER)))
@click.argument("out", metavar="OUT", type=PathName())
@click.argument("sources", metavar="[SOURCE...|-- COMMAND...]", nargs=-1, type=PathName())
@click.option(
    "--at",
    "place",
    metavar="PLACE",
    type=Name(),
    help=f"{LAYER}: where OUT will lie when it is used, if not here.",
)
@_options
@global_options
def export(form: str, out: Path, sources: tuple[Path, ...], place: str | None, **options: Any) -> None:
    """Have the system that a form is of write it, or write a layer."""
    from gpucache.answers.export import exported
    from gpucache.assembly import compile_exactly
    from gpucache.sources.disk import load_program

    if form == LAYER:
        _refuse_given(options)
        if sources:
            raise UsageError(f"{LAYER} takes a command behind '--' and no sources; write '-- {sources[0]}'")
        _export_layer(out, place or "")
        return
    if given().command or place:
        told = "--at" if place else "a command behind '--'"
        raise UsageError(f"{told} is for {LAYER}; leave it out for {form}")
    if not sources:
        raise UsageError(f"nothing is named that {form} is written of; name its sources")
    if given().verbose:
        raise UsageError("export says all it knows; leave --verbose out")
    if out.is_dir():
        raise UsageError(f"{out} is a directory; name a file for {form}")
    wanted = FORMS[form]
    values = _values(wanted, options)
    language = wanted.language
    programs = [] if language is None else [load_program(one, one.name, language) for one in sources]
    done = wanted.write(Asked(out, sources, tuple(programs), values, compile_exactly))
    given().answer("export", [done], {"entries": done.entries}, exported(done))


def _refuse_given(options: dict[str, Any]) -> None:
    """Raise UsageError for an option of another form."""
    for option in _OPTIONS:
        if options[option.name.lstrip("-").replace("-", "_")]:
            raise UsageError(f"{option.name} is not for {LAYER}; leave it out")


def _values(form: Form, options: dict[str, Any]) -> dict[str, Any]:
    """The values given for the options of a form, by name; raises UsageError for options of another form."""
    by_name = {option.name: options[option.name.lstrip("-").replace("-", "_")] for option in _OPTIONS}
    for name, value in by_name.items():
        if value and name not in {option.name for option in form.options}:
            raise UsageError(f"{name} is not for {form.name}; leave it out")
    return {option.name: _value(option, by_name[option.name]) for option in form.options}


def _value(option: Option, value: Any) -> Any:
    if option.kind is Kind.FIELD:
        return tuple(field(option.name, text, f"; {option.remedy}") for text in value)
    if option.kind is Kind.FILE and value is not None:
        try:
            return read_whole(value)
        except OSError as error:
            raise UsageError(f"{value} cannot be read ({error.strerror}); {option.remedy}") from None
    return value


def _export_layer(folder: Path, place: str) -> None:
    """Run the command, and write a layer that serves its builds, for use at ``place``."""
    from gpucache.answers.layer import layer_line, left, summarise_layer
    from gpucache.assembly import open_layers
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.host.scratch import absent, remove_empty, scratch
    from gpucache.serve.command import run_command
    from gpucache.serve.environment import REQUIRE
    from gpucache.serve.layer import Layer
    from gpucache.serve.layering import Questions
    from gpucache.serve.server import Later
    from gpucache.serve.wire import NVRTC, OPENCL

    command = named_command("export")
    settings, found = given().settings(), libraries()
    questions = Questions(open_layers(settings, command=Path(command[0]).name), found)
    new = absent(folder.absolute())
    layer = Layer(folder, place)
    try:
        make = Services(settings, Path(command[0]).name, found)
        opencl, nvrtc = Later(make.opencl, OPENCL), Later(make.nvrtc, NVRTC)
        with scratch("layer") as caches:  # a library's own cache would hide its builds
            environ = {**given().environment(), **KnownCaches(given().environment()).isolate(caches)}
            environ.pop(REQUIRE, None)  # misses are built for the layer
            handlers = questions.heard({**opencl.handlers, **nvrtc.handlers})
            ended = run_command(command, environ, found, handlers)
        opencl.finish(), nvrtc.finish()
        noted = frozenset() if opencl.made is None else opencl.made.noted
        if noted and build_noted(settings, noted)[1]:
            raise KeyboardInterrupt(f"nothing was exported, and {folder} is as it was")
        outcomes, rows, kinds = [], [], set()
        for kind, outcome, row in questions.answers():
            outcomes.append(outcome)
            if row is not None:
                rows.append(row)
                kinds.add(kind)
        # A command without stored builds makes no new layer, as it would serve no program.
        answers, size = layer.add(sorted(kinds), rows) if rows or layer.exists else (0, 0)
    finally:
        remove_empty(new)
    if questions.too_many:
        complain("gpucache: the command asked for more than is kept; export with fewer builds at once")
    summary = summarise_layer(command[0], ended, str(folder), outcomes, answers, size)
    told = [*left(outcomes, whole=given().whole), layer_line(summary)]
    given().tell("export", outcomes, summary, told)
    if not (ended.code or answers):
        leave(ExitCode.FINDINGS)
    end_as(ended)
