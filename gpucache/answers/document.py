"""The one JSON document of a command, made of outcomes by their types.

A record has the keys of its type (``json_keys``). The form of a value follows from its
annotation: text (also of an enumeration or a type that formats itself), number, true or false, record, list
of these, a table for pairs with a name, or null. Instants become dates, durations milliseconds, and missing
values null or empty. An undecodable path is escaped.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from textwrap import indent
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

from gpucache.answers import lookup
from gpucache.json_keys import JSON_KEYS, Duration, Instant, OrNull
from gpucache.units import format_instant, to_ms

SCHEMA = 1
_ROWS_IN_A_PIECE = 200
Make = Callable[[Any], Any]


class Form(NamedTuple):
    """The form of a value in a document."""

    words: str
    """The form in words, such as ``list of number or null``."""
    make: Make
    record: type | None = None
    """The type of a record, also of those in a list."""
    words_of: tuple[type[StrEnum], ...] = ()
    """The enumerations whose words the value can be."""


class Key(NamedTuple):
    """A key of a record."""

    name: str
    form: Form
    path: tuple[str, ...]
    """The attributes that lead to its value."""
    home: tuple[type, str]
    """The type and the attribute that document its meaning."""

    def read(self, value: Any) -> Any:
        """The value under the key for an outcome; a part that is None is null."""
        for step in self.path:
            if value is None:
                return self.form.make(None)
            value = value[step] if isinstance(value, Mapping) else getattr(value, step)
        return self.form.make(value)


def document(command: str, outcomes: Iterable[object], summary: object) -> Iterator[str]:
    """The document of a command that ran, piece by piece; in memory is only the text of its outcomes.

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
    """The document of a command that could not run, on one line, as outcomes may be on lines before it."""
    error = {"message": message, "exit_code": exit_code}
    return json.dumps({"schema": SCHEMA, "command": command, "outcomes": [], "summary": {}, "error": error})


def line_of(outcome: object) -> str:
    return json.dumps(json_of(outcome), ensure_ascii=True)


def json_of(value: Any) -> Any:
    """Make a record of an outcome or a summary, also within tables and lists; keep other values."""
    if isinstance(value, Mapping):
        return {str(name): json_of(one) for name, one in value.items()}
    kind: Any = type(value)
    if kind in JSON_KEYS or hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__"):
        return form(kind).make(value)
    return [json_of(one) for one in value] if isinstance(value, list | tuple) else value


@cache
def keys(kind: Any) -> tuple[Key, ...]:
    """The keys of the records that are made of a type."""
    found: list[Key] = []
    for one in JSON_KEYS.get(kind, " ".join(_hints(kind))).split():
        name, _, path = one.rpartition("=")
        steps = path.removesuffix(".*").split(".")
        last, hint, optional = _follow(kind, steps)
        if path.endswith(".*") and get_origin(hint) is dict:
            members, number = get_args(hint)
            counted = (Key(_word(one), form(number), (*steps, one), (last, steps[-1])) for one in members)
            found += counted
        elif path.endswith(".*"):
            found += (key._replace(path=(*steps, *key.path)) for key in keys(hint))
        else:
            name, hint = (name or _told_name(steps[-1], hint, kind)), _timed(steps[-1], hint, kind)
            made = form(hint | None if optional else hint)
            found.append(Key(name, made, tuple(steps), (last, steps[-1])))
    return tuple(found)


def _word(member: str) -> str:
    return member.replace("-", "_")


def _follow(kind: type, steps: list[str]) -> tuple[type, Any, bool]:
    """The type that has the last of some attributes, its annotation, and whether a part may be None."""
    optional = False
    for number, step in enumerate(steps):
        attribute = getattr(kind, step, None)
        got = attribute.fget if isinstance(attribute, property) else kind
        hint = _hints(got)["return" if isinstance(attribute, property) else step]
        if number + 1 < len(steps):
            parts = [part for part in get_args(hint) if part is not NoneType]
            optional = optional or NoneType in get_args(hint)
            kind = parts[0] if parts else hint
    return kind, hint, optional


@cache
def _hints(of: Any) -> dict[str, Any]:
    """The annotations of a type or a function, without the meanings of fields."""
    return {name: _without_meaning(hint) for name, hint in _annotations(of).items()}


@cache
def _annotations(of: Any) -> dict[str, Any]:
    return get_type_hints(of, localns=vars(lookup), include_extras=True)


def _without_meaning(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    of, *marks = (one for one in get_args(hint) if not isinstance(one, str))
    return Annotated[of, *marks] if marks else of


def meaning(kind: type, field: str) -> str:
    """The text in a field's annotation; empty if it has none."""
    hint = _annotations(kind)[field]
    found = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((one for one in found if isinstance(one, str)), "")


def _told_name(name: str, hint: Any, kind: type) -> str:
    if is_typeddict(kind) or not name.endswith("_ns"):
        return name
    return name.removesuffix("_ns") + ("" if _is(hint, Instant) else "_ms")


def _timed(name: str, hint: Any, kind: type) -> Any:
    """The annotation of an attribute, whose name says whether it is a duration."""
    if is_typeddict(kind) or not name.endswith("_ns") or _is(hint, Instant):
        return hint
    return Duration | None if NoneType in get_args(hint) else Duration


def _is(hint: Any, marked: Any) -> bool:
    return marked in (hint, *get_args(hint))


_PLAIN: dict[Any, Form] = {
    bool: Form("true or false", bool),
    int: Form("number", int),
    float: Form("number", lambda value: round(value, 3) if isinstance(value, float) else value),
    Instant: Form("text", format_instant),
    Duration: Form("number", to_ms),
    OrNull: Form("text or null", lambda value: value or None),
    object: Form("anything", lambda value: value),
    Any: Form("anything", lambda value: value),
}


@cache
def form(hint: Any) -> Form:
    if hint in _PLAIN:
        return _PLAIN[hint]
    inner = get_args(hint)
    if NoneType in inner:
        parts = tuple(one for one in inner if one is not NoneType)
        some = form(parts[0]) if len(parts) == 1 else Form("text", str, words_of=parts)
        made, words = some.make, some.words.removesuffix(" or null")
        return some._replace(
            words=f"{words} or null", make=lambda value: None if value is None else made(value)
        )
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return Form("text", str, words_of=tuple(inner))
    if origin is None or origin is Annotated:
        return _of_a_type(hint)
    if issubclass(origin, Mapping):
        return _table(inner[1])
    if get_origin(inner[0]) is tuple and get_args(inner[0])[1:] not in ((...,), ()):
        return _table(get_args(inner[0])[1])
    each = form(inner[0])
    return each._replace(
        words=f"list of {each.words}", make=lambda values: [each.make(one) for one in values or ()]
    )


def _table(of: Any) -> Form:
    each = form(of)
    return each._replace(
        words=f"table of {each.words}",
        make=lambda table: {str(name): each.make(one) for name, one in dict(table or ()).items()},
    )


def _of_a_type(kind: Any) -> Form:
    if is_typeddict(kind):
        return Form(record_name(kind), lambda value: value, kind)
    if issubclass(kind, str) or kind.__str__ is not object.__str__:
        words = (kind,) if issubclass(kind, StrEnum) else ()
        return Form("text", lambda value: "" if value is None else str(value), words_of=words)
    return Form(record_name(kind), lambda value: {key.name: key.read(value) for key in keys(kind)}, kind)


def record_name(kind: type) -> str:
    """The name of a type's records: ``cache entry`` for ``CacheEntry``."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in kind.__name__).strip()


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True)
