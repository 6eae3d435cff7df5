"""Devices as JSON values, and back. Reading is strict about types, because anybody may have written it."""

from typing import Any

from gpucache.model import Device, Target, Toolchain


def device_to_json(device: Device) -> dict[str, Any]:
    """A device as JSON values."""
    toolchain = device.toolchain
    return {
        "target": None if device.target is None else str(device.target),
        "backend": device.backend,
        "name": device.name,
        "driver_version": device.driver_version,
        "available": device.available,
        "present": device.present,
        "detail": device.detail,
        "files": list(device.files),
        "toolchain": None
        if toolchain is None
        else {
            "implementation": toolchain.implementation,
            "fields": [list(pair) for pair in toolchain.fields],
            "identity": list(toolchain.identity),
        },
    }


def device_from_json(value: object) -> Device:
    """The device of a JSON value; raises ValueError for what is no device, TargetError for its target."""
    record = _mapping(value)
    target = record.get("target")
    return Device(
        target=None if target is None else Target.parse(_text(target)),
        backend=_text(record.get("backend")),
        name=_text(record.get("name")),
        driver_version=_text(record.get("driver_version")),
        available=record.get("available") is True,
        present=record.get("present") is True,
        files=_texts(record.get("files", [])),
        detail=_text(record.get("detail")),
        toolchain=_toolchain(record.get("toolchain")),
    )


def _toolchain(value: object) -> Toolchain | None:
    if value is None:
        return None
    record = _mapping(value)
    pairs = [_texts(pair) for pair in _items(record.get("fields"))]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a toolchain field is a label and a value")
    return Toolchain(
        implementation=_text(record.get("implementation")),
        fields=tuple((pair[0], pair[1]) for pair in pairs),
        identity=_texts(record.get("identity")),
    )


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    return value


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in _items(value))
