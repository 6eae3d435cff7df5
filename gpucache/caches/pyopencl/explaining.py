"""Whether PyOpenCL would serve a build from a directory, and the obstacle if not.

Computes the MD5 that names an entry as PyOpenCL does: of the source, of the options joined by spaces as they
were given, and of device and version, none of which an entry stores. So ``-DN=4`` and ``-D N=4`` have two
keys. For an entry of the same source with another key, the options that its log names are tried, so that the
difference is known, not guessed. Source: ``get_cache_key`` and ``get_device_cache_id`` in
``pyopencl/cache.py``, ``_process_build_options`` in ``pyopencl/__init__.py``, ``pyopencl/version.py``.
PyOpenCL is found, never imported. Must not change anything.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches import files
from gpucache.caches.format import Clock, Field, nearest, once
from gpucache.caches.interface import Wanted
from gpucache.caches.pyopencl import entries, locations
from gpucache.caches.pyopencl.entries import Info
from gpucache.errors import FormatError, UsageError
from gpucache.folders import Folder
from gpucache.keys import Difference
from gpucache.payload.source import kernel_names
from gpucache.units import format_size, printable

FORCED = "PYOPENCL_BUILD_OPTIONS"
LABELS = (
    "platform name", "platform vendor", "platform version", "device vendor", "device name",
    "device version", "driver version",
)  # fmt: skip
FIELDS: Mapping[str, str] = {
    "source": "the OpenCL C text that the program builds, as it gives it to PyOpenCL",
    "options": "build options as the program gives them, in one text or repeated in their order; PyOpenCL's "
    "own options are added",
    "device": f"{'/'.join(LABELS)} as one text, or repeated seven times where a name has a slash; "
    "all as OpenCL reports them",
    "pyopencl": "PyOpenCL's version, such as 2026.1.4; else the one installed with gpucache",
}
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,5})[a-z0-9]{0,16}")
_OCLGRIND = ("-D", "PYOPENCL_USING_OCLGRIND")
_OWN_FOLDER = re.compile(r'"?.*[/\\]pyopencl[/\\]cl"?')
_COMPARED, _LINES = 500, 2000
"""How many entries of other sources are compared, and lines of each."""
_ALIKE = 0.5
_SPIRV = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
_LEFT_TO_DRIVER = {
    "Portable Computing Language": "PoCL's own cache",
    "NVIDIA CUDA": "the CUDA driver's own cache",
}
Options = tuple[str, ...]

# The key.


class DeviceIdentity(NamedTuple):
    """The part of a key for a device, as OpenCL reports it; in the order of ``LABELS``."""

    platform_name: str
    platform_vendor: str
    platform_version: str
    vendor: str
    name: str
    version: str
    driver_version: str


def key_of(source: bytes, options: Sequence[str], device: DeviceIdentity, version: tuple[int, ...]) -> str:
    """The key of a source with all options of a build, as 32 lower-case hex digits."""
    platform, vendor, *others = device
    texts = (" ".join(options), str((version, vendor, platform, *others)))
    hasher = hashlib.md5(source, usedforsecurity=False)
    for one in texts:
        hasher.update(one.encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version, such as ``(2026, 1, 4)``; raises UsageError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a version of PyOpenCL; write one such as 2026.1.4")
    return tuple(int(number) for number in match[1].split("."))


def _installed_version() -> str:
    """The version of PyOpenCL installed with this tool; raises UsageError if there is none."""
    try:
        return version_of("pyopencl")
    except PackageNotFoundError as error:
        raise UsageError(
            "PyOpenCL is not installed with gpucache; give pyopencl=VERSION, and its -I directory "
            "among the options"
        ) from error


def all_options(given: Sequence[str], device: DeviceIdentity, environ: Mapping[str, str]) -> Options:
    """Options with all that PyOpenCL adds; options that name its ``-I`` directory are left unchanged."""
    if any(_OWN_FOLDER.fullmatch(option.removeprefix("-I").strip()) for option in given):
        return tuple(given)
    platform = _OCLGRIND if device.platform_name == "Oclgrind" else ()
    return (*given, "-I", _include_folder(), *platform, *environ.get(FORCED, "").split())


def _include_folder() -> str:
    places: list[str] = []
    with suppress(ImportError, ValueError):
        spec = find_spec("pyopencl")
        places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise UsageError(
            "PyOpenCL is not installed with gpucache; give its -I directory among the options, "
            "such as options='-I /usr/lib/python3/dist-packages/pyopencl/cl'"
        )
    folder = str(Path(places[0]).absolute() / "cl")
    return f'"{folder}"' if " " in folder else folder


# The question.


@dataclass(frozen=True, slots=True)
class PyOpenclBuild:
    """A program as it is built now."""

    source: bytes
    options: Options
    """As their spelling enters the key."""
    devices: tuple[DeviceIdentity, ...]
    version: tuple[int, ...]
    """Empty without a device, when no key is computed."""
    environ: Mapping[str, str]

    def reach(
        self,
        device: DeviceIdentity | None,
        verdict: Served | Verdict,
        detail: str,
        differences: tuple[Difference, ...] = (),
        key: str = "",
    ) -> Reach:
        given = f" with {' '.join(self.options)}" if self.options else ""
        words = f"source of {format_size(len(self.source))}{given}{f' for {device.name}' if device else ''}"
        return Reach(locations.NAME, words, verdict, detail, differences, key)


def read_question(wanted: Wanted, environ: Mapping[str, str]) -> PyOpenclBuild:
    """The questions; raises UsageError for a field that is missing or has an unusable value."""
    source, named = once(wanted, "source"), once(wanted, "pyopencl")
    if source is None:
        raise UsageError("the field 'source' is missing; give the program's source with source=@FILE")
    devices = _devices(tuple(map(_text, wanted.get("device", ()))))
    version = (_text(named) if named is not None else _installed_version()) if devices else ""
    return PyOpenclBuild(
        source=source,
        options=tuple(part for one in wanted.get("options", ()) for part in _text(one).split(" ")),
        devices=devices,
        version=version_numbers(version) if version else (),
        environ=environ,
    )


def _devices(given: Options) -> tuple[DeviceIdentity, ...]:
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


# The result.


class _Stored(NamedTuple):
    key: str
    source: bytes
    options: str | None


def explain(question: PyOpenclBuild, folders: Sequence[Path], clock: Clock) -> Iterator[Reach]:
    """For every directory and device whether the build would be served; raises UsageError."""
    if question.source.startswith(_SPIRV):
        detail = "PyOpenCL does not cache programs that are given as SPIR-V"
        yield question.reach(None, Verdict.UNCACHEABLE, detail)
        return
    for folder in folders:
        for device in question.devices:
            yield _answer(question, folder, device, clock)
        if not question.devices:
            yield _missed(question, folder, None, question.options)


def _answer(question: PyOpenclBuild, path: Path, device: DeviceIdentity, clock: Clock) -> Reach:
    if owner := _LEFT_TO_DRIVER.get(device.platform_name):
        detail = f"PyOpenCL leaves programs for {device.platform_name} to {owner}"
        return question.reach(device, Verdict.NOT_CONSULTED, detail)
    options = all_options(question.options, device, question.environ)
    with suppress(OSError), files.open_folder(path) as root:
        if (found := entries.obstacle(root, clock)) and found.kind is not FindingKind.LOCKED:
            return question.reach(device, Verdict.NOT_CONSULTED, found.detail)
        key = key_of(question.source, options, device, question.version)
        with suppress(FileNotFoundError), root.folder(key) as inner:
            return _served(question, device, key, inner)
    return _missed(question, path, device, options)


def _missed(question: PyOpenclBuild, path: Path, device: DeviceIdentity | None, options: Options) -> Reach:
    """The difference of a build from the entry of its source that is nearest to it."""
    same = [one for one in _stored(path) if one.source == question.source]
    if not same:
        return _other(question, path, device)
    wanted = " ".join(options)
    logged = (one for one in same if one.options is not None)
    solved = (one for one in logged if device and _key_with(question, one.options or "", device) == one.key)
    alone = next(solved, None)  # nothing else differs
    near = alone or same[0]
    unlike = near.options is not None and near.options != wanted and bool(alone or question.options)
    told = _other_options(near.options or "", wanted) if unlike else ""
    if alone and not question.options:
        told += f"; give the program's options with options=, such as '{near.options}'"
    elif not alone:
        rest = "" if unlike or (near.options is not None and question.options) else "options, "
        told += (
            f"{', or ' if told else ''}{rest}device, driver or PyOpenCL differ, which an entry does not store"
        )
    if device is None:
        told += "; give device= to have the key made ('gpucache devices --json' shows it under toolchain)"
    differences = (Difference("options", near.options, wanted),) if unlike and question.options else ()
    verdict = Verdict.KEY_CHANGED if device else Verdict.OPAQUE_KEY
    return question.reach(device, verdict, f"the source is stored, but {told}", differences, near.key)


def _key_with(question: PyOpenclBuild, options: str, device: DeviceIdentity) -> str:
    return key_of(question.source, (options,), device, question.version)


def _other_options(stored: str, wanted: str) -> str:
    """How a stored entry's options differ from the requested ones, as a clause."""
    left, right = (Counter(text.replace('"', "").split(" ")) for text in (stored, wanted))
    more, less = (" ".join((one - other).elements()) for one, other in ((left, right), (right, left)))
    told = [*([f"with {more}"] if more else []), *([f"without {less}"] if less else [])]
    return f"with other options ({', '.join(told) or 'the same in another order'})"


