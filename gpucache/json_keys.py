"""The values that a type puts into a JSON document; ``document`` makes the documents accordingly.

A type includes every field, in order, with its docstring as its meaning, or the keys that ``told`` names.
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
    """Make a type include some keys: names of fields or properties, in order.

    ``key=path.to.it`` gives a key the value of another or of a part, null if the part may be None and is;
    ``part.*`` means all keys of a part, or a key for each member if the part counts an enumeration.
    """

    def kept(kind: type[T]) -> type[T]:
        TOLD[kind] = keys
        return kind

    return kept
