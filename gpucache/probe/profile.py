"""Device profiles: a probe's result and the variables that matter, saved for use elsewhere.

This module owns the form of the file and the comparison of two profiles. A profile contains no host name and
no user name. It is read strictly, because anyone may have written it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucache.answers.devices import TargetDifference
from gpucache.backends.interface import backend_names
from gpucache.errors import TargetError, UsageError
from gpucache.host import os_errors
from gpucache.keys import Difference
from gpucache.model import Device, Toolchain
from gpucache.probe.remembered import device_from_json, device_to_json

SCHEMA = 1
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Profile:
    """The devices and compilers of a machine, and the environment that reaches them."""

    devices: tuple[Device, ...]
    environment: Mapping[str, str]


def encode_profile(profile: Profile) -> bytes:
    document = {
        "schema": SCHEMA,
        "devices": [device_to_json(device) for device in profile.devices],
        "environment": dict(sorted(profile.environment.items())),
    }
    return json.dumps(document, indent=2, ensure_ascii=True).encode("ascii") + b"\n"


def decode_profile(data: bytes) -> Profile:
    """The profile in some bytes; raises ValueError, and TargetError for an invalid target."""
    if len(data) > _MAX_BYTES:
        raise ValueError("it is larger than 4 MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    try:
        return _profile(document)
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(str(error)) from None


def save_profile(path: Path, profile: Profile) -> None:
    """Write a profile; raises UsageError if the file cannot be written."""
    new = not path.exists()
    try:
        path.write_bytes(encode_profile(profile))
    except OSError as error:
        if new:
            path.unlink(missing_ok=True)
        raise os_errors.unwritable(path, error, "name another file") from None


def load_profile(path: Path) -> Profile:
    """Read a profile; raises UsageError for a file that is not one."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise os_errors.unreadable(f"the device profile {path}", error, "check its path") from None
    try:
        return decode_profile(data)
    except (ValueError, TargetError) as error:
        raise UsageError(
            f"{path} is not a device profile ({error}); write one there with 'gpucache devices --save FILE'"
        ) from None


def compare(left: Profile, right: Profile) -> list[TargetDifference]:
    """The fields by which two machines would not find each other's entries in a shared cache, by target.

    A compiler is the same on both machines whatever its target is called there, because a platform's name
    has its version only next to another platform of that name. A target that only one of them has is a single
    difference. Targets that both have are compared field by field, and so is the environment.
    """
    lefts, rights = _by_target(left), _by_target(right)
    pairs = _paired(lefts, rights)
    left_only, right_only = Difference("target", "present", None), Difference("target", None, "present")
    found = [TargetDifference(target, left_only) for target in lefts.keys() - pairs.keys()]
    found += [TargetDifference(target, right_only) for target in rights.keys() - pairs.values()]
    for target, other in pairs.items():
        fields = dict(lefts[target].fields), dict(rights[other].fields)
        found += [TargetDifference(target, item) for item in _differing(*fields)]
    found.sort(key=lambda one: one.target)
    found += [
        TargetDifference("environment", item) for item in _differing(left.environment, right.environment)
    ]
    return found


def _profile(document: object) -> Profile:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("it is not of schema 1")
    devices, environment = document.get("devices"), document.get("environment")
    if not isinstance(devices, list) or not isinstance(environment, dict):
        raise ValueError("it lacks devices or environment")
    if not all(isinstance(text, str) for pair in environment.items() for text in pair):
        raise ValueError("its environment is not text")
    return Profile(tuple(_device(value) for value in devices), environment)


def _device(value: object) -> Device:
    device = device_from_json(value)
    if device.backend not in backend_names():
        raise ValueError(f"{device.backend!r} is not a backend")
    if device.target is not None and device.target.backend != device.backend:
        raise ValueError(f"the target {device.target} is not {device.backend}'s")
    return device


def _by_target(profile: Profile) -> dict[str, Toolchain]:
    return {
        str(device.target): device.toolchain
        for device in profile.devices
        if device.target is not None and device.toolchain is not None
    }


def _paired(lefts: Mapping[str, Toolchain], rights: Mapping[str, Toolchain]) -> dict[str, str]:
    """For each target on the left the one on the right with the same build, else version, else device."""
    pairs: dict[str, str] = {}
    for alike in (lambda one: one, _versioned, Toolchain.identity_fields):
        free: dict[object, list[str]] = {}
        for target in sorted(rights.keys() - pairs.values(), reverse=True):
            free.setdefault(alike(rights[target]), []).append(target)
        for target in sorted(lefts.keys() - pairs.keys()):
            if others := free.get(alike(lefts[target])):
                pairs[target] = others.pop()
    return pairs


def _versioned(toolchain: Toolchain) -> object:
    return toolchain.identity_fields(), dict(toolchain.fields).get("driver version")


def _differing(left: Mapping[str, str], right: Mapping[str, str]) -> Sequence[Difference]:
    labels = dict.fromkeys([*left, *right])
    return [
        Difference(label, left.get(label), right.get(label))
        for label in labels
        if left.get(label) != right.get(label)
    ]
