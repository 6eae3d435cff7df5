"""``gpucache export``: write a cache of another system, or a layer, for machines that are not here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpucache.caches.exports import Asked, Form, Kind, Option, forms
from gpucache.cli.files import read_whole
from gpucache.cli.globals import given, global_options
from gpucache.cli.layer import FORM as LAYER
from gpucache.cli.layer import TOLD, export_layer
from gpucache.cli.parameters import Name, PathName, TargetName, field
from gpucache.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

FORMS = {form.name: form for form in forms()}
_OPTIONS = tuple(dict.fromkeys(option for form in FORMS.values() for option in form.options))
_HELP = f"""Write OUT, a cache file of another system, which its programs then hit; or a layer.

{" ".join(f"{form.name}: {form.told}" for form in FORMS.values())} OUT is published whole or not at all.

{TOLD}
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
    from gpucache.sources.discover import load_program

    if form == LAYER:
        _refuse_given(options)
        if sources:
            raise UsageError(f"{LAYER} takes a command behind '--' and no sources; write '-- {sources[0]}'")
        export_layer(out, place or "")
        return
    if given().command or place:
        told = "--at" if place else "a command behind '--'"
        raise UsageError(f"{told} is for {LAYER}; leave it out for {form}")
    if not sources:
        raise UsageError(f"nothing is named that {form} is written of; name its sources")
    if given().verbose:
        raise UsageError("export says all it knows; leave --verbose out")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file for {form}")
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
    """What the options of a form were given, by their names; raises UsageError for those of another form."""
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
