"""The machine that a command's result is for: this one, or the one of a device profile."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.cli.globals import given

if TYPE_CHECKING:
    from gpucache.answers.entries import CacheEntry
    from gpucache.manifest import ProgramSpec
    from gpucache.model import Device, Toolchain
    from gpucache.probe.profile import Profile
    from gpucache.probe.remembered import Memory


class Machine(NamedTuple):
    """Devices with their toolchains, and the environment that reaches them."""

    devices: "tuple[Device, ...]"
    environment: Mapping[str, str]


def machine(
    profile: Path | None,
    backends: Sequence[str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    targets: Sequence[str] = (),
) -> Machine:
    """This machine, probed by all backends or by some of them, or that of a profile; raises UsageError.

    ``meanwhile`` is called while the drivers of this machine are probed. If a target could mean several
    devices, a message says which one is meant.
    """
    from gpucache.engine.targets import told_choice

    if profile is not None:
        from gpucache.probe.profile import load_profile

        saved = load_profile(profile)
        found = Machine(saved.devices, saved.environment)
    else:
        from gpucache.probe.ask import ask

        found = Machine(tuple(ask(backends, meanwhile=meanwhile)), os.environ)
    for told in filter(None, (told_choice(target, found.devices) for target in targets)):
        given().say(told)
    return found


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
    from gpucache.assembly import backends
    from gpucache.engine.warm.plan import needed_backends

    known = backends()
    named = {entry.target.partition(":")[0] for entry in entries} & known.keys()
    needed = sorted({*needed_backends(specs, targets, known), *named})
    if profile is not None or memory is None:
        return machine(profile, needed, meanwhile, targets)
    from gpucache.probe.remembered import recalled, remember

    devices = [device for backend in needed for device in recalled(memory, backend)]
    asked = {target for spec in specs for target in targets or spec.targets or [""]}
    if asked <= {str(device.target) for device in devices}:
        return Machine(tuple(devices), os.environ)
    found = machine(None, needed, meanwhile, targets)
    if asked <= {str(device.target) for device in found.devices}:
        for backend in needed:
            remember(memory, backend, [device for device in found.devices if device.backend == backend])
    return found


def toolchains_for(entries: "Iterable[CacheEntry]") -> "list[Toolchain]":
    """The toolchains of this machine that can show entries to be stale; only drivers of their targets are
    probed."""
    named = {entry.target.partition(":")[0] for entry in entries if entry.toolchain_identity}
    if not named:
        return []
    from gpucache.assembly import backends
    from gpucache.probe.ask import ask

    devices = ask(sorted(named) if named <= backends().keys() else None)
    return [device.toolchain for device in devices if device.toolchain is not None]


def here(devices: "Sequence[Device]") -> "Profile":
    """The profile of this machine: its devices, and the variables that reach their compilers."""
    from gpucache.assembly import backends
    from gpucache.probe.profile import Profile

    known = backends()
    reaching: dict[str, str] = {}
    for device in devices:
        if device.toolchain is not None:
            reaching.update(known[device.backend].environment(device.toolchain, os.environ))
    return Profile(tuple(devices), reaching)
