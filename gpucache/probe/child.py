"""The probe's child process: asks one backend for its devices and writes them as JSON to stdout.

It is a process of its own because drivers crash and hang. It loads the GPU stack.
"""

import json
import os
import sys

from gpucache.backends.registry import load_backend
from gpucache.errors import GpucacheError
from gpucache.probe.codec import device_to_json


def main(arguments: list[str]) -> int:
    """Answer for the backend named by the first argument."""
    backend = load_backend(arguments[0])
    answer = os.dup(1)
    os.dup2(2, 1)  # what drivers print to stdout goes to stderr, so that the answer stands alone
    document: dict[str, object]
    try:
        document = {"devices": [device_to_json(device) for device in backend.devices()]}
    except GpucacheError as error:
        document = {"error": str(error)}
    with os.fdopen(answer, "w", encoding="ascii") as stream:
        json.dump(document, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
