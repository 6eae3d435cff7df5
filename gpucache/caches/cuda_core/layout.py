"""Where ``FileStreamProgramCache`` keeps what, and what its names mean.

Source: cuda-core 1.2, cuda/core/utils/_cache_dir.py and _program_cache/_file_stream.py. An entry is
the compiled binary as it is, at ``entries/<2 hex>/<62 hex>``; the digits are the SHA-256 of the key,
which itself is a SHA-256 over inputs that are stored nowhere. It is written to ``tmp/entry-*`` and
renamed; there is no lock. Must not open files.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "cuda.core"
ENTRIES = "entries"
TMP = "tmp"
STALE_NS = 3600 * 10**9
"""Age (by mtime) at which cuda.core itself takes a file in ``tmp`` for one of a writer that died."""
VARIABLE = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
MOVE = f"set {VARIABLE}, or give FileStreamProgramCache another path"
BELOW = ("cuda-python", "program-cache")
"""The folders that the default place ends in."""
_GROUP = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{62}")
_KEY = re.compile(r"[0-9a-f]{4,64}")
_DIGITS = re.compile(r"[0-9a-fA-F]{62,66}")
_PARTIAL = re.compile(r"entry-[a-z0-9_]{8}")
"""As ``tempfile.mkstemp`` completes the prefix."""


def is_group(name: str) -> bool:
    """Whether a folder in ``entries`` can hold an entry that a key leads to."""
    return _GROUP.fullmatch(name) is not None


def is_rest(name: str) -> bool:
    """Whether a file in such a folder can be an entry that a key leads to."""
    return _REST.fullmatch(name) is not None


def is_a_copy(group: str, name: str) -> bool:
    """Whether folder and file have the digits of an entry, if not as cuda.core writes them."""
    return _DIGITS.fullmatch(group + name) is not None


def is_temporary(name: str) -> bool:
    """Whether a file in ``tmp`` is called as cuda.core calls what it writes there."""
    return _PARTIAL.fullmatch(name) is not None


def is_key(text: str) -> bool:
    """Whether a text is a key or the beginning of one."""
    return _KEY.fullmatch(text) is not None


def file_key(key: bytes) -> str:
    """The digits that a key is filed under, as ``make_program_cache_key`` returns keys."""
    return hashlib.sha256(key, usedforsecurity=False).hexdigest()


def default_root(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """The root of a cache that is given no path, and what decided it; None where there is no home.

    An empty variable counts as unset, a relative one as relative to the current directory.
    """
    if value := environ.get(VARIABLE):
        return Path(value).joinpath(*BELOW), VARIABLE
    if sys.platform == "win32":
        home, origin, caches = environ.get("USERPROFILE"), "USERPROFILE", ("AppData", "Local")
    else:
        home, origin, caches = environ.get("HOME"), "HOME", (".cache",)
    if home is None:
        home, origin = _home_on_record(), "the user's record"
    # As os.path.expanduser has it: an empty HOME is the top.
    return None if home is None else (Path(home or os.sep).joinpath(*caches, *BELOW), origin)


def _home_on_record() -> str | None:
    if sys.platform == "win32":
        return None
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without a name
        return None
