"""Databases as rocFFT writes them, made with SQLite from upstream's schema; and code objects for them."""

import hashlib
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.answers.verify import Finding
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.caches.rocfft.database import CREATE
from tests.caches.opened import Cases, Environs, Lay

SYSTEM = of_others("rocfft")

KERNEL = "fft_rtc_fwd_len64_factors_8_8_wgs_64_tpt_8_halfLds_dim1_sp_ip_CI_unitstride_sbrr_dirReg"
OTHER = "fft_rtc_back_len128_factors_8_16_wgs_128_tpt_16_dim1_dp_op_CI_CI_sbcc_twdbase8_2step"
HIP = 60241133
SUM = hashlib.sha256(b"generator").digest()
MACHINES = {"gfx908": 0x30, "gfx90a": 0x3F, "gfx942": 0x4C, "gfx1100": 0x41, "gfx9-generic": 0x51}
SELECT = (
    "SELECT code FROM cache_v1 WHERE kernel_name = ? AND arch = ? AND hip_version = ? AND generator_sum = ?"
)
"""The query of rocFFT at a lookup."""
Values = tuple[object, object, object, object, object, object]


def code(arch: str = "gfx90a", fill: bytes = b"\0", size: int = 200, machine: int = 224) -> bytes:
    """A code object: the header of an ELF file for an AMD GPU, and bytes behind it."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, 3]) + bytes(7)
    flags = MACHINES.get(arch, 0)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)
    return header + fill * size


def row(
    name: object = KERNEL,
    arch: object = "gfx90a",
    version: object = HIP,
    total: object = SUM,
    data: object = None,
    seconds: object = 1_700_000_000,
) -> Values:
    return name, arch, version, total, code(str(arch)) if data is None else data, seconds


def database(path: Path, rows: Iterable[Values] = (), *, schema: str = CREATE, wal: bool = False) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(schema)
        insert(connection, rows)
    return path


def insert(connection: sqlite3.Connection, rows: Iterable[Values]) -> None:
    values = list(rows)
    if not values:
        return
    connection.execute("BEGIN")
    connection.executemany("INSERT OR REPLACE INTO cache_v1 VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute("COMMIT")


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def live_wal(path: Path, rows: Sequence[Values]) -> sqlite3.Connection:
    """A database all of whose rows are still in its log, held open by the connection that is returned."""
    database(path, wal=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    insert(connection, rows)
    return connection


def dead_wal(path: Path, rows: Sequence[Values]) -> Path:
    """A database with the log of a program that died, and no index of the log."""
    source = path.with_name("writer.db")
    with closing(live_wal(source, rows)):
        _take(source, path, "", "-wal")
    source.unlink()
    return path


_CHANGE = "UPDATE cache_v1 SET timestamp = -1, code = zeroblob(length(code))"


def hot_journal(path: Path, rows: Sequence[Values], change: str = _CHANGE) -> Path:
    """A database whose writer died in the middle of a change; the journal has what was there before."""
    source = database(path.with_name("writer.db"), rows)
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size=1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(change)
        _take(source, path, "", "-journal")
    source.unlink()
    return path


def _take(source: Path, path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        shutil.copyfile(f"{source}{suffix}", f"{path}{suffix}")


def opened(path: Path, *, role: str = "", enabled: bool = True) -> Cache:
    """The cache at a path as ``--cache`` opens it."""
    return SYSTEM.open(Location("rocfft", str(path), "--cache", enabled, role=role))


def file_findings(path: Path, *, role: str = "") -> list[Finding]:
    """The problem with a file as a whole."""
    return [finding for checked in opened(path, role=role).leftovers() for finding in checked.findings]


def row_findings(path: Path) -> list[Finding]:
    """The problem with the rows of a file."""
    cache = opened(path)
    return [finding for entry in cache.scan() for finding in cache.check(entry).findings]


def kinds(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.kind) for finding in findings]


def trace(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything in a directory: names, bytes, times of change, and of their places in it."""
    return {
        entry.name: (Path(entry).read_bytes(), entry.stat().st_mtime_ns, entry.stat().st_ino)
        for entry in os.scandir(folder)
    }


