"""Puts the concrete parts together from settings, in one place.

The CLI and the library come through here. Owns no behaviour beyond choosing parts. A part that only some need
is imported by its function: every program that uses the library waits for the rest.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucache.errors import CacheUnusableError
from gpucache.settings import FILE_ORIGINS, Remote, Settings, named_by, other_roots
from gpucache.store.memory import MemoryStore
from gpucache.store.reading import EntryReader
from gpucache.store.trust import Root, RootRefused, root_state

if TYPE_CHECKING:
    from gpucache.answers.entries import Location
    from gpucache.caches.interface import Cache
    from gpucache.caches.own import OwnCache
    from gpucache.engine.stores import Stores
    from gpucache.model import Artifact, BuildRequest, CacheKey, Device
    from gpucache.remote.machine import Machine
    from gpucache.remote.store import RemoteStore
    from gpucache.store.directory import DirectoryStore
    from gpucache.store.interface import RefusedRoot

    _Whole = DirectoryStore
else:
    _Whole = EntryReader


class HitStore(_Whole):
    """A ``DirectoryStore`` that is imported when anything but a hit is needed."""

    @cached_property
    def whole(self) -> "DirectoryStore":
        from gpucache.store.directory import DirectoryStore

        return DirectoryStore(self.root, writable=self._writable, shared=self._root.shared)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def _take(
        self, place: tuple[str, ...], name: str, status: os.stat_result, key: "CacheKey", why: str
    ) -> bool:
        return self.whole._take(place, name, status, key, why)


def compile_exactly(request: "BuildRequest", options: tuple[str, ...]) -> "Artifact":
    """Compile CUDA C++ with these options and no other; raises CompileError, OptionError, NoDeviceError."""
    from gpucache.backends.cuda import nvrtc

    return nvrtc.compile_exactly(request, options)


def open_store(settings: Settings, *, shared: bool = False) -> "DirectoryStore":
    """The user's own store; raises CacheUnusableError with the remedy.

    A root that only its owner may read cannot be ``shared``.
    """
    store = _open_store(settings, shared=shared)
    root = store.root
    if shared and root_state(root) is Root.USABLE and not root.stat().st_mode & stat.S_IROTH:
        raise CacheUnusableError(
            f"the cache at {root} is private already, and other users could not read it; name another --root "
            "for --shared"
        )
    return store.whole


def opened(settings: Settings, warn: Callable[[str], object]) -> Settings:
    """Settings with the directory of a root that is in a file, which is read once in this process.

    ``warn`` gets sentences about the file, also when this process ends. Raises CacheUnusableError or
    UsageError.
    """
    if settings.root is None or settings.folder is not None or not settings.in_file:
        return settings
    from gpucache.store.root_file import is_root_file, root_of

    if settings.root_origin not in FILE_ORIGINS and not is_root_file(settings.root):
        return settings  # a root says itself that it is not a directory
    writes = not (settings.read_only or settings.disabled)
    return settings._replace(folder=root_of(settings.root, warn, writes=writes))


def _open_store(settings: Settings, *, shared: bool) -> HitStore:
    root = settings.require_folder()
    state = root_state(root)
    if isinstance(state, RootRefused):
        raise CacheUnusableError(state.reason)
    return HitStore(root, writable=not settings.read_only, shared=shared)


def open_roots(settings: Settings, *, systems: bool) -> "list[OwnCache]":
    """The user's root, then with ``systems`` each system root that can be read; only these without a home.

    Raises CacheUnusableError if there is none.
    """
    from gpucache.answers.entries import Location
    from gpucache.caches.own import OwnCache
    from gpucache.store.directory import DirectoryStore

    found = []
    for path in settings.system_dirs if systems else ():
        if path != settings.root and root_state(path) is Root.USABLE:
            store = DirectoryStore(path, writable=False)
            place = Location(
                OwnCache.name, str(path), "GPUCACHE_SYSTEM_DIRS", not settings.disabled, role="system"
            )
            found.append(OwnCache(store, place))
    if settings.root is None and systems and not found and (wrong := _system_problems(settings)):
        raise CacheUnusableError("; ".join(wrong))
    if settings.root is not None or not found:
        found.insert(0, open_cache(settings))
    return found


def open_cache(settings: Settings) -> "OwnCache":
    """The user's own store as one cache among others."""
    from gpucache.caches.own import OwnCache

    return OwnCache(open_store(settings), locate(settings), lost_parts())


