"""The places of files and their limits: option over environment over default, each with its origin.

Pure over a mapping of the environment, but for the place of user caches, which platformdirs knows. Knows
nothing of its content.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpucache.errors import CacheUnusableError, UsageError
from gpucache.host.environment import is_true
from gpucache.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEFAULT_MEMORY_BYTES = 64 * 1024 * 1024
DEFAULT_REMOTE_MS = 1250
_FALSE = frozenset({"", "0", "false", "no", "off"})
_LEVELS = ("debug", "info", "warning", "error", "critical")
_LONGEST_MS = 600_000
_NO_HOME = (
    "this user has no home directory to keep a cache in; set GPUCACHE_DIR to a private directory, "
    "or GPUCACHE_SYSTEM_DIRS to a warmed one"
)
FILE_ORIGINS = ("--cache-file", "GPUCACHE_FILE")
"""The origins of a root that is kept in a file, which need not exist."""


ENVIRONMENT = (
    "GPUCACHE_DIR",
    "GPUCACHE_FILE",
    "GPUCACHE_SYSTEM_DIRS",
    "GPUCACHE_MAX_SIZE",
    "GPUCACHE_MEMORY_BYTES",
    "GPUCACHE_DISABLE",
    "GPUCACHE_READ_ONLY",
    "GPUCACHE_REQUIRE",
    "GPUCACHE_LEARN",
    "GPUCACHE_REMOTE",
    "GPUCACHE_REMOTE_WRITE",
    "GPUCACHE_REMOTE_TIMEOUT_MS",
    "GPUCACHE_LOG",
    "GPUCACHE_SIGNING_KEY",
    "GPUCACHE_TRUSTED_KEYS",
)
"""Every variable that is a setting; gpucache(1) explains each."""
RUN_ENVIRONMENT = (
    "GPUCACHE_RUN_SOCKET",
    "GPUCACHE_RUN_ROOTS",
    "GPUCACHE_RUN_FILTERS",
    "GPUCACHE_RUN_TUNABLES",
    "GPUCACHE_RUN_TIMEOUT_MS",
    "GPUCACHE_RUN_ADOPTED",
    "GPUCACHE_RUN_UNPACKED",
    "GPUCACHE_LAYER",
    "GPUCACHE_LAYER_TELL",
    "GPUCACHE_RECORD_KERNELS",
    "GPUCACHE_RECORD_NO_SOURCES",
    "GPUCACHE_FOLLOWED",
    "GPUCACHE_OWNER_UID",
)
"""Other variables: for the libraries that are loaded into programs, and for root."""


class Remote(NamedTuple):
    """The store on another machine, which is queried after all roots."""

    url: str
    timeout_s: float = DEFAULT_REMOTE_MS / 1000
    """The most that asking may cost a process beyond what its hits saved."""
    writes: bool = False
    """Whether it also gets the builds of this machine."""
    limited_by: str = "GPUCACHE_REMOTE_TIMEOUT_MS"
    """The variable that raises the time."""
    patient: bool = False
    """Whether the limit is for each reply, so that waiting for many replies may take longer."""
    others: tuple[str, ...] = ()
    """The URLs of further stores, each queried for entries that the stores before it lack."""


class Settings(NamedTuple):
    """Everything that the environment and the options decide."""

    root: "Path | None"
    """None if nothing names a usable place (no home)."""
    root_origin: str
    """The origin of the root: ``--root``, ``GPUCACHE_DIR``, ``FILE_ORIGINS`` or ``default``."""
    folder: "Path | None" = None
    """The directory of a root that is in a file, once that was opened."""
    system_dirs: "tuple[Path, ...]" = ()
    max_size_bytes: int | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    disabled: bool = False
    read_only: bool = False
    require: bool = False
    learn: bool = False
    log: str = ""
    remote: Remote | None = None
    signing_key: "Path | None" = None
    trusted_keys: str = ""

    @property
    def in_file(self) -> bool:
        """Whether the root is a file, or will be one."""
        # A place that may not be looked at is none, and Path.is_file() would raise.
        return self.root_origin in FILE_ORIGINS or (self.root is not None and os.path.isfile(self.root))  # noqa: PTH113

    def require_root(self) -> "Path":
        """The root; raises CacheUnusableError if there is none."""
        if self.root is None:
            raise CacheUnusableError(_NO_HOME)
        return self.root

    def require_folder(self) -> "Path":
        """The root's directory; raises CacheUnusableError if there is no root."""
        return self.folder or self.require_root()


