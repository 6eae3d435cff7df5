"""What figures were measured on, and the file they are exported to."""

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.cli.files import writing
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from gpucache.model import Device
    from gpucache.outcomes.bench import BenchCase

_CPUINFO = Path("/proc/cpuinfo")


def require_export(file: Path) -> None:
    """Raise UsageError for a file that could not be written in the end, before anything is measured."""
    from gpucache.render import plots
    from gpucache.render.exports import PLOTS, SUFFIXES

    if file.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"--export writes {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, by the ending; "
            f"{str(file)!r} has another"
        )
    if file.suffix.lower() in PLOTS and not plots.is_here():
        raise UsageError(plots.MISSING)
    new = not file.exists()
    with writing(file):
        with file.open("ab"):  # what is there stays until the end
            pass
        if new:
            file.unlink()


def write_export(file: Path, cases: "Sequence[BenchCase]", devices: "Sequence[Device]") -> None:
    """Write cases in the format of the file's ending; raises UsageError where it cannot be written."""
    from gpucache.render.exports import export

    content = export(file.suffix, cases, fingerprint(cases, devices))
    with writing(file):
        file.write_bytes(content)


def fingerprint(cases: "Sequence[BenchCase]", devices: "Sequence[Device]") -> dict[str, object]:
    """The environment of a run: software, processor, the targets measured or present, what was redirected."""
    from gpucache import __version__

    targets = {case.target for case in cases}
    shown = [device for device in devices if device.present or str(device.target) in targets]
    return {
        "command": ["gpucache", *sys.argv[1:]],
        "gpucache": __version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "devices": {_label(device): _described(device) for device in shown},
        "toolchains": {_label(one): dict(one.toolchain.fields) for one in shown if one.toolchain},
        "redirects": dict(pair for case in cases for pair in case.redirects),
    }


def _label(device: "Device") -> str:
    return device.name if device.target is None else str(device.target)


def _described(device: "Device") -> str:
    driver = f", driver {device.driver_version}" if device.driver_version else ""
    return f"{device.name}{driver}: {device.detail}"


def _cpu_model() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