@contextmanager
def remembering(caches: "Sequence[Cache]", settings: Settings) -> Iterator[None]:
    """Let the user's root remember which entries of caches were found sound, so that they are read once."""
    from gpucache.caches.stamps import Sound

    memory = _open_store(settings, shared=False).memos if settings.root else None
    for one in caches:
        one.sound = Sound(memory, one.location().root)
    try:
        yield
    finally:
        if settings.root and settings.root.is_dir():
            for one in caches:
                one.sound.keep()


def lost_parts() -> list[str]:
    """A sentence for each root in a file that was damaged when it was read."""
    root_file = sys.modules.get("gpucache.store.root_file")
    return [] if root_file is None else root_file.damages()


def locate(settings: Settings) -> "Location":
    """Where our cache is, the origin of that place, and the problems with it."""
    from gpucache.answers.entries import Location
    from gpucache.caches.own import OwnCache

    root = settings.require_root()
    return Location(
        cache=OwnCache.name,
        root=str(root),
        decided_by=named_by(settings.root_origin),
        enabled=not settings.disabled,
        limit_bytes=settings.max_size_bytes,
        problems=tuple(_problems(root, settings)),
    )


def machine_of(devices: "Sequence[Device]", *, elsewhere: bool) -> "Machine":
    """The facts of devices that decide which entries programs of their machine hit."""
    from gpucache.caches.portable import Fact
    from gpucache.remote.machine import Machine

    present = [one for one in devices if one.present and one.target is not None]
    names = {one.target.name if one.backend == "cuda" else one.name for one in present if one.target}
    drivers = {one.driver_version for one in present if one.backend == "opencl"}
    known: dict[str, frozenset[str]] = {Fact.ARCHITECTURE: frozenset(names), Fact.DRIVER: frozenset(drivers)}
    told = [dict(one.toolchain.fields) for one in present if one.toolchain is not None]
    features = [words for one in told if not (words := one.get("CPU features", "")).startswith("unknown")]
    llvm = (re.search(r", LLVM ([\d.]+)", one.get("platform version", "")) for one in told)
    known["LLVM"] = frozenset(match[1] for match in llvm if match)
    known[Fact.FEATURE] = frozenset(" ".join(features).split())
    graphics = any(one.backend == "cuda" for one in present)
    usable = [one for one in devices if one.present or one.backend != "cuda" or not graphics]
    toolchains = [dict(one.toolchain.fields) for one in usable if one.toolchain is not None]
    return Machine(known, toolchains, elsewhere)


def remember_targets(settings: Settings, devices: "Sequence[Device]") -> None:
    """Keep the result of a probe for completions, below a root that exists and is writable."""
    import json

    from gpucache.probe.remembered import FILE, load_last
    from gpucache.store.directory import DirectoryStore
    from gpucache.store.root_folder import UNUSABLE, RootFolder

    root = settings.folder or settings.root
    if root is None or settings.read_only or root_state(root) is not Root.USABLE:
        return
    if os.path.lexists(root / FILE) and not DirectoryStore(root, writable=False).is_marked():
        return  # a directory of another user may have such a file
    asked = {row.backend for row in devices}
    others = [target for target in load_last(root) if target.backend not in asked]
    now = [*others, *(row.target for row in devices if row.target is not None and row.available)]
    with suppress(*UNUSABLE):
        kept = RootFolder(root, shared=bool(root.stat().st_mode & stat.S_IROTH))
        with kept.open(*FILE.parent.parts) as folder:
            kept.put(folder, FILE.name, json.dumps(list(map(str, now))).encode("ascii"))


