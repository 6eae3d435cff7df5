"""The keys that a type has in a JSON document; ``document`` makes the documents accordingly.

A type has every field, in order, or the keys that ``json_keys`` names. A text in a field's annotation is its
meaning.
"""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, TypeVar

T = TypeVar("T")

_Mark = Enum("_Mark", "INSTANT DURATION NULL")
Instant = Annotated[int, _Mark.INSTANT]
"""Nanoseconds since 1970: ``created_ns`` becomes the date ``created``, any other ``_ns`` becomes ``_ms``."""
Duration = Annotated[int, _Mark.DURATION]
"""Nanoseconds that become milliseconds, where the name does not say so."""
OrNull = Annotated[str, _Mark.NULL]
"""Text that becomes null where it is empty."""

JSON_KEYS: dict[type, str] = {}
"""The keys of types whose fields are not all keys as they are."""


def json_keys(keys: str) -> Callable[[type[T]], type[T]]:
    """Give a type some keys: names of fields or properties, in order.

    ``key=path.to.it`` gives a key the value of another or of a part, null if the part may be None and is;
    ``part.*`` means all keys of a part, or a key for each member if the part counts an enumeration.
    """

    def kept(kind: type[T]) -> type[T]:
        JSON_KEYS[kind] = keys
        return kind

    return kept
