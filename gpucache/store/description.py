"""Head and detail of an entry as canonical JSON, and back. Pure; never trusts what it reads.

Canonical: sorted names, no white space, ASCII only, so that undecodable bytes of a path survive as
escaped lone surrogates. A value of another type than was written raises ValueError with a sentence.
Must not know where in a file the JSON lies, nor how long it may be.
"""

import json
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from gpucache.model import Check, Checks, EntryDetail, EntryHead, KeyField

BUILD_LOG_CAP = 64 << 10
"""Bytes of build log an entry keeps, in UTF-8."""
_CUT = "\n[cut]"
_NAMES = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}
_T = TypeVar("_T")


def encode_head(head: EntryHead) -> bytes:
    """Canonical JSON of a head."""
    values = head._asdict()
    failures = [[str(one.line), one.message, one.function, one.file] for one in head.failures]
    return _canonical(values | {"lowered_names": dict(head.lowered_names), "failures": failures})


def decode_head(data: bytes) -> EntryHead:
    """The head of its JSON; raises ValueError or RecursionError when it is not one."""
    (
        program,
        target,
        artifact_kind,
        created_ns,
        compile_ns,
        payload_sha256,
        language,
        variant,
        options,
        local_sizes,
        located,
        lowered_names,
        toolchain,
        toolchain_identity,
        failures,
        place,
        has_log,
        checks,
    ) = _HEAD(_object(data))
    if not (0 <= created_ns < _NUMBERS and 0 <= compile_ns < _NUMBERS):
        raise ValueError("a whole number is out of range")
    for name in lowered_names.values():
        _of(str, name)
    # By position, and without a call for what is empty: a hit takes microseconds.
    return EntryHead(
        program,
        target,
        artifact_kind,
        created_ns,
        compile_ns,
        payload_sha256,
        language,
        variant,
        _texts(options) if options else (),
        tuple(map(_size, local_sizes)) if local_sizes else (),
        located,
        lowered_names,
        _pairs(toolchain) if toolchain else (),
        _texts(toolchain_identity) if toolchain_identity else (),
        tuple(map(_check, failures)) if failures else (),
        place,
        has_log,
        checks,
    )


def encode_detail(detail: EntryDetail) -> bytes:
    """Canonical JSON of a detail, its build log cut at ``BUILD_LOG_CAP``."""
    return _canonical(
        {
            "key_fields": [[item.label, item.value] for item in detail.key_fields],
            "build_log": _cut(detail.build_log),
            "tool_version": detail.tool_version,
            "provenance": [list(pair) for pair in detail.provenance],
        }
    )


def decode_detail(data: bytes) -> EntryDetail:
    """The detail of its JSON; raises ValueError or RecursionError when it is not one."""
    key_fields, build_log, tool_version, provenance = _DETAIL(_object(data))
    return EntryDetail(
        key_fields=tuple(KeyField(label, value) for label, value in _pairs(key_fields)),
        build_log=build_log,
        tool_version=tool_version,
        provenance=_pairs(provenance),
    )


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
        raise ValueError("something follows its JSON")
    return _of(dict, value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


class _Shape:
    """Field names with the exact types of their values; called with an object, it returns these values.

    ``defaults`` are the values of fields that older objects do not have.
    """

    def __init__(self, defaults: dict[str, Any], **kinds: type) -> None:
        self._get = itemgetter(*kinds)
        self._kinds = tuple(kinds.values())
        self._defaults = defaults

    def __call__(self, values: dict[str, Any]) -> tuple[Any, ...]:
        try:
            row: tuple[Any, ...] = self._get(values)
        except KeyError as error:
            if error.args[0] not in self._defaults:
                raise ValueError(f"the field {error.args[0]} is missing") from None
            return self(self._defaults | values)
        # By exact type: True is an int to isinstance.
        if tuple(map(type, row)) != self._kinds:
            for kind, value in zip(self._kinds, row, strict=True):
                _of(kind, value)
        return row


def _of(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise ValueError(f"{_NAMES[kind]} was expected, not {type(value).__name__}")
    return value


def _size(value: object) -> tuple[int, ...]:
    size = _of(list, value)
    if not all(type(item) is int and 0 <= item < _NUMBERS for item in size):
        raise ValueError("a whole number in range was expected")
    return tuple(size)


def _texts(value: object) -> tuple[str, ...]:
    texts = _of(list, value)
    for text in texts:
        if type(text) is not str:
            _of(str, text)
    return tuple(texts)


def _check(value: object) -> Check:
    line, message, *place = _texts(value)
    if len(place) not in (0, 2):  # older tables have neither function nor file
        raise ValueError("a row of the failure table was expected")
    return Check(int(line), message, *place)


def _pairs(value: list[Any]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(map(_texts, value))
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError("a pair was expected")
    return pairs  # type: ignore[return-value] # each was just seen to be one


_NUMBERS = 1 << 63
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_HEAD = _Shape(
    {"place": "", "has_log": False, "checks": Checks.NONE.value},
    program=str,
    target=str,
    artifact_kind=str,
    created_ns=int,
    compile_ns=int,
    payload_sha256=str,
    language=str,
    variant=str,
    options=list,
    local_sizes=list,
    located=bool,
    lowered_names=dict,
    toolchain=list,
    toolchain_identity=list,
    failures=list,
    place=str,
    has_log=bool,
    checks=str,
)
_DETAIL = _Shape({}, key_fields=list, build_log=str, tool_version=str, provenance=list)
