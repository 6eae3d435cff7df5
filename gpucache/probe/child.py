"""The probe's child process: lists the devices of one backend and writes them as JSON to stdout.

It is a separate process because drivers crash and hang. It loads the GPU stack.
"""

import json
import os
import sys
from pathlib import Path

from platformdirs import user_cache_dir

from gpucache.backends.interface import Backend, load_backend
from gpucache.errors import GpucacheError
from gpucache.probe.remembered import device_to_json


def main(arguments: list[str]) -> int:
    """Probe the backend named by the first argument; the second is a directory for the drivers' files."""
    backend = load_backend(arguments[0])
    if arguments[1]:
        _keep_out(backend, arguments[1])
    answer = os.dup(1)
    os.dup2(2, 1)  # the drivers' stdout goes to stderr, so that stdout has nothing but the result
    document: dict[str, object]
    try:
        document = {"devices": [device_to_json(device) for device in backend.devices()]}
    except GpucacheError as error:
        document = {"error": str(error)}
    with os.fdopen(answer, "w", encoding="ascii") as stream:
        json.dump(document, stream)
    return 0


def _keep_out(backend: Backend, folder: str) -> None:
    """Make compilers that keep a cache write into a directory, and not into the user's cache.

    One whose own cache cannot be written or made is left alone: PoCL then shows no device to programs, and
    the result must be the same.
    """
    for kept in backend.caches:
        place = os.environ.get(kept.variable) or Path(user_cache_dir(), kept.default)
        if _can_be_written(Path(place).absolute()):
            os.environ[kept.variable] = folder


def _can_be_written(place: Path) -> bool:
    try:
        existing = next(at for at in (place, *place.parents) if at.exists())
    except OSError:
        return False
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