def read_settings(
    environ: Mapping[str, str], *, root: str | None = None, file: str | None = None
) -> Settings:
    """Settings of an environment; ``root`` and ``file`` are options, which win. Raises UsageError."""
    from pathlib import Path  # not above: --version needs the names of the variables first

    path, origin = find_root(environ, root, file)
    max_size = environ.get("GPUCACHE_MAX_SIZE", "")
    memory = environ.get("GPUCACHE_MEMORY_BYTES", "")
    signing_key = environ.get("GPUCACHE_SIGNING_KEY", "")
    return Settings(
        root=path,
        root_origin=origin,
        system_dirs=tuple(
            Path(part).absolute()
            for part in environ.get("GPUCACHE_SYSTEM_DIRS", "").split(os.pathsep)
            if part
        ),
        max_size_bytes=_size("GPUCACHE_MAX_SIZE", max_size) if max_size else None,
        memory_bytes=_size("GPUCACHE_MEMORY_BYTES", memory) if memory else DEFAULT_MEMORY_BYTES,
        disabled=_flag(environ, "GPUCACHE_DISABLE"),
        read_only=_flag(environ, "GPUCACHE_READ_ONLY"),
        require=_flag(environ, "GPUCACHE_REQUIRE"),
        learn=_flag(environ, "GPUCACHE_LEARN"),
        log=environ.get("GPUCACHE_LOG", ""),
        remote=_remote(environ),
        signing_key=Path(signing_key) if signing_key else None,
        trusted_keys=environ.get("GPUCACHE_TRUSTED_KEYS", ""),
    )


def _remote(environ: Mapping[str, str]) -> Remote | None:
    limit = environ.get("GPUCACHE_REMOTE_TIMEOUT_MS", "")
    url, *others = _urls(environ.get("GPUCACHE_REMOTE", ""))
    remote = Remote(
        url,
        (int(limit) if _is_time(limit) else DEFAULT_REMOTE_MS) / 1000,
        _flag(environ, "GPUCACHE_REMOTE_WRITE"),
        others=tuple(others),
    )
    return remote if remote.url else None


def _urls(text: str) -> list[str]:
    """The stores of a text, which stand apart by spaces; a directory's name may have some."""
    found: list[str] = []
    for word in text.split(" "):
        if not found or ":/" in word or word.startswith(("/", "./", "../", "~")):
            found.append(word)
        else:
            found[-1] += f" {word}"
    return [url.strip() for url in found if url.strip()] or [""]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each unknown variable whose name resembles ours, with the nearest of ours.

    Also one for each of our variables whose value is ignored; ``read_settings`` raises for the rest.
    """
    known = (*ENVIRONMENT, *RUN_ENVIRONMENT)
    told = []
    for name in sorted(environ):
        if name.startswith("GPUCACHE_") and name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1, cutoff=0)
            told.append(f"{name} is set and means nothing to gpucache; {near[0]} does")
    return [*told, *_misspelt(environ)]


def _misspelt(environ: Mapping[str, str]) -> "Iterator[str]":
    level = environ.get("GPUCACHE_LOG", "")
    if level and level.lower() not in _LEVELS:
        yield f"GPUCACHE_LOG={level} is not a level; set it to debug, info or warning"
    tell = environ.get("GPUCACHE_LAYER_TELL", "")
    if not is_true(tell) and tell.lower() not in _FALSE:
        yield f"GPUCACHE_LAYER_TELL={tell} is not yes or no; set it to 1 or 0"
    for name, usual in (("GPUCACHE_RUN_TIMEOUT_MS", 5000), ("GPUCACHE_REMOTE_TIMEOUT_MS", DEFAULT_REMOTE_MS)):
        limit = environ.get(name, "")
        if limit and not _is_time(limit):
            yield f"{name}={limit} is not a number from 1 to {_LONGEST_MS}; {usual} is used"


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _LONGEST_MS


def other_roots(environ: Mapping[str, str]) -> "list[Path]":
    """Every place that a variable or the default names as a root, whether or not an option won."""
    from pathlib import Path

    named = environ.get("GPUCACHE_DIR", "")
    roots = [Path(named).absolute() if named else None, _default_root()]
    return [root for root in dict.fromkeys(roots) if root is not None]


def find_root(
    environ: Mapping[str, str], option: str | None = None, file: str | None = None
) -> "tuple[Path | None, str]":
    """The root of our cache, None if there is no usable place, and its origin.

    Raises UsageError for options that are empty, or both given.
    """
    from pathlib import Path

    if option is not None and file is not None:
        raise UsageError("--root and --cache-file both name the cache; leave one out")
    if "" in (option, file):
        name, kind = ("--root", "directory") if option == "" else ("--cache-file", "file")
        raise UsageError(f"{name} is empty; name a {kind}, or leave it out")
    named = {"--cache-file": file, "--root": option}
    named |= {name: environ.get(name) for name in ("GPUCACHE_FILE", "GPUCACHE_DIR")}
    for origin, place in named.items():
        if place:
            return Path(place).absolute(), origin
    return _default_root(), "default"


def _default_root() -> "Path | None":
    import platformdirs

    return _of_user(platformdirs.user_cache_dir)


def own_key_place() -> "Path | None":
    """The default secret key of this user; None without a home directory."""
    folder = _of_user(_config_dir)
    return folder and folder / "key"


def _config_dir(name: str, *, appauthor: Literal[False]) -> str:
    is_linux = sys.platform == "linux"
    if is_linux:  # every program asks, and importing platformdirs takes milliseconds
        return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), name)  # noqa: PTH111, PTH118
    import platformdirs

    return platformdirs.user_config_dir(name, appauthor=appauthor)


def _of_user(place: "Callable[..., str]") -> "Path | None":
    from pathlib import Path

    try:
        path = Path(place("gpucache", appauthor=False))
    except (KeyError, RuntimeError, OSError):
        return None  # a uid without a name
    if not path.is_absolute():
        return None  # platformdirs leaves "~" as it is if there is no home directory
    if sys.platform != "win32" and path.parent in (Path("/.cache"), Path("/.config")) and os.geteuid() != 0:
        return None  # HOME=/, which container runtimes give to a uid without a name
    return path


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if is_true(text):
        return True
    if text in _FALSE:
        return False
    raise UsageError(f"{name}={environ[name]} is not yes or no; set it to 1 or 0")


def _size(name: str, text: str) -> int:
    try:
        return parse_size(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


MACHINE = "/etc/gpucache.toml"
"""The settings of the machine; those of a user are in ``settings.toml`` of the configuration directory."""
_MOST_BYTES = 64 << 10
_NAMES = {name.removeprefix("GPUCACHE_").lower(): name for name in ENVIRONMENT}
_SEPARATORS = {"system_dirs": os.pathsep, "trusted_keys": " "}
_FLAGS = frozenset({"disable", "read_only", "require", "learn", "remote_write"})
_PATH_KEYS = frozenset({"dir", "file", "system_dirs", "signing_key"})


_set_by: dict[str, str] = {}


def named_by(origin: str) -> str:
    """What named a value: the settings file that set its variable, or else the origin itself."""
    return _set_by.get(origin, origin)


def file_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that the settings files of the machine and of the user set, and ``environ`` does not.

    A file is a TOML table of the variables in lower case, without their prefix: ``max_size = "20GiB"``. In
    paths ``~`` and variables are those of the reader. ``native/run.c`` knows the places, and leaves a command
    to Python if there is a file. Raises UsageError for one that is not valid, or that others can write.
    """
    found: dict[str, str] = {}
    _set_by.clear()
    for path, exists in settings_files().items():
        if exists:
            values = {name: value for name, value in _read_file(path).items() if name not in environ}
            found |= values
            _set_by.update(dict.fromkeys(values, str(path)))
    return found


