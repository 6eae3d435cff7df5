"""Reads damaged content with everything that reads from a disk; run as a child under a limit of memory.

Its arguments are the name of a subject, a seed, the number of trials, and its own directory. Each trial
changes some bytes in the files of a real cache or in a real file of ours. Writes one JSON object: ``trials``,
and ``failures`` as texts: any exception but ours, anything executed, started, loaded or unpickled, and
anything opened for writing outside the directory.
"""

import json
import os
import random
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.futhark import format as futhark_explaining
from gpucache.caches.interface import Cache
from gpucache.caches.own import OwnCache
from gpucache.caches.pyopencl import entries
from gpucache.caches.registry import load_system
from gpucache.engine import inspect, prepare
from gpucache.errors import GpucacheError
from gpucache.manifest import read_manifest
from gpucache.payload import bitcode, describe, elf, mangled, source
from gpucache.payload.reading import Reading
from gpucache.payload.spirv import kernel_names
from gpucache.probe.profile import load_profile
from gpucache.probe.remembered import load_last
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.caches.futhark import build as futhark
from tests.caches.pyopencl import build as pyopencl
from tests.caches.sycl import build as sycl
from tests.contracts.examples import EXAMPLES
from tests.faults.conftest import build_entry
from tests.payload.build import bitcode as made_bitcode
from tests.payload.build import bundle, elf64, fatbin, library, poclbin, spirv

