"""Devices to JSON and back, whatever is in a file."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.errors import TargetError
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.remembered import device_from_json, device_to_json

_TEXT = st.text(max_size=8)
_NAME = st.text(alphabet="abc/_-09", min_size=1, max_size=6)
_TOOLCHAINS = st.builds(
    Toolchain,
    _TEXT,
    st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple),
    st.lists(_TEXT, max_size=3).map(tuple),
)
_DEVICES = st.builds(
    Device,
    st.none() | st.builds(Target, _NAME, _NAME),
    _TEXT,
    _TEXT,
    _TEXT,
    st.booleans(),
    _TEXT,
    st.none() | _TOOLCHAINS,
    st.booleans(),
)


@given(_DEVICES)
def test_a_device_comes_back_as_it_was(device: Device) -> None:
    """A device is unchanged after JSON and back."""
    assert device_from_json(json.loads(json.dumps(device_to_json(device)))) == device


_KEYS = st.sampled_from(
    [
        "target",
        "backend",
        "name",
        "driver_version",
        "available",
        "present",
        "detail",
        "toolchain",
        "implementation",
        "fields",
        "identity",
    ]
)
_JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=2), inner, max_size=8)
    ),
    max_leaves=12,
)
_DEVICE = Device(Target("a", "b"), "a", "n", "1", True, "d", Toolchain("i", (("x", "y"),), ("x",)), True)
_GOOD = json.loads(json.dumps(device_to_json(_DEVICE)))


def _is_device_or_refused(value: object) -> None:
    with suppress(ValueError, TargetError):
        assert isinstance(device_from_json(value), Device)


@given(_JUNK)
def test_junk_is_refused(value: object) -> None:
    """Any content is a device or is refused, and nothing else happens."""
    _is_device_or_refused(value)


@given(_KEYS, _JUNK, st.booleans())
def test_one_bad_value_is_refused(key: str, value: object, inside: bool) -> None:
    """A device with any value replaced is a device or is refused."""
    if inside:
        _is_device_or_refused({**_GOOD, "toolchain": {**_GOOD["toolchain"], key: value}})
    else:
        _is_device_or_refused({**_GOOD, key: value})


@pytest.mark.parametrize("key", ["backend", "name", "driver_version", "detail"])
def test_texts_are_needed(key: str) -> None:
    """A device without one of its texts is refused."""
    with pytest.raises(ValueError, match="expected text"):
        device_from_json({name: value for name, value in _GOOD.items() if name != key})


@pytest.mark.parametrize("fields", [[["x"]], [["x", "y", "z"]], [["x", 1]], {"x": "y"}, "xy"])
def test_toolchain_fields_are_pairs_of_text(fields: object) -> None:
    """A toolchain field that is not a label with a value is refused."""
    with pytest.raises(ValueError, match=r"expected|a toolchain field is"):
        device_from_json({**_GOOD, "toolchain": {**_GOOD["toolchain"], "fields": fields}})


def test_a_malformed_target_is_refused() -> None:
    """A target that is not BACKEND:NAME is refused as such."""
    with pytest.raises(TargetError, match="write BACKEND:NAME"):
        device_from_json({**_GOOD, "target": "sm_90"})