def settings_files() -> "dict[Path, bool]":
    """The settings files of the machine and of the user, and whether each exists."""
    from pathlib import Path

    own = _of_user(_config_dir)
    # A place that may not be looked at is none, and Path.exists() would raise.
    return {path: os.path.lexists(path) for path in (Path(MACHINE), own and own / "settings.toml") if path}


def _read_file(path: "Path") -> Mapping[str, str]:
    import stat
    import tomllib

    from gpucache.folders import is_own

    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror}); fix its permissions") from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _wrong(path, "is not a file; remove it")
        if hasattr(os, "geteuid"):
            if status.st_uid not in (0, os.geteuid()) and not is_own(status):
                raise _wrong(path, "belongs to another user; make it root's or your own")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _wrong(path, f"can be changed by others; run: chmod go-w {path}")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise _wrong(path, f"is larger than {_MOST_BYTES >> 10} KiB; shorten it")
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"is not TOML ({error}); fix it or remove it") from None
    return {_name(path, key): _file_text(path, key, value) for key, value in values.items()}


def _name(path: "Path", key: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    from difflib import get_close_matches

    near = get_close_matches(key, _NAMES, 1, cutoff=0)[0]
    raise _wrong(path, f"sets {key[:80]!r}, which is no setting; did you mean {near!r}?")


def _file_text(path: "Path", key: str, value: object) -> str:
    listed = isinstance(value, list) and key in _SEPARATORS
    values = value if isinstance(value, list) and listed else [value]
    if not all(isinstance(one, str | int) for one in values):
        raise _wrong(path, f"has no text, number or truth value for {key}; write one in quotes")
    texts = [str(int(one)) if isinstance(one, bool) else str(one) for one in values]
    if key in _PATH_KEYS:
        texts = [os.path.expanduser(os.path.expandvars(text)) for text in texts]  # noqa: PTH111
        for text in texts:
            if "$" in text:
                unset = text[text.index("$") :].split("/")[0]
                raise _wrong(path, f"names {unset} for {key}, which is not set; set it or write the path")
            if not all(
                part.startswith(("/", "\\")) or part[1:2] == ":"
                for part in text.split(_SEPARATORS.get(key, "\0"))
            ):
                raise _wrong(path, f"names the relative path {text!r} for {key}; write an absolute one")
    text = _SEPARATORS.get(key, " ").join(texts)
    try:
        if key in ("max_size", "memory_bytes"):
            parse_size(text)
        elif key in _FLAGS:
            _flag({key: text}, key)
    except UsageError as error:
        raise _wrong(path, f"has a wrong value for {key}: {error}") from None
    return text


def _wrong(path: "Path", why: str) -> UsageError:
    return UsageError(f"the settings file {path} {why}")
