"""Which caches gpucache knows by name."""

from pathlib import Path

from gpucache.errors import UsageError

OWN = "gpucache"
NAMES = (OWN,)


def resolve(text: str | None, default_root: Path) -> Path:
    """The root that ``--cache`` means: a name of ours, or a folder that holds one of our caches.

    Raises UsageError for a name or folder that is no cache we know.
    """
    if text is None or text in (OWN, "all"):
        return default_root
    folder = Path(text)
    if (folder / "v1").is_dir():
        return folder.absolute()
    if folder.is_dir():
        raise UsageError(
            f"{text} holds no cache that gpucache knows; name one of {', '.join(NAMES)}, or its root"
        )
    raise UsageError(
        f"there is no cache {text!r}; name one of {', '.join(NAMES)}, all, or the root of a cache"
    )
