"""The shader cache of NVIDIA's driver, of OpenGL and Vulkan: the "GL cache", which is opaque.

Source of the places, sizes and variables: README of the Linux driver, "OpenGL Environment Variable Settings",
and its release notes from 460 on; of the names what people published of theirs. No cache of an NVIDIA GPU was
seen. A folder for driver and GPU and one for the program hold pairs of a ``.toc`` and a ``.bin``, whose
format NVIDIA does not document. The driver uses an older place for as long as that is there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var
from gpucache.outcomes import Location

_PATH, _SIZE = "__GL_SHADER_DISK_CACHE_PATH", "__GL_SHADER_DISK_CACHE_SIZE"
_UNLIMITED = "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP"
_DEFAULT_BYTES, _OLDER_BYTES = 1 << 30, 128 << 20
_OLDER = ".nv/GLCache"


class NvidiaGl(OpaqueFormat):
    """What the driver compiled for OpenGL and Vulkan."""

    name = "nvidia-gl"
    title = "shader cache of NVIDIA's driver"
    owner = "NVIDIA's driver"
    driver = True
    place = Place(
        (Var(_PATH, "GLCache"), Var("XDG_CACHE_HOME", "nvidia/GLCache"), Home(".cache/nvidia/GLCache")),
        move=f"set {_PATH} to a folder that is there",
        nowhere=f"the driver keeps no shaders without a home folder; set {_PATH}",
        off={"__GL_SHADER_DISK_CACHE": ("0",)},
        opt_in=True,
    )
    signs = (r"[0-9a-f]{32}/[0-9a-f]{16}/[0-9a-f]{16}\.toc",)

    @classmethod
    def locations(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The place, or the older one where that is there; both where both are."""
        for location in super().locations(environ):
            limited = location._replace(limit_bytes=_limit(environ, _DEFAULT_BYTES))
            base = environ.get(location.decided_by)
            older = Path(base or "", _OLDER)
            if location.decided_by == _PATH or not older.is_absolute() or not places.is_folder(older):
                yield limited
                continue
            at = location._replace(root=str(older), limit_bytes=_limit(environ, _OLDER_BYTES))
            off = location.problems[:1] if cls.place.why_off(environ) else ()
            yield at._replace(enabled=not off, problems=(*off, *cls.at_place(older)))
            if places.is_folder(Path(location.root)):
                why = f"the driver does not look here as long as {older} is there, which may be removed"
                yield limited._replace(enabled=False, problems=(why,))

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        """A folder that is not there, with which nothing is kept, and a size that is none."""
        if (named := environ.get(_PATH)) and not places.is_folder(Path(named)):
            yield f"{_PATH} names no folder that is there, so nothing is kept; run 'mkdir -p {named}'"
        if (size := environ.get(_SIZE)) and not (size.isascii() and size.isdecimal()):
            yield f"{_SIZE}={size} is no number of bytes; write the digits alone, such as {_SIZE}=10737418240"


def _limit(environ: Mapping[str, str], default_bytes: int) -> int | None:
    """The size above which the driver removes what is old; None where it does not."""
    if environ.get(_UNLIMITED, "") not in ("", "0"):
        return None
    size = environ.get(_SIZE, "")
    return int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else default_bytes


SYSTEM = ForeignSystem(NvidiaGl)
