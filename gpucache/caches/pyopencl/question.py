"""What an explanation is asked for, read from raw bytes. Must not know files but where it is asked from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches.interface import Wanted
from gpucache.caches.pyopencl import spellings
from gpucache.caches.pyopencl.keys import LABELS, DeviceIdentity, installed_version, version_numbers
from gpucache.errors import UsageError
from gpucache.units import format_size

FIELDS: Mapping[str, str] = {
    "source": "the OpenCL C text that the program builds, as it gives it to PyOpenCL",
    "options": "a build option as the program gives it, repeated in its order, or all of them in one text; "
    "what PyOpenCL adds is added",
    "device": f"{'/'.join(LABELS)} as one text, or repeated seven times where a name has a slash; "
    "all as OpenCL tells them",
    "pyopencl": "PyOpenCL's version, such as 2026.1.4; else the one beside gpucache",
    "folder": "the folder the program runs in, where PyOpenCL looks for headers first; else the current one",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A program as it is built now."""

    source: bytes
    options: tuple[tuple[str, ...], ...]
    """The lists that a program may have given, as their spelling enters the key; the one asked for first."""
    devices: tuple[DeviceIdentity, ...]
    version: str
    """Empty without a device, where no key is made."""
    environ: Mapping[str, str]
    folder: Path

    @property
    def words(self) -> str:
        """What is asked for, in a few words."""
        given = self.options[0]
        return f"source of {format_size(len(self.source))}" + (f" with {' '.join(given)}" if given else "")


def read_question(wanted: Wanted, environ: Mapping[str, str], folder: Path) -> Question:
    """What is asked for; raises UsageError for a field that does not exist, lacks or has no such value."""
    unknown = [name for name in wanted if name not in FIELDS]
    if unknown:
        raise UsageError(f"PyOpenCL's cache has no field {unknown[0]!r}; ask for {', '.join(FIELDS)}")
    source = _one(wanted, "source")
    if source is None:
        raise UsageError("the field 'source' lacks; give what the program builds with source=@FILE")
    devices = _devices(tuple(map(_text, wanted.get("device", ()))))
    named = _one(wanted, "pyopencl")
    version = (_text(named) if named is not None else installed_version()) if devices else ""
    if version:
        version_numbers(version)
    place = _one(wanted, "folder")
    return Question(
        source=source,
        options=spellings.readings(tuple(map(_text, wanted.get("options", ())))),
        devices=devices,
        version=version,
        environ=environ,
        folder=folder if place is None else folder / _text(place),
    )


def _one(wanted: Wanted, name: str) -> bytes | None:
    values = wanted.get(name, ())
    if len(values) > 1:
        raise UsageError(f"the field {name!r} was given {len(values)} times; give it once")
    return values[0] if values else None


def _devices(given: tuple[str, ...]) -> tuple[DeviceIdentity, ...]:
    parts = [text.split("/") for text in given]
    if all(len(one) == len(LABELS) for one in parts):
        return tuple(DeviceIdentity(*one) for one in parts)
    if len(given) == len(LABELS):
        return (DeviceIdentity(*given),)
    raise UsageError(
        f"a device is {len(LABELS)} texts: {'/'.join(LABELS)}; where one of them has a slash, give device= "
        f"{len(LABELS)} times"
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
