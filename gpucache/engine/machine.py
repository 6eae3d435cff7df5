"""The machine that a command's result is for, this one or that of a device profile, and the devices it means.

Probes only what is needed. Which device a name means is a pure function of the results of a probe.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.errors import NoDeviceError, TargetError
from gpucache.model import Device, Target, Toolchain
from gpucache.units import format_list

if TYPE_CHECKING:
    from gpucache.answers.entries import CacheEntry
    from gpucache.manifest import ProgramSpec
    from gpucache.probe.profile import Profile
    from gpucache.probe.remembered import Memory

_VERSION = re.compile(r"-(\d+(?:\.\d+)*)([^/]*)/")
"""The version in a platform's name, as in ``opencl:pocl-3.0-rc2/cpu``."""


class Machine(NamedTuple):
    """Devices with their toolchains, and the environment that reaches them."""

    devices: tuple[Device, ...]
    environment: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """A sentence for each ambiguous target, which says which device it means."""


def find_machine(
    profile: Path | None,
    backends: Sequence[str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    targets: Sequence[str] = (),
) -> Machine:
    """This machine, probed by all backends or by some of them, or that of a profile; raises UsageError.

    ``meanwhile`` is called while the drivers of this machine are probed.
    """
    if profile is not None:
        from gpucache.probe.profile import load_profile

        saved = load_profile(profile)
        devices, environment = saved.devices, saved.environment
    else:
        from gpucache.probe.ask import ask

        devices, environment = tuple(ask(backends, meanwhile=meanwhile)), os.environ
    return Machine(devices, environment, tuple(filter(None, (told_choice(one, devices) for one in targets))))


def machine_for(
    specs: "Sequence[ProgramSpec]",
    targets: Sequence[str],
    profile: Path | None = None,
    entries: "Iterable[CacheEntry]" = (),
    meanwhile: Callable[[], object] = lambda: None,
    memory: "Memory | None" = None,
) -> Machine:
    """The machine to build programs for, or entries again; drivers of this one are probed only if needed.

    With a ``memory`` of earlier probes, none is made for targets that are named in full and known there.
    """
    from gpucache.backends.interface import Backends

    texts = (*targets, *(text for spec in specs for text in spec.targets if not targets))
    named = {text.partition(":")[0] for text in (*texts, *(entry.target for entry in entries))}
    backends = Backends()
    needed = sorted((named & backends.keys()) | backends.taking({spec.program.language for spec in specs}))
    if profile is not None or memory is None:
        return find_machine(profile, needed, meanwhile, targets)
    from gpucache.probe.remembered import recalled, remember

    devices = [device for backend in needed for device in recalled(memory, backend)]
    asked = {target for spec in specs for target in targets or spec.targets or [""]}
    if asked <= {str(device.target) for device in devices}:
        return Machine(tuple(devices), os.environ)
    found = find_machine(None, needed, meanwhile, targets)
    if asked <= {str(device.target) for device in found.devices}:
        for backend in needed:
            remember(memory, backend, [device for device in found.devices if device.backend == backend])
    return found


def toolchains_for(entries: "Iterable[CacheEntry]") -> list[Toolchain]:
    """The toolchains of this machine that can show entries to be stale; only drivers of their targets are
    probed."""
    named = {entry.target.partition(":")[0] for entry in entries if entry.toolchain_identity}
    if not named:
        return []
    from gpucache.backends.interface import backend_names
    from gpucache.probe.ask import ask

    devices = ask(sorted(named) if named <= {*backend_names()} else None)
    return [device.toolchain for device in devices if device.toolchain is not None]


def device_of(entry: "CacheEntry", devices: Sequence[Device]) -> Device | None:
    """The device that an entry was built for: by name, or else by its compiler, as new platforms can
    change names."""
    usable = [device for device in devices if device.target is not None and device.toolchain is not None]
    named = (device for device in usable if str(device.target) == entry.target)
    alike = (device for device in usable if device.toolchain and device.toolchain.fields == entry.toolchain)
    return next(named, None) or next(alike, None)


def profile_of(devices: Sequence[Device]) -> "Profile":
    """The profile of this machine: its devices, and the variables that reach their compilers."""
    from gpucache.backends.interface import load_backend
    from gpucache.probe.profile import Profile

    reaching: dict[str, str] = {}
    for device in devices:
        if device.toolchain is not None:
            reaching.update(load_backend(device.backend).environment(device.toolchain, os.environ))
    return Profile(tuple(devices), reaching)


def select_target(text: str, devices: Sequence[Device]) -> Device:
    """The device that a text means: a target, or an unambiguous beginning of one.

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
    return f"{text} means {chosen[0].target} on this machine, the newest that can compile, and not {others}."


def default_devices(devices: Iterable[Device], backend: str) -> list[Device]:
    return [
        device
        for device in devices
        if device.backend == backend and device.available and device.present and device.target is not None
    ]


def _specific(wanted: Target, usable: Sequence[Device]) -> Device | None:
    """The device for an architecture with a suffix, as sm_90a or gfx90a:xnack+, made from the plain one."""
    match = re.fullmatch(r"((?:sm|compute)_\d+(?=[af]$)|gfx\w+(?=:))([af]|(:\w+[+-])+)", wanted.name)
    own = Target(wanted.backend, match[1] if match else "")
    plain = next((device for device in usable if device.target == own), None)
    if plain is None or plain.toolchain is None:
        return None
    fields = tuple(
        (label, wanted.name if label == "architecture" else value) for label, value in plain.toolchain.fields
    )
    return plain._replace(target=wanted, toolchain=plain.toolchain._replace(fields=fields), present=False)


def _newest(text: str, begun: list[Device]) -> list[Device]:
    """The devices of the newest platform, if platforms differ in version; a release candidate is older."""
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
            return NoDeviceError(f"{device.target} cannot be compiled for on this machine: {device.detail}")
    if not usable:
        reasons = "; ".join(device.detail for device in own) or f"no backend is named {wanted.backend!r}"
        kind = NoDeviceError if own else TargetError
        return kind(f"no compiler of this machine builds for {text!r}: {reasons}")
    known = [str(device.target) for device in usable]
    return TargetError(
        f"no compiler of this machine builds for {text!r}; its targets are {format_list(known, 8)}"
    )
