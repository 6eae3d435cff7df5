"""The names of rocFFT's Stockham kernels taken apart, leniently, for people. Pure.

Source: rocFFT, ``rtc_stockham_gen.cpp``: ``fft_rtc_<direction>_len<N>[x<M>]_factors_<a>_<b>_wgs_<w>_tpt_<t>``
with parts behind it. The name is all of what tells kernels apart, and opaque to the cache: what is not
known here is shown as it stands.
"""

import re

_BEGIN = re.compile(r"fft_rtc_(fwd|back|inv)_")
_SCHEME = re.compile(r"sb[rc]{2}")
_NUMBERED = (
    (re.compile(r"len(\d+(?:x\d+)*)"), "length"),
    (re.compile(r"dim(\d+)"), "dimensions"),
)
_FOLLOWED = {"wgs": "work-group size", "tpt": "threads per transform"}
_WORDS = {
    "sp": ("precision", "single"),
    "dp": ("precision", "double"),
    "half": ("precision", "half"),
    "unitstride": ("strides", "unit"),
}
_DIRECTIONS = {"fwd": "forward", "back": "backward", "inv": "backward"}
_LONGEST = 2048


def decode(name: str) -> tuple[tuple[str, str], ...]:
    """What a kernel's name says, by label; empty for a name that is not a Stockham kernel's."""
    begin = _BEGIN.match(name[:_LONGEST])
    if begin is None:
        return ()
    tokens = name[begin.end() : _LONGEST].split("_")
    told: dict[str, list[str]] = {"direction": [_DIRECTIONS[begin[1]]]}
    while tokens:
        label, value = _next(tokens)
        told.setdefault(label, []).append(value)
    return tuple((label, " ".join(values)) for label, values in told.items())


def _next(tokens: list[str]) -> tuple[str, str]:
    """Take one part from the front."""
    token = tokens.pop(0)
    if token.startswith("factors"):
        return "factors", "x".join(_numbers(tokens))
    if token in _FOLLOWED and tokens and tokens[0].isdigit():
        return _FOLLOWED[token], tokens.pop(0)
    if token in ("ip", "op"):
        count = 1 if token == "ip" else 2
        formats = [tokens.pop(0) for _ in range(min(count, len(tokens)))]
        return "placement", " ".join([{"ip": "in place", "op": "out of place"}[token], *formats])
    for pattern, label in _NUMBERED:
        if found := pattern.fullmatch(token):
            return label, found[1]
    if _SCHEME.match(token):
        return "scheme", token
    return _WORDS.get(token, ("other parts", token))


def _numbers(tokens: list[str]) -> list[str]:
    found = []
    while tokens and tokens[0].isdigit():
        found.append(tokens.pop(0))
    return found
