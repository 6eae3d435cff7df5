"""Where an environment puts rocFFT's databases, and the problems of these places.

Owns the variables. Source: rocFFT, ``rtc_cache.cpp`` and the environment variables of its documentation.
Raises nothing.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import Place, Places, Var

NAME = "rocfft"
USER, SYSTEM = "user", "system"
USER_PATH, SYSTEM_PATH = "ROCFFT_RTC_CACHE_PATH", "ROCFFT_RTC_SYS_CACHE_PATH"
READ_DISABLE, WRITE_DISABLE = "ROCFFT_RTC_CACHE_READ_DISABLE", "ROCFFT_RTC_CACHE_WRITE_DISABLE"
MEMORY = ":memory:"
MOVE = "set ROCFFT_RTC_CACHE_PATH to a file elsewhere"
_NAME = "rocfft_kernel_cache.db"
_BY_ARCH = re.compile(r"rocfft_kernel_cache_[\w.+-]{1,64}\.db")
_LIBRARY = "librocfft.so"
_ENTRIES_READ = 20_000
_INSTALL = f"unset {SYSTEM_PATH}, or install rocFFT anew"


def real_path(path: Path) -> Path:
    """The target of a path; the path unchanged if the working directory is gone. Raises nothing."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def _location(named: str | Path, decided_by: str, role: str, environ: Mapping[str, str]) -> Location:
    """One place with all its problems; a variable may name a relative one."""
    path = places.absolute(Path(named))
    told = f"{decided_by} is {named}, another place for every current directory; set an absolute path"
    relative = () if Path(named).is_absolute() else (told,)
    switched_off = (
        f"rocFFT {what} nothing, as {name} is set to {environ[name][:40]!r} "
        f"and any value, even 0, means that; unset {name}"
        for name, what in ((READ_DISABLE, "reads"), (WRITE_DISABLE, "writes"))
        if environ.get(name) and (role != SYSTEM or name == READ_DISABLE)
    )
    problems = (*relative, *switched_off, *place_problems(path, role))
    return Location(NAME, str(path), decided_by, not environ.get(READ_DISABLE), None, problems, role)


def place_problems(path: Path, role: str) -> tuple[str, ...]:
    """The problems of a database's directory and file system; its own problems are findings."""
    real = real_path(path)
    if not real.is_absolute():  # the working directory is gone
        return ()
    around = _installed(real) if role == SYSTEM else places.problems(real.parent, move=MOVE, makes=False)
    return (*around, *_file(real, role, MOVE if role != SYSTEM else _INSTALL))


def _installed(path: Path) -> Iterator[str]:
    """Problems of a place that no user writes to: whether it exists and is trusted."""
    try:
        if distrusted := places.distrust(path.parent.stat(), move=_INSTALL):
            yield distrusted
        if not os.path.exists(path):  # noqa: PTH110 - raises nothing
            yield f"{path} does not exist, so every kernel of the installation is compiled again; {_INSTALL}"
    except OSError as error:
        yield f"{path.parent} cannot be accessed ({error.strerror}); {_INSTALL}"


def _file(path: Path, role: str, move: str) -> Iterator[str]:
    if told := places.closed(path, move=move):
        yield told
    elif (
        role != SYSTEM and is_file(path) and not os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    ):
        # If the directory takes nothing either, that is reported already.
        yield f"the file is read-only, so every store fails and nothing new is kept; {move}"


def is_file(path: Path) -> bool:
    """Whether a file exists, as far as this user can see. Raises nothing."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises if the directory may not be entered


def _library(environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """The directory of the library that a program would load, and the variable that decided it."""
    searched = [(part, "LD_LIBRARY_PATH") for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    if environ.get("ROCM_PATH"):
        searched.append((str(Path(environ["ROCM_PATH"], "lib")), "ROCM_PATH"))
    searched.append(("/opt/rocm/lib", "default"))
    for place, decided_by in searched:
        folder = places.absolute(Path(place))
        if any(name.startswith(_LIBRARY) for name in _names(folder)):
            return folder, decided_by
    return None, ""


def _beside_library(folder: Path) -> Iterator[Path]:
    """The paths of the system's database, or of one for each architecture, next to the library."""
    seen: set[str] = set()
    for place in (folder, folder / "rocfft"):
        for name in sorted(_names(place)):
            known = name == _NAME or _BY_ARCH.fullmatch(name)
            if known and name not in seen and is_file(place / name):
                seen.add(name)
                yield place / name


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry, _ in zip(found, range(_ENTRIES_READ), strict=False)]
    except OSError:
        return []


class RocfftPlaces(Places):
    """The user's database and the system's."""

    name = NAME
    title = "rocFFT runtime-compilation cache"
    owner = "rocFFT"
    place = Place(
        (Var(USER_PATH),),
        remedy=MOVE,
        nowhere="ROCFFT_RTC_CACHE_PATH is not set, so rocFFT keeps kernels in memory alone and every start "
        "compiles them; set it to a file",
        leaf="rocfft_kernel_cache.db",
        along=((SYSTEM_PATH, MEMORY),),
        makes=False,
        opt_in=False,
    )
    tracing = {"ROCFFT_LAYER": "32"}
    """Bit 32 logs compiled and cached kernels; ``ROCFFT_LOG_RTC_PATH`` names the file."""

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        place, named = environ.get(USER_PATH, ""), environ.get(SYSTEM_PATH, "")
        if place and place != MEMORY:
            yield _location(place, USER_PATH, USER, environ)
        if named and named != MEMORY:
            yield _location(named, SYSTEM_PATH, SYSTEM, environ)
        folder, decided_by = (None, "") if named else _library(environ)
        if folder is not None:
            yield from (_location(path, decided_by, SYSTEM, environ) for path in _beside_library(folder))
