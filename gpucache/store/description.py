"""Head and detail of an entry as canonical JSON, and back. Pure; never trusts what it reads.

Canonical: sorted names, no white space, ASCII only, so that undecodable bytes of a path survive as
escaped lone surrogates. A value of another type than was written raises ValueError with a sentence.
Must not know where in a file the JSON lies, nor how long it may be.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from typing import NoReturn, TypeVar

from gpucache.model import Check, Checks, EntryDetail, EntryHead, KeyField

BUILD_LOG_CAP = 64 << 10
"""Bytes of build log an entry keeps, in UTF-8."""
_CUT = "\n[cut]"
_NAMES = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}
_T = TypeVar("_T")


def encode_head(head: EntryHead) -> bytes:
    """Canonical JSON of a head."""
    values = {item.name: getattr(head, item.name) for item in fields_of(head)}
    failures = [[str(one.line), one.message, one.function, one.file] for one in head.failures]
    return _canonical(values | {"lowered_names": dict(head.lowered_names), "failures": failures})


def decode_head(data: bytes) -> EntryHead:
    """The head of its JSON; raises ValueError or RecursionError when it is not one."""
    values = _object(data)
    return EntryHead(
        program=_of(str, values["program"]),
        target=_of(str, values["target"]),
        artifact_kind=_of(str, values["artifact_kind"]),
        created_ns=_number(values["created_ns"]),
        compile_ns=_number(values["compile_ns"]),
        payload_sha256=_of(str, values["payload_sha256"]),
        language=_of(str, values["language"]),
        variant=_of(str, values["variant"]),
        options=_texts(values["options"]),
        local_sizes=tuple(_numbers(size) for size in _of(list, values["local_sizes"])),
        located=_of(bool, values["located"]),
        lowered_names={name: _of(str, low) for name, low in _of(dict, values["lowered_names"]).items()},
        toolchain=_pairs(values["toolchain"]),
        toolchain_identity=_texts(values["toolchain_identity"]),
        failures=tuple(_check(_texts(row)) for row in _of(list, values["failures"])),
        place=_of(str, values.get("place", "")),  # heads of before there were places have none
        has_log=_of(bool, values.get("has_log", False)),  # nor do they tell of a log
        checks=_of(str, values.get("checks", Checks.NONE.value)),
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
    values = _object(data)
    return EntryDetail(
        key_fields=tuple(KeyField(label, value) for label, value in _pairs(values["key_fields"])),
        build_log=_of(str, values["build_log"]),
        tool_version=_of(str, values["tool_version"]),
        provenance=_pairs(values["provenance"]),
    )


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _cut(log: str) -> str:
    data = log.encode("utf-8", "surrogatepass")
    if len(data) <= BUILD_LOG_CAP:
        return log
    return data[: BUILD_LOG_CAP - len(_CUT)].decode("utf-8", "ignore") + _CUT


class _Fields(dict[str, object]):
    def __missing__(self, name: str) -> NoReturn:
        raise ValueError(f"the field {name} is missing")


def _object(data: bytes) -> Mapping[str, object]:
    return _Fields(_of(dict, json.loads(data, parse_constant=_refuse)))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _of(kind: type[_T], value: object) -> _T:
    # By exact type: True is an int to isinstance.
    if type(value) is not kind:
        raise ValueError(f"{_NAMES[kind]} was expected, not {type(value).__name__}")
    return value


def _number(value: object) -> int:
    number = _of(int, value)
    if not 0 <= number < 1 << 63:
        raise ValueError("a whole number is out of range")
    return number


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(_number(item) for item in _of(list, value))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))


def _check(row: Sequence[str]) -> Check:
    line, message, *place = row
    if len(place) not in (0, 2):  # tables of before they told of functions and files have neither
        raise ValueError("a row of the failure table was expected")
    return Check(int(line), message, *place)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs = [_texts(item) for item in _of(list, value)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a pair was expected")
    return tuple((pair[0], pair[1]) for pair in pairs)
