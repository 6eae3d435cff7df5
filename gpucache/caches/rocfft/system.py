"""rocFFT's kernel cache as a ``gpucache.caches.interface.System``. Must not know rows."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from gpucache.caches.interface import Isolation
from gpucache.caches.rocfft import places, reaching
from gpucache.caches.rocfft.anatomy import examine, sides
from gpucache.caches.rocfft.cache import NAME, RocfftCache
from gpucache.caches.rocfft.connecting import open_reader, peek, told
from gpucache.caches.rocfft.mending import NAMED
from gpucache.caches.rocfft.schema import Table, read_shape
from gpucache.errors import GpucacheError
from gpucache.outcomes import Location

_TABLES = (Table.OURS, Table.OLD, Table.ODD)


class RocfftSystem:
    """rocFFT."""

    name = NAME
    title = "rocFFT runtime-compilation cache"
    nowhere = (
        "ROCFFT_RTC_CACHE_PATH is not set, so rocFFT keeps kernels in memory alone and every start "
        "compiles them; set it to a file"
    )
    wanted: Mapping[str, str] = reaching.FIELDS
    tracing: Mapping[str, str] = {"ROCFFT_LAYER": "32"}
    """Bit 32 logs what is compiled and what is found; ``ROCFFT_LOG_RTC_PATH`` names the file."""

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The user's database, then the system's; without a path rocFFT keeps its own in memory only."""
        return tuple(places.locations(NAME, environ))

    def recognises(self, path: Path) -> bool:
        """Whether a file is a database with rocFFT's table, or is called like one."""
        try:
            return path.is_file() and (fnmatch(path.name, NAMED) or _has_table(path.resolve()))
        except (GpucacheError, OSError, RuntimeError):
            return False

    def open(self, location: Location) -> RocfftCache:
        """The database at a location; also a damaged one, whose damage is a finding."""
        if not location.problems:
            problems = places.place_problems(Path(location.root), location.role)
            location = replace(location, problems=problems)
        return RocfftCache(location)

    def isolation(self, folder: Path) -> Isolation:
        """A database of its own, and no system database."""
        own = str(folder / "rocfft_kernel_cache.db")
        return Isolation(((places.USER_PATH, own), (places.SYSTEM_PATH, places.MEMORY)))


def _has_table(path: Path) -> bool:
    """Whether a database has the table; its log is asked only where the file itself has none."""
    anatomy = examine(path)
    if anatomy is None or not anatomy.header:
        return False
    with told(path), closing(peek(path, anatomy)) as connection:
        if read_shape(connection).table in _TABLES:
            return True
    if not sides(path).get("-wal"):
        return False
    reader = open_reader(path, anatomy)
    with told(path), closing(reader):
        return read_shape(reader.connection).table in _TABLES
