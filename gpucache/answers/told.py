"""How a type says which of its values a JSON document tells; ``document`` makes the documents by it.

A type tells every field, in order, each with its docstring as its meaning, or what ``told`` names.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

T = TypeVar("T")

Instant = Annotated[int, "instant"]
"""Nanoseconds since 1970: ``created_ns`` is told as the date ``created``, any other ``_ns`` as ``_ms``."""
Duration = Annotated[int, "duration"]
"""Nanoseconds, told as milliseconds, where the name does not say so."""
OrNull = Annotated[str, "null"]
"""Text that is told as null where it is empty."""

TOLD: dict[type, str] = {}
"""What types tell that do not tell all of their fields as they are."""


def told(keys: str) -> Callable[[type[T]], type[T]]:
    """Make a type tell some keys: names of fields or properties, in order.

    ``key=path.to.it`` names the value of another or of a part, which may be null where the part may be None;
    ``part.*`` stands for all keys of a part, and for a key for each member where that counts an enumeration.
    """

    def kept(kind: type[T]) -> type[T]:
        TOLD[kind] = keys
        return kind

    return kept
