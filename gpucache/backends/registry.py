"""The backends by name: our own, and third-party ones through entry points.

A backend is imported on demand, and importing it loads no GPU stack.
"""

from importlib import import_module

from gpucache.backends.interface import Backend
from gpucache.errors import TargetError

_OURS = {
    "opencl": "gpucache.backends.opencl",
    "cuda": "gpucache.backends.cuda",
    "hip": "gpucache.backends.hip",
}


def backend_names() -> tuple[str, ...]:
    return tuple(_OURS)


def load_backend(name: str) -> Backend:
    """The backend of a name; raises TargetError if it does not exist."""
    if name in _OURS:
        backend: Backend = import_module(_OURS[name]).BACKEND
        return backend
    from importlib.metadata import entry_points  # loading this takes half as long as loading all of ours

    for point in entry_points(group="gpucache.backends", name=name):
        provided: Backend = point.load()
        return provided
    raise TargetError(f"no backend is named {name!r}; targets begin with {' or '.join(_OURS)}")
