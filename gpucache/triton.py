"""``TRITON_CACHE_MANAGER=gpucache.triton:CacheManager``: our root as cache of Triton 3. Loads Triton.

All files of a kernel are one entry, which is published as one and checked at each hit. Triton wants paths:
the files are where Triton keeps them, ``TRITON_CACHE_DIR/KEY/``, as other programs look for them there. That
directory is renamed into place once, complete, and never changed. Before its paths are returned, every byte
is compared with the entry. A directory that differs, of another writer or a damaged one, is left alone, and
the files are in a directory of this process. Where nothing can be kept, Triton's own cache is used.
"""

import atexit
import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import triton
from triton.runtime import cache as theirs

from gpucache.backends.installation import Installation, remembered
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.host import os_errors
from gpucache.keys import cache_key, digest
from gpucache.library import opaque, process
from gpucache.model import CacheKey, Entry, KeyField
from gpucache.payload.containers import pack, unpack

OWNER = opaque.Owner(
    "Triton",
    "Triton",
    "Triton's key is opaque; 'gpucache inspect --why KEY KEY' compares the records of two kernels",
    ("libtriton",),
)
_OTHER_TOOLS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBDEVICE_PATH")
_LIST = "__grp__"
_NOT_DESCRIBED = ("hash", "name", "target", "triton_version")
_LONGEST = 200
_COMPILE_S, _PUBLISH_S = 60.0, 10.0
"""For how long another process that compiles or publishes the same kernel is waited for."""
_DIGITS = 16


class CacheManager(theirs.CacheManager):  # type: ignore[misc] # Triton publishes no types
    """Triton's cache of one key. Raises Triton's errors, and CacheMissError if a hit is required."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._key = key
        self._stores: Any = process.stores()
        self._began_ns = time.monotonic_ns()
        self._grouped = self._met = self._holds = False
        self._alone = ExitStack()
        weakref.finalize(self, self._alone.close)
        self._made: dict[str, bytes] = {}
        self._staging: Path | None = None
        self._plain: Any = None
        if override or dump or self._stores.disabled:
            self._plain = theirs.FileCacheManager(key, override=override, dump=dump)

    def get_file(self, filename: str) -> str | None:
        """The path of a file that was stored alone, or was put before."""
        if self._plain is None and self._staging is not None and filename in self._made:
            return str(self._staging / filename)
        found = self._find(filename)
        if found is None and self._falls_back():
            return self._plain.get_file(filename)
        return None if found is None else found[filename]

    def get_group(self, filename: str) -> dict[str, str] | None:
        self._grouped = True
        found = self._find(filename)
        if found is None and self._falls_back():
            return self._plain.get_group(filename)
        return found

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Store a single file, or stage a kernel's file for ``put_group``; returns its path."""
        if self._falls_back():
            return self._plain.put(data, filename, binary=binary)
        content = data if isinstance(data, bytes) else str(data).encode()
        if not self._grouped:
            placed = self._keep(filename, {filename: content})
            if placed is not None:
                return placed[filename]
        self._made[filename] = content
        if self._staging is None:
            self._staging = _staging()
            weakref.finalize(self, _remove, self._staging, os.getpid())
        (self._staging / filename).write_bytes(content)
        return str(self._staging / filename)

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Publish the files of a kernel as one entry; ``group`` names the files that belong to it."""
        if self._falls_back():
            return self._plain.put_group(filename, group)
        files = {name: self._made.get(name) or Path(path).read_bytes() for name, path in group.items()}
        placed = self._keep(filename, files)
        if placed is not None:  # Triton reads them from this place on, also after its own copies are removed
            group.update(placed)
        return group[filename]

    def _falls_back(self) -> bool:
        """Whether Triton's own cache is used, as ours can keep nothing."""
        if self._plain is None and not _keeps(self._stores):
            with suppress(OSError, RuntimeError):  # else the files are in a directory of this process
                self._plain = theirs.FileCacheManager(self._key)
        return self._plain is not None

    def _fields(self, name: str) -> tuple[KeyField, ...]:
        others = [("file", name), ("Triton", triton.__version__), *_tools()]
        if name.endswith(".so"):  # which is for the host, and linked to its C library
            others.append(("C library", os.confstr("CS_GNU_LIBC_VERSION") or ""))
        return opaque.key_fields(OWNER, self._key, *others)

    def _find(self, name: str) -> dict[str, str] | None:
        if self._plain is not None:
            return None
        key = cache_key(self._fields(name))
        wait = partial(self._wait, key) if self._grouped and not self._stores.require else None
        hit = opaque.find(self._stores, OWNER, key, wait)
        placed = None if hit is None else self._place(name, hit.payload)
        self._met = placed is not None
        if self._met:
            self._alone.close()
        return placed

    def _wait(self, key: CacheKey) -> None:
        """Lock a kernel until it is published, or wait once for the process that is compiling it.

        This class does not see a compile fail, so the lock goes with the manager, and is not waited for
        without limit.
        """
        if _keeps(self._stores):
            self._holds = self._alone.enter_context(self._stores.target.single_flight(key, 0))
            if not self._holds:
                with self._stores.target.single_flight(key, _COMPILE_S):
                    pass

    def _keep(self, name: str, files: Mapping[str, bytes]) -> dict[str, str] | None:
        """Publish files, or take those that another process published meanwhile, and return their paths."""
        made = _entry(self._fields(name), name, files, time.monotonic_ns() - self._began_ns)
        with self._alone as alone:
            if self._stores.target is not None and not self._holds:
                # So that the directory and the entry are of one compile.
                alone.enter_context(self._stores.target.single_flight(made.key, _PUBLISH_S))
            hit = None if self._met else opaque.look(self._stores, OWNER, made.key)
            if hit is None:
                opaque.keep(self._stores, OWNER, made)
            self._holds = False
            return self._place(name, made.payload if hit is None else hit.payload)

    def _place(self, name: str, payload: bytes) -> dict[str, str] | None:
        """The paths of an entry's files, which are in one directory as in the entry."""
        try:
            files = unpack(payload)
        except FormatError as error:
            process.say_once(f"an entry of Triton is not used: {error}")
            return None
        for parent in (_cache_dir, _private):
            try:
                folder = parent() / self._key
                if name not in files or not _in_place(folder, name, files):
                    continue
                return {one: str(folder / one) for one in files}
            except (OSError, RuntimeError) as error:
                why = os_errors.reason(error) if isinstance(error, OSError) else str(error)
                process.say_once(f"files of Triton cannot be kept where it looks for them: {why}")
        return None


