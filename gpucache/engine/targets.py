"""The devices that a command means, by their names and the results of a probe. Pure."""

import re
from collections.abc import Iterable, Sequence

from gpucache.errors import NoDeviceError, TargetError
from gpucache.model import Device, Target
from gpucache.units import format_list

_VERSION = re.compile(r"-(\d+(?:\.\d+)*)([^/]*)/")
"""The version that distinguishes platforms of one name, as in ``opencl:pocl-3.0-rc2/cpu``."""


def select_target(text: str, devices: Sequence[Device]) -> Device:
    """The device that a text means, by its target or an unambiguous beginning of that.

    Of several versions of one platform the newest that can compile is meant.

    Raises TargetError for a target that is malformed, unknown or ambiguous, NoDeviceError if its backend has
    no compiler on this machine.
    """
    wanted = Target.parse(text)
    own = [device for device in devices if device.backend == wanted.backend]
    usable = [device for device in own if device.target is not None and device.available]
    for device in usable:
        if device.target == wanted:
            return device
    specific = _specific(wanted, usable)
    if specific is not None:
        return specific
    begun = _newest(text, [device for device in usable if _begins(device, text)])
    if len(begun) == 1:
        return begun[0]
    if begun:
        *names, last = [str(device.target) for device in begun]
        raise TargetError(f"{text!r} could be {', '.join(names)} or {last}; name one of them in full")
    raise _unknown(text, wanted, own, usable)


def told_choice(text: str, devices: Sequence[Device]) -> str:
    """A sentence that says which of several devices a text means; empty if it means only one."""
    begun = [device for device in devices if _begins(device, text)]
    chosen = _newest(text, [device for device in begun if device.available])
    if len(begun) < 2 or len(chosen) != 1 or any(str(device.target) == text for device in begun):
        return ""
    others = ", ".join(str(device.target) for device in begun if device not in chosen)
    return f"{text} means {chosen[0].target} here, the newest that can compile, and not {others}."


def default_devices(devices: Iterable[Device], backend: str) -> list[Device]:
    """The devices of a backend that are in this machine and can be compiled for."""
    return [
        device
        for device in devices
        if device.backend == backend and device.available and device.present and device.target is not None
    ]


def _specific(wanted: Target, usable: Sequence[Device]) -> Device | None:
    """The device for an architecture with a suffix, such as sm_90a, made from that of the plain number."""
    match = re.fullmatch(r"((?:sm|compute)_\d+)[af]", wanted.name)
    plain = next((device for device in usable if match and device.target == Target("cuda", match[1])), None)
    if plain is None or plain.toolchain is None:
        return None
    fields = tuple(
        (label, wanted.name if label == "architecture" else value) for label, value in plain.toolchain.fields
    )
    return plain._replace(target=wanted, toolchain=plain.toolchain._replace(fields=fields), present=False)


def _newest(text: str, begun: list[Device]) -> list[Device]:
    """Of devices whose platforms differ in version, those of the newest; a release candidate is older."""
    found = [_VERSION.match(str(device.target), len(text)) for device in begun]
    ages = [(tuple(map(int, one[1].split("."))), "rc" not in one[2]) for one in found if one is not None]
    if not ages or len(ages) < len(begun):
        return begun
    return [device for device, age in zip(begun, ages, strict=True) if age == max(ages)]


def _begins(device: Device, text: str) -> bool:
    name = str(device.target)
    return (
        device.backend == "opencl"
        and name.startswith(text)
        and name[len(text) : len(text) + 1] in ("", "/", "-")
    )


def _unknown(text: str, wanted: Target, own: Sequence[Device], usable: Sequence[Device]) -> Exception:
    for device in own:
        if device.target == wanted or _begins(device, text):
            return NoDeviceError(f"{device.target} cannot be compiled for here: {device.detail}")
    if not usable:
        reasons = "; ".join(device.detail for device in own) or f"no backend is named {wanted.backend!r}"
        kind = NoDeviceError if own else TargetError
        return kind(f"nothing here can build for {text!r}: {reasons}")
    known = [str(device.target) for device in usable]
    return TargetError(f"no compiler here builds for {text!r}; the targets here are {format_list(known, 8)}")
