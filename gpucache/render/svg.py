"""Elements of an SVG drawing, and text that fits into it. Pure; knows nothing of what is drawn."""

from collections.abc import Iterator
from html import escape
from textwrap import wrap

_GLYPH = 0.56
"""The mean width of a letter, as a share of the size of its font."""


def clean(text: str) -> str:
    """Text on one line, with what XML cannot hold replaced: controls and undecodable bytes."""
    one_line = " ".join(text.split())
    return "".join(char if _allowed(ord(char)) else "\N{REPLACEMENT CHARACTER}" for char in one_line)


def _allowed(code: int) -> bool:
    below = 0x20 <= code < 0x7F or 0xA0 <= code < 0xD800
    return below or 0xE000 <= code < 0xFFFE or code >= 0x10000


def width_of(text: str, size: float) -> float:
    """The width of a text, estimated."""
    return len(text) * size * _GLYPH


def fitted(text: str, size: float, width: float) -> str:
    """A text shortened in its middle until it fits."""
    most = max(int(width / (size * _GLYPH)), 3)
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (most - 1 - front) :]}"


def lines_of(text: str, size: float, width: float, most: int) -> list[str]:
    """A text broken into at most so many lines; the last is shortened."""
    found = wrap(text, max(int(width / (size * _GLYPH)), 3)) or [""]
    if len(found) <= most:
        return found
    return [*found[: most - 1], fitted(" ".join(found[most - 1 :]), size, width)]


def element(name: str, text: str = "", /, **attributes: str | float) -> str:
    """An element with escaped text and attributes; ``font_size`` stands for ``font-size``."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean(_number(value)))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{escape(clean(text))}</{name}>" if text else f"<{name}{written}/>"


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def nested(name: str, body: Iterator[str] | list[str], **attributes: str) -> str:
    """An element around others."""
    opening = element(name, **attributes).removesuffix("/>") + ">"
    return "\n".join([opening, *body, f"</{name}>"])
