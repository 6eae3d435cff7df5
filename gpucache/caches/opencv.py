"""OpenCV's OpenCL binaries: a file for each kernel source and device, with one build for each set of options.

Source: OpenCV 4.14 and 5.0, ``modules/core/src/ocl.cpp``; checked against their files. A directory for each
version (``5.x/opencl_cache``), or the configured place, contains directories named by vendor, device and
driver, and in them ``MODULE--NAME_DIGEST.bin``: u32 length and text of the digest, u32 64 and as many u32
offsets of chains, each link of which is u32 offset of the next, u32 lengths, the build options and the
driver's binary. Programs take a record lock on ``.lock``. OpenCV checks only the digest, and only a wrong
digest is ever repaired. It removes the directories of a device's other drivers, and nothing else.
"""

import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked
from gpucache.caches.binary_format import OF_OPENCL, BinaryFormat
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Fact, Moving
from gpucache.caches.systems import OpenCVPlaces
from gpucache.errors import FormatError
from gpucache.payload import describe
from gpucache.units import format_size, printable

_BELOW = r"\d+\.\w+/opencl_cache"
_DEVICE, _FILE = r"([\w-]+)--([\w-]+)--([\w-]+)", r"([\w-]+)_([0-9a-f]{8,32})\.bin"
_SLOTS, _BUILDS, _LINK = 64, 10_000, struct.Struct("<III")
_OPTIONS_BYTES = 64 << 10
_LOCK = ".lock"
_WHEELS = ("python", "python-headless", "contrib-python", "contrib-python-headless")
_AGAIN = "OpenCV compiles it at every start, and never replaces the file"


class _StoredBuild(NamedTuple):
    options: str
    at: int
    size_bytes: int


class OpenCV(OpenCVPlaces, BinaryFormat):
    """The programs that OpenCV's functions compiled for ``UMat``."""

    layout = Layout(
        [f"{_DEVICE}/{_FILE}", rf"(\d+\.\w+)/opencl_cache/{_DEVICE}/{_FILE}"],
        own=[r"\.lock", rf"{_BELOW}/\.lock", r"\d+\.\w+/(?!opencl_cache)\w+/"],
        signs=[r"\.lock", _BELOW, f"{_DEVICE}/{_FILE}"],
        key=lambda groups: groups[-1].zfill(32) + hashed(groups)[:8],
    )
    folders_removed = 1
    kinds = OF_OPENCL
    consequence = "OpenCV hands it to the driver at every start, which refuses it or ends the program"
    lock_name, lock_is_record = _LOCK, True
    moving = Moving()

    def look(self, item: Files) -> CacheEntry:
        (name, status), (device, driver) = next(iter(item.seen.items())), item.parts[-1].rsplit("--", 1)
        builds, problem = _builds(item)
        start = item.part(name, builds[0].at, self.scanned_bytes) if builds else b""
        return self.entry(item)._replace(
            program=name.rpartition("_")[0],
            target=device,
            artifact_kind=describe(start).kind.value if start else "",
            fields=(("driver", driver), ("builds", str(len(builds)))),
            damage=problem,
            last_used_ns=self.used_ns(status),
            toolchain=(("OpenCV", item.parts[0] if len(item.parts) > 1 else ""),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        builds, problem = _builds(item)
        for build in builds:
            whole = build.size_bytes <= self.checked_bytes
            binary = item.part(item.names[0], build.at, build.size_bytes if whole else self.scanned_bytes)
            if wrong := self._wrong(binary, describe(binary, inside=2 * whole), whole=whole):
                yield wrong._replace(detail=f"of its build with {build.options!r} {wrong.detail}")
        if problem:
            yield problem

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield from (("options", build.options) for build in _builds(item)[0])

    def payload(self, item: Files) -> bytes:
        builds, problem = _builds(item)
        if not builds:
            raise FormatError(f"{item.path} has no build" + (f": {problem.detail}" if problem else ""))
        if builds[0].size_bytes > self.largest_bytes:
            most = format_size(self.largest_bytes)
            raise FormatError(f"the first build in {item.path} is larger than the {most} that are read")
        return item.part(item.names[0], builds[0].at, builds[0].size_bytes)

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        """Device and driver as OpenCV writes them, with ``_`` for all but letters, digits and ``-``."""
        yield Fact.ARCHITECTURE, look.target.partition("--")[2]
        yield Fact.DRIVER, dict(look.fields)["driver"]
        if len(item.parts) > 1:
            yield "OpenCV", item.parts[0]

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        """The directories of the versions that are installed as wheels, which alone OpenCV reads."""
        from gpucache.caches import interpreters  # only pull needs it

        wheels = (f"opencv-{kind}" for kind in _WHEELS)
        here = frozenset(
            f"{one.partition('.')[0]}.x" for name in wheels for one in interpreters.versions_of(name)
        )
        return {**super().facts_here(), **({"OpenCV": here} if here else {})}

    def lock_place(self, item: Files) -> tuple[str, ...]:
        return item.parts[:-1]

    def whole(self) -> Iterator[Checked]:
        """A link, a pipe or the like in place of the lock, on which programs would block. A directory there
        is reported among the files besides entries."""
        for place in (self.root, *self.root.glob("*/opencl_cache")):
            with suppress(OSError):
                status = (place / _LOCK).lstat()
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                    yield self.told(place / _LOCK, self.no_file(status, "the lock"))


def _builds(item: Files) -> tuple[list[_StoredBuild], Problem | None]:
    ((name, status),) = item.seen.items()
    digest = name.removesuffix(".bin").rpartition("_")[2].encode()
    begins = len(digest).to_bytes(4, "little") + digest
    head = item.part(name, 0, len(begins) + 4 + 4 * _SLOTS)
    builds, seen = list[_StoredBuild](), set[int]()
    if not head:
        return builds, Problem(FindingKind.TRUNCATED, "it is empty, so OpenCV compiles it again and fills it")
    if not head.startswith(begins):
        detail = "it does not begin with the digest of its name; OpenCV empties it and compiles again"
        return builds, Problem(FindingKind.MISLABELLED, detail)
    if len(head) < len(begins) + 4 + 4 * _SLOTS:
        return builds, Problem(FindingKind.TRUNCATED, f"it ends in its table; {_AGAIN}")
    slots, *starts = struct.unpack_from(f"<{1 + _SLOTS}I", head, len(begins))
    if slots != _SLOTS:
        return builds, Problem(FindingKind.CORRUPT, f"it has no table of {_SLOTS} chains; {_AGAIN}")
    left_bytes = status.st_size - len(head)
    for start in starts:
        at = start
        while at:
            if at in seen or len(seen) == _BUILDS:
                detail = "a chain of its builds leads back into itself; OpenCV follows it for ever"
                return builds, Problem(FindingKind.CORRUPT, detail)
            seen.add(at)
            link = item.part(name, at, _LINK.size)
            following, key_bytes, size_bytes = _LINK.unpack(link.ljust(_LINK.size, b"\xff"))
            binary_at = at + _LINK.size + key_bytes
            if binary_at + size_bytes > status.st_size:
                return builds, Problem(FindingKind.TRUNCATED, f"it ends within a build; {_AGAIN}")
            left_bytes -= _LINK.size + key_bytes + size_bytes
            if left_bytes < 0:
                detail = "its builds overlap, as OpenCV never writes them; remove it"
                return builds, Problem(FindingKind.CORRUPT, detail)
            options = item.part(name, at + _LINK.size, min(key_bytes, _OPTIONS_BYTES))
            builds.append(_StoredBuild(printable(options, None), binary_at, size_bytes))
            at = following
    return builds, None
