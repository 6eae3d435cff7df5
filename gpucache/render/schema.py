"""What a name in a JSON document is: a key of a record, its form, its meaning, and where it is read from.

``document`` makes the documents by these tables, and ``answers`` says which verb answers with which
record; the tests hold the documents against both, and the manual page is made of them. A form is
``text``, ``number``, ``true or false``, ``anything``, the name of a record, ``list of ...`` or
``table of ...`` of these, and ``... or null``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

SCHEMA = 1
Read = str | Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record."""

    name: str
    form: str
    meaning: str
    read: Read = ""
    """Where its value stands in the outcome: the path of an attribute, such as ``location.root``, or a
    function of the outcome. Empty where the attribute is called as the key, with ``_ns`` for ``_ms``."""
    blank: bool = False
    """Whether empty text is a value of its own; otherwise a key that may be null is null for it."""


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a document; every key is always there."""

    name: str
    meaning: str
    keys: tuple[Key, ...]
    outcome: type | None = None
    """The type it is made of; None where it is written as it was read, or made of a row of values."""


def one_of(*kinds: Iterable[StrEnum]) -> str:
    """The values of some enumerations, as the words of a meaning."""
    return f"one of {', '.join(value.value for kind in kinds for value in kind)}"


def within(part: str, keys: Iterable[Key]) -> tuple[Key, ...]:
    """The same keys, whose values stand in a part of the outcome."""
    return tuple(
        replace(key, read=f"{part}.{key.read or key.name.replace('_ms', '_ns')}")
        for key in keys
        if isinstance(key.read, str)
    )
