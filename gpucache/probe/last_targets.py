"""The targets that the last probe found, kept for completions, which never probe. Losing them is harmless."""

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from gpucache.errors import TargetError
from gpucache.model import Target

FILE = Path("v1", "targets.json")
_MAX_BYTES = 64 * 1024


def save_last(root: Path, targets: Sequence[Target]) -> None:
    """Keep the targets below a cache root, if the root exists already; raises nothing."""
    path = root / FILE
    staged = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        if path.parent.is_symlink() or not path.parent.is_dir():
            return
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            if stat.S_IMODE(root.stat().st_mode) & stat.S_IROTH:
                staged.chmod(0o644)  # everybody reads and copies a shared cache
            json.dump([str(target) for target in targets], stream)
        staged.replace(path)


def load_last(root: Path) -> list[Target]:
    """The targets of the last probe; empty if none were kept or the file cannot be parsed."""
    try:
        # A pipe must not block this, and a link must not lead it elsewhere.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        if (root / FILE).parent.is_symlink():
            return []
        with os.fdopen(os.open(root / FILE, flags), "rb") as stream:
            values = json.loads(stream.read(_MAX_BYTES))
        return [Target.parse(value) for value in values if isinstance(value, str)]
    except (OSError, ValueError, TypeError, RecursionError, TargetError):
        return []
