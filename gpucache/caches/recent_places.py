"""The places of caches that programs of 2025 and 2026 brought: rows of ``systems``."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches.places import ANY_BINARY, WINDOWS, Home, Place, Places, Temporary, Var, user_cached


class CutilePlaces(Places):
    name = "cutile"
    title = "cuTile Python cache"
    owner = "cuTile"
    unseen = ANY_BINARY
    place = Place(
        (
            Var("CUDA_TILE_CACHE_DIR"),
            Var("LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME", "cutile-python"),
            Home(".cache/cutile-python", expanded=True),
        ),
        off={"CUDA_TILE_CACHE_DIR": ("0", "off", "none")},
        limit=("CUDA_TILE_CACHE_SIZE", 2 << 30),
    )


class PycudaPlaces(Places):
    name = "pycuda"
    title = "PyCUDA compiler cache"
    owner = "PyCUDA"
    unseen = ANY_BINARY
    place = Place((Var("PYCUDA_CACHE_DIR"), *user_cached("pycuda", below="compiler-cache-v1")))


class AiterPlaces(Places):
    name = "aiter"
    title = "AITER modules"
    owner = "AITER"
    unseen = "a changed byte inside a library"
    place = Place(
        (Var("AITER_JIT_DIR"), Home(".aiter/jit", expanded=True)),
        runs=True,
        lacking=(
            "without AITER_JIT_DIR AITER keeps modules inside its own package, in aiter/jit, if that can be "
            "written, where gpucache does not look"
        ),
    )


class QuackPlaces(Places):
    name = "quack"
    title = "QuACK kernel cache"
    owner = "QuACK"
    unseen = "a changed byte in an object, or the object of another kernel"
    place = Place((Var("QUACK_CACHE_DIR"), Temporary("", inside="quack_cache")), runs=True)


class DrjitPlaces(Places):
    name = "drjit"
    title = "Dr.Jit kernel cache"
    owner = "Dr.Jit"
    place = Place(
        (Var("DRJIT_CACHE_DIR"), Temporary("drjit", user=False) if WINDOWS else Home(".drjit")),
        limit=("DRJIT_CACHE_MAXSIZE", None),
    )


class FlydslPlaces(Places):
    name = "flydsl"
    title = "FlyDSL kernel cache"
    owner = "FlyDSL"
    place = Place(
        (Var("FLYDSL_RUNTIME_CACHE_DIR"), Home(".flydsl/cache", expanded=True)),
        off={"FLYDSL_RUNTIME_ENABLE_CACHE": ("0", "false", "off", "no")},
        runs=True,
    )


class TilusPlaces(Places):
    name = "tilus"
    title = "Tilus program cache"
    owner = "Tilus"
    place = Place((Var("TILUS_CACHE_DIR"), Home(".cache/tilus", expanded=True)), runs=True)


class PyfrPlaces(Places):
    name = "pyfr"
    title = "PyFR kernel cache"
    owner = "PyFR"
    place = Place(
        user_cached("pyfr"),
        also=tuple(Var(f"PYFR_{backend}_CACHE_DIR") for backend in ("CUDA", "HIP", "OCL", "OMP")),
        remedy="set PYFR_CUDA_CACHE_DIR, PYFR_HIP_CACHE_DIR, PYFR_OCL_CACHE_DIR or PYFR_OMP_CACHE_DIR",
        limit=("", 128 << 20),
        runs=True,
    )


class KeopsPlaces(Places):
    name = "keops"
    title = "KeOps formula cache"
    owner = "KeOps"
    place = Place(
        (Var("KEOPS_CACHE_FOLDER"),),
        nowhere="KeOps keeps it in ~/.cache/keopsVERSION until KEOPS_CACHE_FOLDER names a directory; set it",
        runs=True,
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory that the variable names, or else one for each version that was used."""
        yield from super().found(environ)
        base = Home(".cache", expanded=True).find(environ)
        if base is None or environ.get("KEOPS_CACHE_FOLDER"):
            return
        roots: list[Path] = []
        with suppress(OSError):
            roots = sorted(Path(base[0]).glob("keops[0-9]*"))
        for root in roots:
            told = tuple(cls.at_place(root))
            yield Location(cls.name, str(root), base[1], enabled=True, problems=told)
