"""Where PyOpenCL keeps its caches: one for each version of Python, below one folder."""

import sys
from collections.abc import Iterator, Mapping

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import Place, Places, Var
from gpucache.caches.pyopencl import names

_SHARED = "XDG_CACHE_HOME moves every cache that follows it, as PyOpenCL has no variable of its own"
_NONE = "no variable moves PyOpenCL's cache here; PYOPENCL_NO_CACHE=1 turns it off"


class PyOpenclPlaces(Places):
    """The places of this user."""

    name = names.NAME
    title = "PyOpenCL compiler cache"
    owner = "PyOpenCL"
    place = Place(
        () if sys.platform == "win32" else (Var("XDG_CACHE_HOME", names.NAME),),
        move=names.MOVE,
        nowhere="PyOpenCL names no place without a home folder; set XDG_CACHE_HOME",
        lacking=_NONE if sys.platform == "win32" else _SHARED,
    )
    below = {
        "intel": "",
        "other": "",
        "pocl": "PyOpenCL leaves PoCL's programs to PoCL's own cache",
        "nvidia": "PyOpenCL leaves NVIDIA's programs to the driver's cache",
    }

    @classmethod
    def locations(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """A folder for each version of Python that has one, this Python's first; else the folder of all."""
        named, decided_by = names.place(environ)
        root = places.absolute(named)
        enabled, off = names.switched(environ)
        relative = cls.place.relative(named, decided_by)
        general = tuple(filter(None, (off, relative, *cls.at_place(root))))
        found = names.version_folders(root)
        if not found:
            yield Location(cls.name, str(root), decided_by, enabled=enabled, problems=general)
        for name in found:
            own = filter(None, (places.closed(root / name, move=cls.place.move),))
            role = f"Python {names.python_of(name)}"
            problems = (*general, *own)
            yield Location(cls.name, str(root / name), decided_by, enabled, problems=problems, role=role)
