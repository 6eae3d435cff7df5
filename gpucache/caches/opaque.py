"""Caches that gpucache finds, measures and moves without reading their format: each file is an entry.

Owns the rules common to all of them. An entry is named by its path below the root, and its key is a digest of
that path. Its payload kind is reported if the bytes identify it; the only problems reported are files that
other users own or may write to, and nothing is removed, as the owner's rules for single files are unknown.

A system whose format becomes known leaves this module: its class then derives from ``FilesFormat``, with its
own layout, ``look``, ``check`` and ``payload``, and drops the facts that only this class requires.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.answers.verify import Checked
from gpucache.caches import files, places
from gpucache.caches.desktop_places import SteamPlaces
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.recent_places import DrjitPlaces, FlydslPlaces, KeopsPlaces, PyfrPlaces, TilusPlaces
from gpucache.caches.systems import NvidiaGlPlaces, OptixPlaces
from gpucache.model import KeyField
from gpucache.payload import PayloadKind, describe

_SCANNED_BYTES = 4096


class OpaqueFormat(FilesFormat):
    """A cache of which gpucache knows the place and the names that identify it."""

    signs: ClassVar[Sequence[str]]
    """Patterns, as in a layout, of names that no other program gives its files."""
    rewritten: ClassVar[str] = "(?!)"
    """The pattern of the paths of files that a hit rewrites, and that are not entries."""
    layout = Layout(())
    trusts_variables = True
    wanted = {}
    opaque = "gpucache cannot parse this format, so the inputs of an entry are unknown"
    _noted = False

    @classmethod
    def whose(cls, path: Path) -> Whose:
        return Layout(cls.signs).whose(path)

    def items(self, prefix: str) -> Iterator[Files]:
        """Every file but links and empty ones, which several owners leave as locks or at each start."""
        with files.open_folder(self.root) as folder:
            for path, status, _why in files.below(folder):
                if status is None:
                    self.closed_folders[self.root / path] = f"{self.root / path} was not looked into: {_why}"
                kept = status is not None and stat.S_ISREG(status.st_mode) and status.st_size
                if status is None or not kept or re.fullmatch(self.rewritten, path):
                    continue
                key = hashlib.sha256(os.fsencode(path), usedforsecurity=False).hexdigest()
                if key.startswith(prefix):
                    *above, name = path.split("/")
                    yield Files(self.root, tuple(above), key, {name: status})

    def beside(self) -> Iterator[Checked]:
        with files.open_folder(self.root) as folder:
            if why := places.distrust(folder.lstat(os.curdir), move=self.place.move):
                yield self.told(self.root, Problem(FindingKind.UNTRUSTED, why))
            for name, status, unread in files.below(folder):
                path = self.root / name
                if status is None:
                    detail = f"{path} was not looked into: {unread}"
                    yield self.told(path, Problem(FindingKind.UNSUPPORTED, detail))
                elif stat.S_ISDIR(status.st_mode) and (why := places.distrust(status, move=self.place.move)):
                    yield self.told(path, Problem(FindingKind.UNTRUSTED, f"of the directory {name}: {why}"))

    def look(self, item: Files) -> CacheEntry:
        (name,) = item.seen
        info = describe(item.part(name, 0, _SCANNED_BYTES))
        return self.entry(item)._replace(
            program="/".join((*item.parts, name)),
            target=info.target,
            artifact_kind="" if info.kind is PayloadKind.UNKNOWN else info.kind.value,
        )

    def stays(self, item: Files) -> str:
        return (
            f"gpucache does not know by which rules {self.owner} lets single files go; remove {self.root} as "
            "a whole while no program uses it"
        )

    def check(self, item: Files) -> Iterator[Problem]:
        item.again()
        yield from ()

    def notes(self, item: Files) -> Iterator[str]:
        if not self._noted:
            self._noted = True
            yield (
                f"gpucache cannot parse {self.owner}'s format, so nothing in this cache can be checked but "
                "owners and modes"
            )

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        info = describe(self.payload(item))
        return EntryReport(entry, (KeyField("key", "opaque: gpucache cannot parse this format"),), info.pairs)


class NvidiaGl(NvidiaGlPlaces, OpaqueFormat):
    """The shaders that the driver compiled for OpenGL and Vulkan.

    Source of the places, sizes and variables: README of the Linux driver, "OpenGL Environment Variable
    Settings", and its release notes from 460 on; source of the names: published listings. No cache of an
    NVIDIA GPU was available. A directory for driver and GPU and one for the program contain pairs of a
    ``.toc`` and a ``.bin``, whose format NVIDIA does not document. The driver uses an older place as long as
    it exists.
    """

    signs = (r"[0-9a-f]{32}/[0-9a-f]{16}/[0-9a-f]{16}\.toc",)


class Optix(OptixPlaces, OpaqueFormat):
    """The programs that OptiX, a part of NVIDIA's driver, compiled for ray tracing.

    Source: NVIDIA's ``optix_host.h`` of OptiX 7 and 8 (``optixDeviceContextSetCacheLocation`` and
    ``...SetCacheDatabaseSizes``), and published directory listings and logs; no cache of an NVIDIA GPU was
    available. ``optix7cache.db`` is an SQLite database, with its log and index next to it while a program
    runs; its tables are not documented. OptiX evicts by itself, and replaces a broken database with a new
    one.
    """

    signs = (r"optix\d*cache\.db",)
    rewritten = r".*-(?:wal|shm)"


class Steam(SteamPlaces, OpaqueFormat):
    """The pipelines of games, before and after the driver compiled them.

    Source: Fossilize of 2026, ``fossilize_db.cpp``, and published listings of such directories; no cache that
    Steam wrote was available. ``APPID/fozpipelinesv6/`` has Fossilize's archives (``*.foz``), which Steam
    downloads and into which games write the pipelines that they create; ``nvidiav1`` and
    ``mesa_shader_cache_sf`` are the drivers' own caches for that game.
    """

    signs = (r"\d+/(?:fozpipelinesv\d+|mesa_shader_cache_sf|nvidiav\d+)",)


class Drjit(DrjitPlaces, OpaqueFormat):
    """The kernels that Dr.Jit compiled, for itself, Mitsuba 3 and Sionna.

    Source: the texts in the libraries of Dr.Jit 1.5.0 (PyPI). ``<32 hex>.BACKEND.vN.bin`` is a packed kernel;
    OptiX keeps its own database next to them while the variable does not move it.
    """

    signs = (r"[0-9a-f]{32}\.\w+\.v\d+\.bin",)
    rewritten = r".*-(?:wal|shm)"


class Flydsl(FlydslPlaces, OpaqueFormat):
    """The kernels of AMD's FlyDSL, in AITER among others.

    Source: FlyDSL 0.5.0 (PyPI), ``flydsl/compiler/jit_function.py`` and ``flydsl/utils/env.py``. A directory
    for each function has ``<64 hex>.pkl``, which FlyDSL unpickles, and ``<64 hex>.lock``.
    """

    signs = (r"\w+/[0-9a-f]{64}\.pkl",)


class Tilus(TilusPlaces, OpaqueFormat):
    """The programs that Tilus compiled.

    Source: Tilus 0.2.0 (PyPI), ``tilus/drivers.py`` and ``tilus/option.py``. ``programs/<12 hex>/`` has the
    text of a program and its options, which Tilus compares, ``module/`` with a library, and ``.lock``. Below
    a checkout of Tilus it is ``.cache`` there.
    """

    signs = (r"programs/[0-9a-f]{12}",)


class Pyfr(PyfrPlaces, OpaqueFormat):
    """The kernels of PyFR, a directory for each of its backends.

    Source: PyFR 3.1 (PyPI), ``pyfr/cache.py`` and ``pyfr/backends/*/compiler.py``. Files are named by
    digests, written under a temporary name and renamed, and read unchecked; at a start the least recently
    read go until 128 MiB are left. A library for a CPU is loaded.
    """

    signs = (r"(?:cuda|hip|ocl|omp)/(?:lib)?[0-9a-f]{32,64}(?:\.\w+)?",)


class Keops(KeopsPlaces, OpaqueFormat):
    """The formulas that KeOps compiled.

    Source: keopscore 2.3 (PyPI), ``keopscore/config/base_config.py`` and ``keopscore/utils/Cache.py``. A
    directory for each machine and Python has libraries, cubins and ``*_cache.pkl``, which KeOps unpickles
    when it is imported.
    """

    signs = (r"\w+_.+_p\d+\.\d+\.\d+.*",)