def _other(question: PyOpenclBuild, path: Path, device: DeviceIdentity | None) -> Reach:
    python = locations.python_of(path.name)
    here = f" of Python {python}" if python else ""
    near = nearest(
        islice(_stored(path), _COMPARED),
        {"source": question.source},
        lambda one: {"source": one.source},
        {"source": Field(alike=_alike, least=_ALIKE)},
    )
    if near is None:
        detail = f"no entry{here} has this source or one like it"
        return question.reach(device, Verdict.NEVER_BUILT, detail)
    line = _first_difference(near.item.source, question.source)
    detail = f"the nearest entry{here} has another source: {line.label} differs"
    return question.reach(device, Verdict.KEY_CHANGED, detail, (line,), near.item.key)


def _stored(path: Path) -> Iterator[_Stored]:
    """Every entry of a directory whose source can be read; nothing if the directory cannot."""
    with suppress(OSError), files.open_folder(path) as opened:
        for key in [one.name for one in opened.entries() if locations.is_key(one.name)]:
            with suppress(OSError, FormatError), opened.folder(key) as inner:
                source = entries.read_source(inner)
                options: str | None = None
                with suppress(OSError, FormatError):
                    options = entries.info_of(inner).options
                yield _Stored(key, source, options)


def _alike(stored: bytes, wanted: bytes) -> float:
    """The share of lines that two sources have in common, from 0 to 1; 1 also with equal first kernels."""
    first = next(kernel_names(wanted), None)
    if first is not None and next(kernel_names(stored), None) == first:
        return 1.0
    left, right = (source.splitlines()[:_LINES] for source in (stored, wanted))
    return float(SequenceMatcher(None, left, right, autojunk=False).quick_ratio())


