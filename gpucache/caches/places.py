"""Where a cache is, why, and the problems of the place, each with the line that fixes it.

Owns the questions about a path that do not depend on whose cache it is. A system says with a ``Place`` which
variables and directories its programs look at. Must not know any format.

Owns the mounts of this process.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gpucache.answers.entries import Location
from gpucache.caches.interface import Cache, Isolation, Wanted
from gpucache.errors import CacheUnusableError
from gpucache.folders import for_its_owner, is_own
from gpucache.model import BuildRequest, Toolchain
from gpucache.units import format_size

if TYPE_CHECKING:
    from gpucache.caches.format import Clock, Format

FEW_INODES = 1000
LITTLE_BYTES = 64 << 20
_MATCHED = 1000
WINDOWS = sys.platform == "win32"
XDG = "XDG_CACHE_HOME"
"""The directory of all caches without their own variable, which moves them together."""
ANY_BINARY = "a changed byte inside a binary, or the binary of another program"
"""The damage that no check can find if binaries have neither checksum nor key."""
_ADMINISTRATOR = 0
_NOTHING: Mapping[str, Collection[str]] = {}


class Medium(StrEnum):
    """The kind of place that a file system is for a cache."""

    DISK = "disk"
    MEMORY = "memory"
    NETWORK = "network"
    LAYER = "layer"


class Mount(NamedTuple):
    """One mount: its point, its kind, and its options (its own and its file system's)."""

    point: str
    kind: str
    options: frozenset[str]

    @property
    def medium(self) -> Medium:
        for medium, kinds in ((Medium.NETWORK, _NETWORK), (Medium.MEMORY, _MEMORY), (Medium.LAYER, _LAYER)):
            if self.kind in kinds:
                return medium
        return Medium.DISK


class Var(NamedTuple):
    """A variable that names the place of a cache, or a directory above it. An empty one counts as unset."""

    name: str
    below: str = ""
    top: bool = False
    """Whether an empty value means the root directory of the machine."""

    def __str__(self) -> str:
        return os.path.join("~" if self.name == "HOME" else f"${self.name}", self.below).rstrip(os.sep)  # noqa: PTH118 - text in, text out

    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        """The place, and the variable that decided it; None if the variable is not set."""
        value = environ.get(self.name)
        if self.top and value is not None:
            value = value or os.sep
        return (Path(value, self.below), self.name) if value else None


class Home(NamedTuple):
    """A place below the home directory."""

    below: str
    expanded: bool = False
    """Whether the owner does as ``os.path.expanduser``: an empty HOME is the root directory, and without HOME
    the user's record decides."""
    recorded: bool = False
    """Whether the owner reads the user's record alone, and not HOME."""

    def __str__(self) -> str:
        return f"~/{self.below}"

    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        """The place, and the variable or default that decided it; None if there is no home directory."""
        decided_by = "USERPROFILE" if WINDOWS else "HOME"
        home = None if self.recorded else environ.get(decided_by)
        if self.recorded or (self.expanded and home is None):
            home, decided_by = _on_record("pw_dir"), "the user's record"
        if home or (self.expanded and home is not None):
            return Path(home or os.sep, self.below), decided_by
        return None


class Temporary(NamedTuple):
    """A place among temporary files: in the directory of Python's ``tempfile`` unless its owner names one."""

    prefix: str
    user: bool = True
    """Whether the path goes on with the user's name, so that each user has a separate place."""
    folder: str = ""
    """The owner's directory for temporary files, regardless of variables."""
    inside: str = ""
    """The part of the path after ``name``: a directory in that place."""

    def __str__(self) -> str:
        return f"{self.folder or '/tmp'}/{self.below.replace('*', 'USER')}"

    @property
    def below(self) -> str:
        place = f"{self.prefix}*" if self.user else self.prefix
        return f"{place}/{self.inside}" if self.inside else place

    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        """The place, and the variable that decided it; None if the user has no name."""
        user = next(filter(None, map(environ.get, ("LOGNAME", "USER", "LNAME", "USERNAME"))), None)
        user = (user or _on_record("pw_name")) if self.user else ""
        asked = () if self.folder else ("TMPDIR", "TEMP", "TMP")
        named = next((name for name in asked if environ.get(name)), None)
        folder = environ[named] if named else self.folder or "/tmp"
        return None if user is None else (Path(folder, self.prefix + user, self.inside), named or "default")


Way = Var | Home | Temporary


def cached(below: str, *, expanded: bool = False, recorded: bool = False) -> tuple[Var, Home]:
    """A place below the user's directory of caches, as the XDG Base Directory Specification has it."""
    return Var(XDG, below), Home(f".cache/{below}", expanded, recorded)


def user_cached(
    app: str, author: str | None = None, below: str = "", *, system: str = sys.platform
) -> tuple[Var | Home, ...]:
    """A place below the directory of caches that Python's ``platformdirs`` and ``appdirs`` give a program.

    ``author`` is the program's author on Windows, the program itself if it is None, and none if it is empty.
    """
    if system == "win32":
        parts = (app if author is None else author, app, "Cache", below)
        return (Var("LOCALAPPDATA", "/".join(filter(None, parts))),)
    place = "/".join(filter(None, (app, below)))
    if system == "darwin":
        return (Home(f"Library/Caches/{place}", expanded=True),)
    return cached(place, expanded=True)


def temporary_on_windows(below: str) -> tuple[Var, ...]:
    """A place in the directory that Windows' ``GetTempPath`` gives a program."""
    return Var("TMP", below), Var("TEMP", below)


def on(
    linux: tuple[Way, ...],
    *,
    macos: tuple[Way, ...] = (),
    windows: tuple[Way, ...] = (),
    system: str = sys.platform,
) -> tuple[Way, ...]:
    """The places on this operating system; Linux's if the owner has no others."""
    return {"darwin": macos, "win32": windows}.get(system) or linux


class Place(NamedTuple):
    """The places of a cache in an environment, and the variables that change them: facts alone."""

    ways: tuple[Way, ...]
    """The ways to find the place, in the owner's order; the first that gives one decides."""
    remedy: str = ""
    """How to move the cache, as a clause; empty if setting its variable does it."""
    nowhere: str = ""
    """Why an environment can lack a place, and the remedy, if it is not that there is no home directory or no
    name of the user; a clause."""
    also: tuple[Way, ...] = ()
    """The places where programs built on the owner put it, which may be patterns: each existing one is a
    cache besides the first."""
    off: Mapping[str, Collection[str]] = _NOTHING
    """For each variable that turns the cache off, its values in lower case; empty if any value does."""
    along: tuple[tuple[str, str], ...] = ()
    """Variables that are set with every redirection, such as a limit that must not apply."""
    turn_on: tuple[tuple[str, str], ...] = ()
    """Variables that turn caching on along with it, if programs do not cache in their environment."""
    leaf: str = ""
    """The last part of a redirected place; the system's name if empty."""
    lacking: str = ""
    """The parts that no variable redirects, as a sentence, if it is not that it follows ``XDG``."""
    makes: bool = True
    runs: bool = False
    opt_in: bool = True
    """Whether the program decides, not a variable, so that an existing place counts as used."""
    limit: tuple[str, int | None] = ("", None)
    """The variable with the size in bytes that the owner keeps to, and the size without it."""

    @property
    def variable(self) -> str:
        """The first variable that names the place; the home directory's if there is none."""
        return next((way.name for way in self.ways if isinstance(way, Var)), "HOME")

    @property
    def move(self) -> str:
        """The way to move the cache, as a clause: the remedy of every problem of the place."""
        return self.remedy or f"set {self.variable}"

    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        """The place that the environment names, possibly relative, and the reason; None if there is none."""
        return next(filter(None, (way.find(environ) for way in self.ways)), None)

    def beside(self, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
        seen = {absolute(found[0]) for found in (self.find(environ),) if found is not None}
        for pattern, decided_by in filter(None, (way.find(environ) for way in self.also)):
            for named in matching(pattern):
                if absolute(named) not in seen and is_folder(named):
                    seen.add(absolute(named))
                    yield named, decided_by

    def why_off(self, environ: Mapping[str, str]) -> str:
        """Why programs use no cache, as a sentence; empty if they use it."""
        for name, values in self.off.items():
            if name in environ and (not values or environ[name].lower() in values):
                return f"{name}={environ[name]} turns the cache off, so every start compiles; unset it"
        return ""

    def relative(self, named: Path, decided_by: str) -> str:
        """The problem of a place that is not absolute; empty for an absolute one."""
        if named.is_absolute():
            return ""
        first = self.variable if any(isinstance(way, Var) for way in self.ways) else decided_by
        other = f", or {first}" if first != decided_by else ""
        return (
            f"{decided_by} makes it {named}, another place for every current directory; set an absolute path "
            f"in {decided_by}{other}"
        )


class Places:
    """A system that keeps caches, by the places where its programs look; a format is loaded to open one."""

    name: ClassVar[str]
    title: ClassVar[str]
    tracing: ClassVar[Mapping[str, str]] = {}
    """The environment variables that make its programs log hits and misses; empty for none."""
    driver: ClassVar[bool] = False
    """Whether its owner is a driver, so that it is below every program and all other caches."""
    below: ClassVar[Mapping[str, str]] = {}
    """For each kind of compiler (``pocl``, ``intel``, ``nvidia``, ``nvrtc``, ``other``) that this cache is in
    front of: why programs do not use it, or an empty text if they do."""
    owner: ClassVar[str]
    """The program that owns the cache, for sentences, such as ``PoCL`` or ``the CUDA driver``."""
    place: ClassVar[Place]
    format: ClassVar["type[Format] | None"] = None
    """The format of a system in another package; each of ours is in the module of its name."""
    needs_folder_of_all: ClassVar[bool] = False
    """Whether programs look elsewhere if the user's directory of all caches does not exist."""
    unseen: ClassVar[str] = ""
    """The damage that the owner stores nothing to check against, as words of a sentence; empty if unknown."""
    signs: ClassVar[Sequence[str]] = ()
    """Patterns, as in a layout, of names that no other program gives its files, if no format is read."""
    unlisted: ClassVar[str] = "(?!)"
    """The pattern of the paths of files that are no entries, if no format is read."""

    @property
    def _format(self) -> "type[Format]":
        from gpucache.caches.registry import format_of

        return self.format or format_of(self.name)

    @property
    def wanted(self) -> Mapping[str, str]:
        return self._format.wanted

    def question(self, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """The question for ``explain`` that shows whether the cache would serve a build."""
        return self._format.question(request, toolchain)

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The places where its programs look in an environment, in order, existing or not. Raises nothing."""
        return tuple(self.found(environ))

    def recognises(self, path: Path) -> bool:
        """Whether a file or directory looks like one of its caches. Raises nothing."""
        from gpucache.caches.layout import Whose

        try:
            return self._format.whose(path) is Whose.OWN
        except (OSError, ValueError):
            return False

    def open(self, location: Location, clock: "Clock" = time.time_ns) -> Cache:
        """The cache at a location; raises CacheUnusableError if it cannot be opened at all."""
        from gpucache.caches.foreign_cache import ForeignCache

        self._format.require(Path(location.root))
        return ForeignCache(self._format(self._format.opened(location), clock))

    @classmethod
    def described(cls) -> str:
        ways = ", else ".join(dict.fromkeys(map(str, cls.place.ways)))
        unseen = f"unseen by verify: {cls.unseen}" if cls.unseen else ""
        more = (f" {one[0].upper()}{one[1:]}." for one in (cls.lacking(), unseen) if one)
        return f"{cls.title}, in {ways or 'the file or directory that you name'}.{''.join(more)}"

    @classmethod
    def nowhere(cls) -> str:
        """Why an environment can lack a place for its caches, and the remedy; a clause."""
        last = cls.place.ways[-1] if cls.place.ways else None
        what = "name of the user" if isinstance(last, Temporary) and last.user else "home directory"
        return cls.place.nowhere or f"{cls.owner} finds no {what}; set {cls.place.variable}"

    @classmethod
    def lacking(cls) -> str:
        """The parts that no variable redirects, as a sentence; empty if all are redirected."""
        shared = f"{XDG} moves every cache that follows it, as {cls.owner} has no separate variable"
        return cls.place.lacking or (shared if cls.place.variable == XDG else "")

    @classmethod
    def isolation(cls, folder: Path) -> Isolation:
        """The environment that moves its programs' cache below a directory."""
        place = cls.place
        if not any(isinstance(way, Var) for way in place.ways):
            return Isolation(lacking=cls.lacking())
        root = folder if place.variable == XDG else folder / (place.leaf or cls.name)
        return Isolation(((place.variable, str(root)), *place.along), cls.lacking(), place.turn_on)

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size limit that the owner enforces; None if there is none or it is unknown."""
        variable, default = cls.place.limit
        text = environ.get(variable, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else default

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """Why programs use no cache, as a sentence; empty if they use it."""
        return cls.place.why_off(environ)

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        """Problems of the owner's variables, a sentence each with the remedy; that they turn the cache off,
        or that a place is relative, is reported already."""
        yield from ()

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """The problems of a place, a sentence each with the remedy."""
        place = cls.place
        found = problems(root, move=place.move, makes=place.makes, runs=place.runs)
        yield from found
        told = closed(root, move=place.move)
        if told and told not in found:
            yield told

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The places where programs look in an environment, in their order, existing or not."""
        found = cls.place.find(environ)
        for named, decided_by in (*((found,) if found else ()), *cls.place.beside(environ)):
            root = absolute(named)
            off = cls.off(environ)
            told = (
                off,
                *cls.variables(environ),
                cls.place.relative(named, decided_by),
                *cls.at_place(root),
            )
            yield Location(
                cls.name,
                str(root),
                decided_by,
                enabled=not off and (not cls.place.opt_in or is_folder(root)),
                limit_bytes=cls.limit_bytes(environ),
                problems=tuple(filter(None, told)),
            )


def problems(root: Path, *, move: str, makes: bool = True, runs: bool = False) -> tuple[str, ...]:
    """The problems of a place; ``move`` is the remedy that puts the cache elsewhere, as a clause.

    ``makes`` is whether the owner creates the place if it is missing, ``runs`` whether it loads libraries
    from there. Raises nothing.
    """
    try:
        status = root.stat()
    except (FileNotFoundError, NotADirectoryError):
        return tuple(_missing(root, move=move, makes=makes))
    except (OSError, ValueError) as error:
        return (f"it cannot be looked at ({getattr(error, 'strerror', None) or error}); {move}",)
    found = [distrust(status, move=move), _unwritable(root, move)]
    return (*filter(None, found), *_ground(root, move=move, runs=runs), *_room(root, move))


def closed(root: Path, *, move: str) -> str:
    """Why the content of a place is unknown; empty if it can be known. Raises nothing."""
    try:
        folder = stat.S_ISDIR(root.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        return f"it cannot be looked at ({getattr(error, 'strerror', None) or error}); {move}"
    if os.access(root, os.R_OK | os.X_OK if folder else os.R_OK):
        return ""
    return f"{root} may not be read by this user, so its content is not known; {move}"


def shows_uses(root: Path) -> bool:
    """Whether every reader of a file below a place runs on this machine and leaves an access time. Raises
    nothing."""
    if sys.platform != "linux":
        return False
    try:
        if os.statvfs(root).f_flag & os.ST_NOATIME:
            return False
        mount = mount_of(root.resolve(), mounts())
    except (OSError, RuntimeError):  # a loop of links
        return False
    return mount is None or mount.medium is not Medium.NETWORK


def require_folder(root: Path, remedy: str) -> None:
    """Raise CacheUnusableError if a place exists but is not a directory, with a remedy as a clause.

    A missing or unreadable directory is a problem of the location.
    """
    try:
        folder = stat.S_ISDIR(root.stat().st_mode)
    except (FileNotFoundError, PermissionError):
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CacheUnusableError(f"{str(root)!r} cannot be looked at ({why}); {remedy}") from error
    if not folder:
        raise CacheUnusableError(f"{root} is not a directory; {remedy}")


def distrust(status: os.stat_result, *, move: str) -> str:
    """Why a directory or file with this owner and mode is not trustworthy; empty if it is."""
    if sys.platform == "win32":
        return ""
    if status.st_uid != _ADMINISTRATOR and not is_own(status):
        return f"it belongs to uid {status.st_uid}; {for_its_owner(status)}{move}"
    kept_apart = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # as /tmp is
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not kept_apart:
        mode = stat.S_IMODE(status.st_mode)
        return f"others may write to it (mode {mode:04o}), so its content cannot be trusted; chmod go-w it"
    return ""


def _on_mount(mount: Mount, root: Path, *, move: str, runs: bool, contained: bool) -> Iterator[str]:
    """The problems of a cache at ``root`` on a mount; only a container can be given a volume."""
    if "noexec" in mount.options and runs:
        yield (
            f"{mount.point} is mounted noexec, so the libraries in it cannot be loaded; "
            f"run 'mount -o remount,exec {mount.point}', or {move}"
        )
    if mount.medium is Medium.NETWORK:
        yield f"it is on a network file system ({mount.kind}), where caches stall and break; {move}"
    elif mount.medium is Medium.MEMORY:
        volume = f", or mount a volume: docker run -v gpu-caches:{root}" if contained else ""
        yield f"it is in memory ({mount.kind}) and is lost at the next start; {move}{volume}"
    elif mount.medium is Medium.LAYER:
        yield (
            "it is in the container's own layer and is lost with it; mount a volume: "
            f"docker run -v gpu-caches:{root}, or {move}"
        )


def _missing(root: Path, *, move: str, makes: bool) -> Iterator[str]:
    nearest = next((parent for parent in root.parents if parent.is_dir()), None)
    if nearest is None:
        yield f"it does not exist; {move}"
    elif not os.access(nearest, os.W_OK) or _read_only(nearest):
        yield f"it does not exist and cannot be made in {nearest}; {move}"
    elif not makes:
        yield f"it does not exist, and its owner does not make it; run 'mkdir -p {root}'"


def _unwritable(root: Path, move: str) -> str:
    if _read_only(root):
        return f"it is on a read-only file system, so nothing new is kept; {move}"
    return "" if os.access(root, os.W_OK) else f"it cannot be written, so nothing new is kept; {move}"


def _read_only(path: Path) -> bool:
    """Whether a path is mounted read-only, which permissions do not show to the administrator."""
    if sys.platform == "win32":
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _ground(root: Path, *, move: str, runs: bool) -> Iterator[str]:
    try:
        real = root.resolve()
    except OSError:  # it is the current directory, and gone
        return
    every = mounts()
    mount, top = mount_of(real, every), mount_of(Path("/"), every)
    contained = top is not None and top.medium is Medium.LAYER  # as in Docker, Podman and Kubernetes
    told = list(_on_mount(mount, real, move=move, runs=runs, contained=contained)) if mount else []
    yield from told
    temporary = Path("/tmp").resolve()
    # A file system mounted below /tmp is not emptied with it.
    apart = mount is not None and temporary in Path(mount.point).parents
    if not told and not apart and real.is_relative_to(temporary):
        yield f"the cache is in /tmp and will be lost on reboot; {move.partition(', or ')[0]}"


def _room(root: Path, move: str) -> Iterator[str]:
    if sys.platform == "win32":
        return
    try:
        space = os.statvfs(root)
    except OSError:
        return
    if space.f_flag & os.ST_RDONLY:
        return
    if space.f_files and space.f_favail < FEW_INODES:
        yield f"only {space.f_favail} more files fit on its file system; make room, or {move}"
    free = space.f_bavail * space.f_frsize
    if space.f_blocks and free < LITTLE_BYTES:
        yield f"only {format_size(free)} are free on its file system or quota; make room, or {move}"


def matching(pattern: Path) -> list[Path]:
    """The paths that match one with ``*`` in its parts, at most a limit. Raises
    nothing."""
    if "*" not in str(pattern):
        return [pattern]
    with suppress(OSError, ValueError, RuntimeError):
        top = next(above for above in pattern.parents if "*" not in str(above))
        return sorted(islice(top.glob(str(pattern.relative_to(top))), _MATCHED))
    return []


def is_folder(path: Path) -> bool:
    """Whether a directory exists. Raises nothing."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def absolute(path: Path) -> Path:
    """A path from the root; unchanged if the current directory is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def _on_record(what: str) -> str | None:
    """A field of the user's record; None if it does not exist."""
    if sys.platform == "win32":
        return None
    import pwd

    try:
        return str(getattr(pwd.getpwuid(os.getuid()), what))
    except KeyError:  # a user without a name
        return None


_LIMIT_BYTES = 4 << 20
_ESCAPED = re.compile(r"\\([0-7]{3})")
_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs",
    }
)  # fmt: skip
_MEMORY = frozenset({"tmpfs", "ramfs"})
_LAYER = frozenset({"overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs"})


def parse(text: str) -> tuple[Mount, ...]:
    """The mounts of a mountinfo, in its order; invalid lines are left out."""
    return tuple(filter(None, map(_mount, text.splitlines())))


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that contains an absolute path: the last one with the longest mount point above it."""
    holding = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not holding:
        return None
    longest = max(len(Path(mount.point).parts) for mount in holding)
    return next(mount for mount in reversed(holding) if len(Path(mount.point).parts) == longest)


def mounts() -> tuple[Mount, ...]:
    """The mounts of this process; none if the system does not report them."""
    try:
        with Path("/proc/self/mountinfo").open("rb") as file:
            return parse(file.read(_LIMIT_BYTES).decode(errors="surrogateescape"))
    except OSError:
        return ()


def _mount(line: str) -> Mount | None:
    own, dash, rest = line.partition(" - ")
    fields, kinds = own.split(" "), rest.split(" ")
    if not dash or len(fields) < 6 or len(kinds) < 3:
        return None
    options = frozenset((*fields[5].split(","), *kinds[2].split(",")))
    return Mount(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]), kinds[0], options)


def row(names: tuple[str, str, str], *ways: Way, **facts: Any) -> type[Places]:
    """A system of facts: its name, title and owner, its ways, and fields of ``Places`` and ``Place``."""
    own = {fact: facts.pop(fact) for fact in tuple(facts) if fact not in Place._fields}
    own |= dict(zip(("name", "title", "owner"), names, strict=True))
    return type(names[0], (Places,), {"place": Place(ways, **facts), **own})