def open_stores(
    settings: Settings,
    *,
    memory: MemoryStore | None = None,
    shared: bool = False,
    command: str = "gpucache",
    warn: Callable[[str], object] = str,
) -> "Stores":
    """Every usable store; the others are left out, with the reason. Raises nothing.

    ``warn`` gets a sentence, from any thread, once a store on another machine is not used.
    """
    from gpucache.engine.stores import Stores

    user: HitStore | None = None
    unusable = ""
    try:
        user = _open_store(settings, shared=shared)
    except CacheUnusableError as error:
        unusable = str(error)
    refused = _refused(settings)
    systems = tuple(HitStore(path, writable=False) for path in settings.system_dirs if path not in refused)
    own, limit = user, settings.max_size_bytes
    keep = None if own is None or limit is None else lambda: _trim(own.whole, settings, limit)
    keys = settings.trusted_keys, settings.signing_key
    return Stores(
        memory=memory,
        user=user,
        systems=systems,
        origin=settings.root_origin if settings.root_origin != "default" else "",
        unasked=cache(lambda: [HitStore(root, writable=False) for root in _unasked(settings)]),
        command=command,
        disabled=settings.disabled,
        read_only=settings.read_only,
        require=settings.require,
        learn=settings.learn,
        trim=keep,
        unusable=unusable,
        remote=None if settings.remote is None else partial(_remote, settings.remote, *keys, warn),
        refused=tuple(refused.values()),
    )


def _refused(settings: Settings) -> "dict[Path, RefusedRoot]":
    if not settings.system_dirs:
        return {}
    from gpucache.store.system_root import refused_root

    return {path: problem for path in settings.system_dirs if (problem := refused_root(path))}


def _unasked(settings: Settings) -> list[Path]:
    """Other possible places of this user's entries: the default root, and GPUCACHE_DIR's next to --root."""
    asked = {settings.root, *settings.system_dirs}
    with suppress(OSError):  # a current directory that is gone
        return [root for root in other_roots(os.environ) if root not in asked]
    return []


_remotes: "dict[object, RemoteStore]" = {}


def _remote(
    remote: Remote, trusted_keys: str, signing_key: Path | None, warn: Callable[[str], object]
) -> "RemoteStore":
    from gpucache.remote.store import RemoteStore

    given = remote, trusted_keys, signing_key, warn
    if (found := _remotes.get(given)) is not None:
        return found
    # Threads that begin at once come here together, and waiting for one store waits for all that is sent.
    return _remotes.setdefault(given, RemoteStore(*given))


@cache
def process_memory(limit_bytes: int) -> MemoryStore:
    return MemoryStore(limit_bytes)


def _trim(store: "DirectoryStore", settings: Settings, limit: int) -> int:
    store.sweep(limit)
    if store.allocated_bytes() <= limit:
        return 0
    from gpucache.caches.own import OwnCache
    from gpucache.engine.evict import trim

    return trim(OwnCache(store, locate(settings)), limit, time.time_ns())


def _problems(root: Path, settings: Settings) -> list[str]:
    if settings.disabled:
        return ["GPUCACHE_DISABLE is set, so no program uses it; unset it"]
    state = root_state(settings.require_folder())
    if isinstance(state, RootRefused):
        return [state.reason]
    from gpucache.caches import places

    by = "name another with --root" if settings.root_origin == "--root" else "set GPUCACHE_DIR"
    by = "keep the file elsewhere" if settings.in_file else by
    move = f"{by}, or set GPUCACHE_READ_ONLY=1 where it is only read"
    problems = [] if settings.read_only else list(places.problems(root, move=move))
    return [*problems, *_system_problems(settings)]


def _system_problems(settings: Settings) -> list[str]:
    """Why a system root that was named is not used, each with the remedy."""
    return [str(refused) for refused in _refused(settings).values()]