def answer(path: Path, values: Values) -> bytes | None:
    """The code that rocFFT's own query returns for the key of a row; None if it finds none."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(SELECT, values[:4]).fetchone()
        return None if found is None else bytes(found[0])


_PATH, _SYSTEM = "ROCFFT_RTC_CACHE_PATH", "ROCFFT_RTC_SYS_CACHE_PATH"
_READ, _WRITE = "ROCFFT_RTC_CACHE_READ_DISABLE", "ROCFFT_RTC_CACHE_WRITE_DISABLE"
_USER = {_PATH: "{tmp}/c.db", _SYSTEM: ":memory:"}
_LIBRARY = ("rocm/lib/librocfft.so.0.3/", "rocm/lib/rocfft_kernel_cache.db")
_BESIDE = (
    *_LIBRARY, "rocm/lib/rocfft_kernel_cache_gfx90a.db", "rocm/lib/other.db",
    "rocm/lib/rocfft/rocfft_kernel_cache.db", "rocm/lib/rocfft/rocfft_kernel_cache_gfx942.db",
)  # fmt: skip
PLACES: Environs = {
    "no path": ({"ROCM_PATH": "{tmp}"},),
    "an empty path": ({_PATH: "", "ROCM_PATH": "{tmp}"},),
    "in memory": ({_PATH: ":memory:", "ROCM_PATH": "{tmp}"},),
    "of the user and of the system": ({_PATH: "{tmp}/u.db", _SYSTEM: "{tmp}/s.db"}, "u.db", "s.db"),
    "the system's in memory": ({_SYSTEM: ":memory:", "ROCM_PATH": "{tmp}/rocm"}, *_LIBRARY),
    "beside the library": ({"ROCM_PATH": "{tmp}/rocm"}, *_BESIDE),
    "beside the library that is loaded": ({"LD_LIBRARY_PATH": ":/nowhere:{tmp}/rocm/lib"}, *_BESIDE),
    "a database without the library": ({"LD_LIBRARY_PATH": "{tmp}"}, "rocfft_kernel_cache.db"),
    **{f"{_READ}={value}": ({**_USER, _READ: value}, "c.db") for value in ("", "0", "1", "no")},
    "no writes": ({**_USER, _WRITE: "0"}, "c.db"),
    "no writes, of the system": ({_SYSTEM: "{tmp}/s.db", _WRITE: "0"}, "s.db"),
    "a folder that is not there": ({**_USER, _PATH: "{tmp}/no/c.db"},),
    "no folder of the system": ({_SYSTEM: "{tmp}/no/s.db"},),
    "no database of the system": ({_SYSTEM: "{tmp}/s.db"},),
    "a relative path": ({**_USER, _PATH: "c.db"},),
    "a relative path of the system": ({_SYSTEM: "c.db"},),
}


def _rows(*rows: Values, change: str = "") -> Lay:
    """A function that stores rows, and then runs ``change`` on the database."""

    def store(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            insert(connection, rows)
            connection.execute(change)

    return store


_WRONG: dict[str, Values] = {
    "a short sum": row(total=b"short"),
    "no code": row(data=b""),
    "a version of text": row(version="six"),
    "a version between two": row(version=6.2),
    "a name of bytes": row(b"name"),
    "a sum of text": row(total="sum"),
    "code of text": row(data="code"),
    "code that is a number": row(data=7),
    "a long name": row("k" * 5000),
    "a name with a NUL": row("k\0k"),
    "code for another GPU": row(data=code("gfx908")),
    "much code for another GPU": row(data=code("gfx908", size=9000)),
    "code for no GPU": row(data=code(machine=62)),
    "no known code": row(data=b"not code"),
    "much of no known code": row(data=b"text" * 5000),
    "cut code": row(data=code()[:40]),
}
_SOUND: dict[str, Values] = {
    "a kernel": row(),
    "another kernel": row(OTHER),
    "a time of text": row(seconds="now"),
    "a time between two": row(seconds=1.5),
    "a version as text": row(version=str(HIP)),
    "a version as a real number": row(version=float(HIP)),
    "a bundle": row(data=b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)),
    "a packed bundle": row(data=b"CCOB" + bytes(100)),
    "an architecture with features": row(arch="gfx90a:sramecc+:xnack-", data=code("gfx90a")),
    "an unknown architecture": row(arch="gfx1234", data=code("gfx1234")),
    "SPIR-V": row(arch="amdgcnspirv", data=(0x07230203).to_bytes(4, "little") + bytes(16)),
    "a time before 1970": row(seconds=-5),
    "a time in the future": row(seconds=10**11),
    "the time of an export": row(seconds=0),
}
CASES: Cases = {
    **{name: _rows(values) for name, values in (_SOUND | _WRONG).items()},
    "a name that is no UTF-8": _rows(
        row(),
        change=f"UPDATE cache_v1 SET kernel_name = CAST(x'66ff67' AS TEXT) WHERE kernel_name = '{KERNEL}'",
    ),
    "several wrong rows": _rows(row(), *_WRONG.values()),
}
