"""Encodes head and detail of an entry as canonical JSON and decodes them. Pure; trusts no input.

Canonical: sorted names, no white space, ASCII only, so that undecodable bytes of a path survive as
escaped lone surrogates. A value of the wrong type raises ValueError with a sentence.
Must not know where in a file the JSON is, or how long it may be.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from gpucache.model import Check, Checks, EntryDetail, EntryHead, KeyField

BUILD_LOG_CAP = 64 << 10
"""Bytes of build log that an entry keeps, in UTF-8."""
_CUT = "\n[cut]"
_NAMES = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}
_T = TypeVar("_T")


def encode_head(head: EntryHead) -> bytes:
    values = head._asdict()
    failures = [[str(one.line), one.message, one.function, one.file] for one in head.failures]
    return _canonical(values | {"lowered_names": dict(head.lowered_names), "failures": failures})


def decode_head(data: bytes) -> EntryHead:
    """Parse the JSON of a head; raises ValueError or RecursionError if it is invalid."""
    row = _HEAD(_head(data))
    # By position, and without a call for an empty list: a hit takes microseconds.
    for place, read in _READ:
        value = row[place]
        row[place] = read(value) if value else ()
    head = EntryHead._make(row)
    if not (0 <= head.created_ns < _NUMBERS and 0 <= head.compile_ns < _NUMBERS):
        raise ValueError("a whole number is out of range")
    _texts([*head.lowered_names.values()])
    return head


Parts = tuple[int, int, int, int, int, int]
"""Of a head that ``native/scan.c`` took apart: the sizes of frame, options, place and program, which the
SHA-256 of the payload follows, ``compile_ns`` and ``created_ns``. The first is 0 of a head that is whole."""


def join_head(data: bytes, parts: Parts) -> EntryHead:
    """The head that was taken apart; raises ValueError or RecursionError as ``decode_head`` does."""
    frame, options, place, program, compile_ns, created_ns = parts
    of, at = _frame(data[:frame]), frame + options
    texts = data[at:].decode()
    program += place
    return EntryHead(
        texts[place:program],
        of.target,
        of.artifact_kind,
        created_ns,
        compile_ns,
        texts[program : program + 64],
        of.language,
        of.variant,
        _options(data[frame:at]),
        of.local_sizes,
        of.located,
        of.lowered_names,
        of.toolchain,
        of.toolchain_identity,
        of.failures,
        texts[:place],
        of.has_log,
        of.checks,
    )


@lru_cache(maxsize=256)
def _frame(data: bytes) -> EntryHead:
    """The values that many heads share; the others are empty, or the head has a field twice."""
    head = decode_head(data)
    if (
        head.program
        or head.created_ns
        or head.compile_ns
        or head.payload_sha256
        or head.options
        or head.place
    ):
        raise ValueError("a field is there twice")
    return head


@lru_cache(maxsize=256)
def _options(data: bytes) -> tuple[str, ...]:
    return _texts(_DECODER.decode(data.decode()))


def encode_detail(detail: EntryDetail) -> bytes:
    """The canonical JSON of a detail, with its build log cut at ``BUILD_LOG_CAP``."""
    return _canonical(
        {
            "key_fields": [[item.label, item.value] for item in detail.key_fields],
            "build_log": _cut(detail.build_log),
            "tool_version": detail.tool_version,
            "provenance": [list(pair) for pair in detail.provenance],
        }
    )


def decode_detail(data: bytes) -> EntryDetail:
    """Parse the JSON of a detail; raises ValueError or RecursionError if it is invalid."""
    key_fields, build_log, tool_version, provenance = _DETAIL(_object(data))
    fields = tuple(KeyField(label, value) for label, value in _pairs(key_fields))
    return EntryDetail(fields, build_log, tool_version, _pairs(provenance))


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _cut(log: str) -> str:
    data = log.encode("utf-8", "surrogatepass")
    if len(data) <= BUILD_LOG_CAP:
        return log
    return data[: BUILD_LOG_CAP - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _object(data: bytes) -> dict[str, Any]:
    text = data.decode()
    value, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("data follows its JSON")
    return _of(dict, value)


def _head(data: bytes) -> dict[str, Any]:
    """The object of a head; its end, from the target on, which many entries share, is parsed once.

    Both parts are objects by themselves, or the whole is parsed.
    """
    at = data.rfind(b',"target":')
    try:
        front, end = _object(data[:at] + b"}"), _end(b"{" + data[at + 1 :])
        if end.keys() >= _READ_AT_ONCE.keys():
            return {**front, **end}
    except ValueError:
        pass
    return _read_at_once(data)


def _read_at_once(data: bytes) -> dict[str, Any]:
    values = _object(data)
    for name in _READ_AT_ONCE.keys() & values.keys():
        values[name] = _READ_AT_ONCE[name](_of(list, values[name]))
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


class _Shape:
    """The fields of a named tuple; called with a JSON object, it returns their values, type-checked.

    ``defaults`` are the values of fields that older objects lack.
    """

    def __init__(self, defaults: dict[str, Any], shown: type) -> None:
        kinds: dict[str, Any] = {
            name: getattr(kind, "__origin__", kind) for name, kind in shown.__annotations__.items()
        }
        self._get = itemgetter(*kinds)
        self._kinds: list[type] = [
            kind if name in _READ_AT_ONCE else _JSON.get(kind, kind) for name, kind in kinds.items()
        ]
        self._defaults = defaults

    def __call__(self, values: dict[str, Any]) -> list[Any]:
        try:
            row = list(self._get(values))
        except KeyError as error:
            if error.args[0] not in self._defaults:
                raise ValueError(f"the field {error.args[0]} is missing") from None
            return self(self._defaults | values)
        # Exact types, because isinstance accepts True as an int.
        if [*map(type, row)] != self._kinds:
            for kind, value in zip(self._kinds, row, strict=True):
                _of(kind, value)
        return row


def _of(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise ValueError(f"{_NAMES[kind]} was expected, not {type(value).__name__}")
    return value


def _sizes(value: list[Any]) -> tuple[tuple[int, ...], ...]:
    sizes = tuple(tuple(_of(list, size)) for size in value)
    if not all(type(item) is int and 0 <= item < _NUMBERS for size in sizes for item in size):
        raise ValueError("a whole number in range was expected")
    return sizes


def _texts(value: object) -> tuple[str, ...]:
    texts = _of(list, value)
    for text in texts:
        if type(text) is not str:
            _of(str, text)
    return tuple(texts)


def _checks(value: list[Any]) -> tuple[Check, ...]:
    rows = [_texts(row) for row in value]
    if not all(len(row) in (2, 4) for row in rows):  # older tables lack function and file
        raise ValueError("a row of the failure table was expected")
    return tuple(Check(int(line), *rest) for line, *rest in rows)


def _pairs(value: list[Any]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(map(_texts, value))
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError("a pair was expected")
    return pairs  # type: ignore[return-value] # each was just checked to be one


_end = lru_cache(maxsize=256)(_read_at_once)
_NUMBERS = 1 << 63
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_JSON: dict[Any, Any] = {tuple: list, Mapping: dict}
_READ_AT_ONCE: Mapping[str, Callable[[list[Any]], object]] = {
    "toolchain": _pairs,
    "toolchain_identity": _texts,
}
_HEAD = _Shape({"place": "", "has_log": False, "checks": Checks.NONE.value}, EntryHead)
_DETAIL = _Shape({}, EntryDetail)
_READ: list[tuple[int, Callable[[list[Any]], object]]] = [
    (EntryHead._fields.index(name), read)
    for name, read in (
        ("options", _texts),
        ("local_sizes", _sizes),
        ("failures", _checks),
    )
]
"""The lists of a head by position, with the functions that turn them into tuples."""