def _first_difference(stored: bytes, wanted: bytes) -> Difference:
    left, right = stored.splitlines(), wanted.splitlines()
    pairs = enumerate(zip(left, right, strict=False))
    number = next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))
    one, other = (printable(lines[number]) if number < len(lines) else None for lines in (left, right))
    return Difference(f"source, line {number + 1}", one, other)


# An entry with the requested key.


def _served(question: PyOpenclBuild, device: DeviceIdentity, key: str, inner: Folder) -> Reach:
    """The verdict for it: PyOpenCL checks the headers recorded at build time, and no others."""
    problems = [one for one in entries.problems(inner) if not entries.served(one)]
    info = Info()
    with suppress(FormatError):
        info = entries.info_of(inner)
    broken = next((one for one in problems if one.kind is not FindingKind.STALE), None)
    if broken is not None:
        detail = f"{broken.detail} (gpucache verify --cache pyopencl --repair removes it)"
        return question.reach(device, Verdict.CORRUPT, detail, (), key)
    if problems:
        changed = tuple(
            Difference(f"header {printable(one.path, None)}", one.md5, now)
            for one, now, _ in entries.changed(info.dependencies)
        )
        return question.reach(device, Verdict.KEY_CHANGED, problems[0].detail, changed, key)
    with suppress(OSError, FormatError):
        if entries.read_source(inner) != question.source:
            detail = "PyOpenCL serves an entry that was made from another source, as its source.cl says"
            return question.reach(device, Served.FALSE_HIT, detail, (), key)
    detail = f"PyOpenCL serves the entry {key[:12]}"
    if unknown := ", ".join(entries.unfollowed(question.source)[:4]):
        detail += f"; it has no record of {unknown} and does not see that change"
    return question.reach(device, Served.HIT, detail, (), key)
