"""Devices as JSON values, and back. Reading is strict about types, because anybody may have written it."""

from typing import Any, TypeVar

from gpucache.model import Device, Target, Toolchain

_T = TypeVar("_T")
_NAMES: dict[type, str] = {str: "text", list: "a list", dict: "an object"}


def device_to_json(device: Device) -> dict[str, Any]:
    """A device as JSON values."""
    target, toolchain = device.target, device.toolchain
    return device._asdict() | {
        "target": None if target is None else str(target),
        "toolchain": None if toolchain is None else toolchain._asdict(),
    }


def device_from_json(value: object) -> Device:
    """The device of a JSON value; raises ValueError if it is not a device, TargetError for its target."""
    record = _of(dict, value)
    target, toolchain = record.get("target"), record.get("toolchain")
    return Device(
        target=None if target is None else Target.parse(_of(str, target)),
        backend=_of(str, record.get("backend")),
        name=_of(str, record.get("name")),
        driver_version=_of(str, record.get("driver_version")),
        available=record.get("available") is True,
        detail=_of(str, record.get("detail")),
        toolchain=None if toolchain is None else _toolchain(_of(dict, toolchain)),
        present=record.get("present") is True,
        files=_texts(record.get("files", [])),
    )


def _toolchain(record: dict[str, object]) -> Toolchain:
    pairs = [_texts(pair) for pair in _of(list, record.get("fields"))]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a toolchain field is a label and a value")
    fields = tuple((label, value) for label, value in pairs)
    return Toolchain(_of(str, record.get("implementation")), fields, _texts(record.get("identity")))


def _of(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise ValueError(f"expected {_NAMES[kind]}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))