T = TypeVar("T")
ROOM_BYTES = 2 << 30
"""Of address space."""
_SHOWN = 5
_TOKENS = (
    b"\x00" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x80" * 4, b"\x01", b"\x00", b"\n", b"{", b"[", b'"',
    b"[" * 2000, b'{"a":' * 2000, b"9" * 40, b"-1", b"1e999", b"NaN", b"null", b"\xed\xa0\x80", b"\\",
    b"\xf0\x9f\x92\xa9", b"\x1b[31m", b"cposix\nsystem\n(S'id'\ntR.", b"\x8c\x02os\x8c\x06system\x93",
    b".entry ", b"/*", b"../../", b"%s%n", b"\x7fELF", b"FUTHARK\x00", b"SQLite format 3\x00", b"GPUCACHE",
    b"BC\xc0\xde", b"\x03\x02\x23\x07", b"poclbin",
)  # fmt: skip
_HARMFUL = frozenset(
    {"pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "ctypes.dlopen",
     "socket.connect", "os.fork", "shutil.rmtree", "marshal.loads"}
)  # fmt: skip


class Watch:
    """Actions of the process that no reader may do."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[str] = []
        self._own = (str(folder.parent), "/dev/null")
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        # This program opens a directory by the system call itself, which loads nothing.
        if event in _HARMFUL and arguments != (None,) and not self._is_import():
            self.seen.append(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            written = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            # A name without a directory is below an open one.
            if written and "/" in arguments[0] and not arguments[0].startswith(self._own):
                self.seen.append(f"open {arguments!r:.200}")

    def _is_import(self) -> bool:
        """Whether Python is loading one of its own modules, which reads compiled code."""
        return any("importlib" in frame.filename for frame in traceback.extract_stack(limit=12))


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Some bytes with a few changes of every kind."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 8))):
        # The beginning leads to everything else.
        reach = len(changed) if dice.random() < 0.5 else min(len(changed), 256)
        at = dice.randrange(reach + 1)
        way = dice.randrange(7)
        if way == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif way == 1 and at < len(changed):
            changed[at] = dice.randrange(256)
        elif way == 2:
            changed[at:at] = dice.choice(_TOKENS)
        elif way == 3:
            token = dice.choice(_TOKENS)
            changed[at : at + len(token)] = token
        elif way == 4:
            del changed[at : at + dice.choice((1, 2, 4, 8, 64, 4096))]
        elif way == 5:
            del changed[at:]
        else:
            start = dice.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + dice.randrange(300)]
    return bytes(changed)


def _tried(call: Callable[[], object]) -> None:
    with suppress(GpucacheError):
        call()


def _read_cache(cache: Cache) -> None:
    """Call every method of a cache, then repair it, and remove the rest."""
    for entry in _listed(cache.scan):
        for one in (cache.check, cache.report, cache.extract):
            _tried(partial(one, entry))
        _tried(lambda key=entry.key: cache.find(key[:4]))  # type: ignore[misc]
    checked = [*_listed(cache.leftovers)]
    _tried(lambda: list(cache.explain({})))
    for entry in _listed(cache.scan)[:2]:
        _tried(lambda entry=entry: cache.repair(cache.check(entry), entry))  # type: ignore[misc]
    for found in checked:
        _tried(partial(cache.repair, found, None))
    for entry in _listed(cache.scan)[:1]:
        _tried(partial(cache.remove, entry, "fuzz"))
    _tried(cache.finish_removals)


def _listed(call: Callable[[], Iterator[T]]) -> list[T]:
    with suppress(GpucacheError):
        return list(call())
    return []


class Folder:
    """A subject on disk: its original files, some changed at each trial."""

    def __init__(self, root: Path, read: Callable[[], None]) -> None:
        self._files = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        self._root = root
        self._read = read

    def trial(self, dice: random.Random) -> None:
        """Write all files, a few of them changed, and read them."""
        changed = dice.sample(list(self._files), min(len(self._files), dice.choice((1, 1, 2))))
        for path, data in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path in changed or not path.exists() or path.stat().st_size != len(data):
                path.write_bytes(mutated(data, dice) if path in changed else data)
                path.chmod(0o600)
                os.utime(path, (1_600_000_000, 1_600_000_000))
        self._read()
        for path in self._root.rglob("*"):  # files of a repair or removal
            if path.is_file() and path not in self._files:
                path.unlink()
        for path in changed:
            path.unlink(missing_ok=True)


class Bytes:
    """A subject that is read from memory."""

    def __init__(self, samples: Sequence[bytes], *readers: Callable[[bytes], object]) -> None:
        self._samples = samples
        self._readers = readers

    def trial(self, dice: random.Random) -> None:
        data = mutated(dice.choice(self._samples), dice)
        for read in self._readers:
            _tried(partial(read, data))


_MISSED = {
    "when_ns": 5, "command": "python a.py", "environment": [["A", "b"]], "rejected": False, "program": "a.cu",
    "language": "cuda-c++", "source": "int a;", "target": "cuda:sm_90", "artifact_kind": "cubin",
    "options": ["-DA"], "include_dirs": ["/a"], "name_expressions": ["k<int>"], "local_sizes": [[8, 8]],
    "headers": ["a.h"], "cwd": "/",
}  # fmt: skip
_PROFILE = {
    "schema": 1, "environment": {"A": "b"},
    "devices": [{"target": "opencl:pocl/cpu", "backend": "opencl", "name": "a CPU", "driver_version": "1.0",
                 "available": True, "present": True, "detail": "", "toolchain": None}],
}  # fmt: skip
_MANIFEST = """\
[defaults]
targets = ["cuda:sm_90"]
options = ["-O2", "-DA=1"]
include_dirs = ["inc"]

[[program]]
source = "*.cl"
local_sizes = [[64], [8, 8]]
headers = ["a.h", "**/*.h"]
"""


def _own(root: Path) -> Folder:
    """Our own root with every kind of file."""
    store = DirectoryStore(root, writable=True)
    entries = [build_entry(seed) for seed in "abc"]
    for entry in entries:
        store.publish(entry)
        store.history.record("saxpy", Event(5, "built", entry.key.hex, "cuda:sm_90"))
    store.journal({"program": "saxpy", "verdict": "never-built", "when_ns": 5})
    store.remember("cd" * 32, b"what was found")
    (root / "v1" / "targets.json").write_text('["cuda:sm_90", "opencl:intel/cpu"]')
    (root / "v1" / "missed").mkdir(exist_ok=True)
    (root / "v1" / "missed" / f"{'ab' * 32}.json").write_text(json.dumps(_MISSED))

    def read() -> None:
        again = DirectoryStore(root, writable=True)
        for entry in entries:
            again.get(entry.key)
            again.detail(entry.key)
            again.find(entry.key.hex[:4])
        again.history.events("saxpy")
        again.history.programs()
        again.missed.all()
        again.journal_tail(50)
        again.recall("cd" * 32)
        load_last(root)
        _read_cache(OwnCache(again, Location("gpucache", str(root), "--root", enabled=True)))

    return Folder(root, read)


def _foreign(name: str, root: Path) -> Folder:
    place = EXAMPLES[name].make(root)
    system = load_system(name)

    def read() -> None:
        system.recognises(place)
        _tried(lambda: _read_cache(system.open(Location(name, str(place), "--cache", enabled=True))))

    return Folder(root, read)


def _records(root: Path) -> Folder:
    """Files that people write for us, and those that we write for people."""
    root.mkdir()
    (root / "profile.json").write_text(json.dumps(_PROFILE))
    (root / "manifest.toml").write_text(_MANIFEST)
    (root / "a.cl").write_text("__kernel void k() {}")

    def read() -> None:
        _tried(lambda: load_profile(root / "profile.json"))
        _tried(lambda: read_manifest(root / "manifest.toml"))

    return Folder(root, read)


def _payloads(_: Path) -> Bytes:
    cubin = elf64()
    samples = [
        cubin, poclbin(4, ["a", "b"]), fatbin((2, 90, cubin)), spirv("<", (15, 6, 1, 0x6B)), futhark.PTX,
        made_bitcode(), library(), sycl.Made().binary, sycl.Made().source, pyopencl.binary(),
        futhark.file_bytes(), bundle(b"hip-amdgcn--gfx90a") + cubin,
    ]  # fmt: skip
    return Bytes(
        samples, describe, lambda data: describe(data[16:]), bitcode.read_module, kernel_names,
        elf.read_exports, elf.is_cut, lambda data: elf.read_library(Reading(data)),
    )  # fmt: skip


def _texts(_: Path) -> Bytes:
    samples = [
        b"__kernel void k(__global int *a) { a[0] = 1; } // kernel void\n#include <a.h>\n",
        pyopencl.SOURCE + pyopencl.DEFEAT, futhark.cuda_log(), b"_ZTSZ4mainEUlvE_ _ZN1aIiE1bE",
        *(pyopencl.info([("/a.h", 1.5, "0" * 32)], "a log", protocol) for protocol in (2, 4, 5)),
    ]  # fmt: skip

    def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode("utf-8", "surrogateescape"))

    return Bytes(
        samples, entries.read_info, lambda data: list(source.kernel_names(data)), entries.unfollowed,
        entries.as_written, futhark_explaining.read_log,
        prepare.program_name, prepare.source_mark,
        text(mangled.readable),
        text(lambda name: inspect.looks_like([name, name])), text(places.parse),
    )  # fmt: skip


SUBJECTS: dict[str, Callable[[Path], Folder | Bytes]] = {
    "gpucache": _own,
    **{name: partial(_foreign, name) for name in EXAMPLES if name != "gpucache"},
    "records": _records,
    "payloads": _payloads,
    "texts": _texts,
}


def main(name: str, seed: str, count: str, folder: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM_BYTES, ROOM_BYTES))
    subject = SUBJECTS[name](Path(folder, "cache"))
    dice, failures, watch = random.Random(f"{name} {seed}"), [], Watch(Path(folder))
    for number in range(int(count)):
        try:
            subject.trial(dice)
        except Exception:  # whatever it is, it was not to come out
            failures.append(f"trial {number}: {traceback.format_exc()}")
        failures += [f"trial {number}: {seen}" for seen in watch.seen]
        watch.seen.clear()
    json.dump({"trials": int(count), "failures": len(failures), "first": failures[:_SHOWN]}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
