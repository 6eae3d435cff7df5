"""``gpucache export``: write a cache of another system, for machines that are not here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpucache.caches.exports import Asked, Form, Kind, Option, forms
from gpucache.cli.files import read_whole
from gpucache.cli.globals import given, global_options
from gpucache.cli.parameters import TargetName, field
from gpucache.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

FORMS = {form.name: form for form in forms()}
_OPTIONS = tuple(dict.fromkeys(option for form in FORMS.values() for option in form.options))
_HELP = f"""Write OUT, a cache file of another system, which its programs then hit.

{" ".join(f"{form.name}: {form.told}" for form in FORMS.values())} OUT is published whole or not at all.
"""


def _options(function: F) -> F:
    """Add every option that a form takes."""
    types: dict[Kind, Any] = {
        Kind.TARGET: TargetName(),
        Kind.FILE: click.Path(path_type=Path, dir_okay=False),
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


@click.command(help=_HELP)
@click.argument("form", metavar="|".join(FORMS), type=click.Choice(tuple(FORMS)))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@_options
@global_options
def export(form: str, out: Path, sources: tuple[Path, ...], **options: Any) -> None:
    """Have the system that a form is of write it."""
    from gpucache.assembly import compile_exactly
    from gpucache.render.tables import exported
    from gpucache.sources import load_program

    if given().verbose:
        raise UsageError("export says all it knows; leave --verbose out")
    wanted = FORMS[form]
    values = _values(wanted, options)
    language = wanted.language
    programs = [] if language is None else [load_program(one, one.name, language) for one in sources]
    done = wanted.write(Asked(out, sources, tuple(programs), values, compile_exactly))
    given().document("export", [done], {"entries": done.entries})
    given().show(exported(done))


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