def _in_place(folder: Path, name: str, files: Mapping[str, bytes]) -> bool:
    """Whether a directory has exactly the bytes of some files, which it gets if it does not exist."""
    if _has(folder, files):
        return True
    staging = _staging(folder.parent)
    try:
        for one, content in files.items():
            (staging / one).write_bytes(content)
        if name.endswith(".json") and len(files) > 1:
            paths = {one: str(folder / one) for one in files}
            (staging / f"{_LIST}{name}").write_text(json.dumps({"child_paths": paths}))
        with suppress(OSError):  # it exists already, or did
            staging.rename(folder)
            return True
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return _has(folder, files)


def _has(folder: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all(
            (folder / name).stat().st_size == len(content) and (folder / name).read_bytes() == content
            for name, content in files.items()
        )
    except OSError:
        return False


@cache
def _tools() -> tuple[tuple[str, str], ...]:
    """The builds of ptxas and libdevice, of which Triton asks once in a process and for a version at most."""
    backends = Path(triton.__file__).parent / "backends"
    given = {name: Path(value) for name in _OTHER_TOOLS if (value := os.getenv(name, "").strip())}
    libdevice = given.pop("TRITON_LIBDEVICE_PATH", None)
    compilers = sorted({*backends.glob("*/bin/ptxas*"), *given.values()})
    builtins = sorted({*backends.glob("*/lib/*.bc"), *filter(None, [libdevice])})
    with remembered(process.stores(), "Triton"):
        return Installation(tuple(compilers), tuple(builtins)).fields()


def _cache_dir() -> Path:
    knobs = getattr(triton, "knobs", None)
    if knobs is not None:
        return Path(knobs.cache.dir)
    return Path(os.getenv("TRITON_CACHE_DIR", "").strip() or theirs.default_cache_dir())


def _staging(parent: Path | None = None) -> Path:
    """A new directory of this process, with a name like Triton's own temporary directories."""
    if parent is None:
        try:
            return _staging(_cache_dir())
        except (OSError, RuntimeError):
            parent = _private()
    place = parent / f"tmp.pid_{os.getpid()}_{uuid4()}"
    place.mkdir(parents=True)
    return place


def _private() -> Path:
    return _private_of(os.getpid())


@cache
def _private_of(pid: int) -> Path:
    place = Path(tempfile.mkdtemp(prefix="gpucache-"))
    atexit.register(_remove, place, pid)
    return place


def _remove(place: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child leaves it to its parent
        shutil.rmtree(place, ignore_errors=True)


@cache
def _keeps_of(store: Any) -> bool:
    try:
        store.prepare()
    except CacheUnusableError as error:
        process.say_once(f"programs of Triton are kept in its own cache: {error}")
        return False
    return True


def _keeps(stores: Any) -> bool:
    return stores.target is not None and _keeps_of(stores.target)


def _entry(fields: tuple[KeyField, ...], name: str, files: Mapping[str, bytes], compile_ns: int) -> Entry:
    """The entry of some files, with the facts of Triton's description of a kernel."""
    told: Any = None
    if name.endswith(".json") and len(files) > 1:
        with suppress(ValueError):
            told = json.loads(files[name])
    told = told if isinstance(told, dict) else {}
    target = told.get("target")
    target = target if isinstance(target, dict) else {}
    arch = target.get("arch", "")
    described = [("Triton", triton.__version__), ("installation", _installation())] if told else []
    source = next((one for ending in (".source", ".ttir") for one in files if one.endswith(ending)), None)
    if told and source is not None:
        described.append(("source with its constants", digest(files[source])[:_DIGITS]))
    described += [
        (label, str(value)[:_LONGEST])
        for label, value in told.items()
        if label not in _NOT_DESCRIBED and value not in (None, "", [])
    ]
    return opaque.entry(
        fields,
        pack(files),
        program=str(told.get("name", name.partition(".")[0])),
        target=f"{target.get('backend', 'host')}:{f'sm_{arch}' if isinstance(arch, int) else arch or 'any'}",
        kind="files",
        compile_ns=compile_ns,
        described=described,
    )


def _installation() -> str:
    """The digest of Triton's own hash of itself, which is part of its keys."""
    homes = (theirs, import_module("triton.compiler.compiler"))
    key = next((home.triton_key for home in homes if hasattr(home, "triton_key")), None)
    return digest(key().encode())[:_DIGITS] if key else ""
