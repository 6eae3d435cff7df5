"""The one JSON document of a command, and the one rule that makes JSON values of outcomes.

An outcome becomes the record that the schema has for its type, key by key in the schema's order. What a
key reads is turned into its form: a duration into milliseconds, an instant into text, an enumeration and
any other value of ours into its text, and what is not there into null or an empty text or list. An
undecodable path is escaped.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from textwrap import indent
from typing import Any

from gpucache.render.answers import RECORDS, SUMMARIES
from gpucache.render.schema import SCHEMA, Key
from gpucache.units import format_instant, to_ms

_ROWS_IN_A_PIECE = 200
_KEYS: dict[str | type, tuple[Key, ...]] = {
    each: record.keys for record in RECORDS for each in (record.name, record.outcome) if each
} | SUMMARIES
"""The keys of a record by its name, and those of a record or summary by the type it is made of."""


def document(command: str, outcomes: Iterable[object], summary: object) -> Iterator[str]:
    """The document of a command that ran, piece by piece, so that of many outcomes only text is kept.

    It begins once all outcomes have been read. The summary is read after them, and may count them.
    """
    rows = [indent(_text(json_of(row)), "    ") for row in outcomes]
    whole = _text({"schema": SCHEMA, "command": command, "outcomes": [], "summary": json_of(summary)})
    before, after = whole.split("[]", 1)
    yield before
    yield "[\n" if rows else "["
    for start in range(0, len(rows), _ROWS_IN_A_PIECE):
        yield ",\n" if start else ""
        yield ",\n".join(rows[start : start + _ROWS_IN_A_PIECE])
    yield "\n  ]" if rows else "]"
    yield after


def error_document(command: str, message: str, exit_code: int) -> str:
    """The document of a command that could not run, on one line, as outcomes may stand on lines before it."""
    error = {"message": message, "exit_code": exit_code}
    return json.dumps({"schema": SCHEMA, "command": command, "outcomes": [], "summary": {}, "error": error})


def json_of(value: Any) -> Any:
    """Make a record of an outcome or a summary, also within tables and lists; keep other values."""
    if type(value) in _KEYS:
        return _record(type(value), value)
    if isinstance(value, Mapping):
        return {str(name): json_of(one) for name, one in value.items()}
    return [json_of(one) for one in value] if isinstance(value, list | tuple) else value


def _record(record: str | type, outcome: object) -> dict[str, Any]:
    return {name: read(outcome) for name, read in _readers(record)}


@cache
def _readers(record: str | type) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(key.name, _reader(key)) for key in _KEYS[record]]


def _reader(key: Key) -> Callable[[Any], Any]:
    """The function that makes the value of a key from an outcome."""
    formed = _former(key.form)
    if key.name.endswith("_ms"):
        formed = to_ms
    elif isinstance(key.read, str) and key.read.endswith("_ns"):
        formed = format_instant
    taken = key.read if callable(key.read) else _taker(key.read or key.name.replace("_ms", "_ns"))
    if not key.form.endswith(" or null"):
        return lambda outcome: formed(taken(outcome))

    def read(outcome: Any) -> Any:
        value = taken(outcome)
        return None if value is None or (value == "" and not key.blank) else formed(value)

    return read


def _taker(path: str) -> Callable[[Any], Any]:
    """The function that follows a path of attributes, names in tables and places in rows, as far as the
    first None."""
    steps = path.split(".")

    def taken(value: Any) -> Any:
        for step in steps:
            if value is None:
                return None
            if step.isdigit():
                value = value[int(step)]
            else:
                value = value[step] if isinstance(value, Mapping) else getattr(value, step)
        return value

    return taken


def _former(form: str) -> Callable[[Any], Any]:
    """The function that turns a value into a form."""
    form = form.removesuffix(" or null")
    kind, _, inner = form.partition(" of ")
    if inner:
        of_one = _former(inner)
        if kind == "list":
            return lambda values: [of_one(one) for one in values or ()]
        return lambda table: {name: of_one(one) for name, one in dict(table).items()}
    if form in _KEYS:
        return lambda outcome: _record(form, outcome)
    if form == "text":
        return lambda value: "" if value is None else str(value)
    return lambda value: round(value, 3) if isinstance(value, float) else value


def line_of(outcome: object) -> str:
    """An outcome on a line of its own."""
    return json.dumps(json_of(outcome), ensure_ascii=True)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True)
