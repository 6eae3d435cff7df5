"""The keys that a type has in a JSON document; ``document`` makes the documents accordingly.

A type has every field, in order, with its docstring as its meaning, or the keys that ``json_keys`` names.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

T = TypeVar("T")

Instant = Annotated[int, "instant"]
"""Nanoseconds since 1970: ``created_ns`` becomes the date ``created``, any other ``_ns`` becomes ``_ms``."""
Duration = Annotated[int, "duration"]
"""Nanoseconds that become milliseconds, where the name does not say so."""
OrNull = Annotated[str, "null"]
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
