"""Real programs shipped with gpucache, small to large, and the manifests that build them on any machine."""

from pathlib import Path


def manifest_path(name: str = "gpucache.toml") -> Path:
    """A manifest of the example programs: ``gpucache.toml``, ``large.toml`` or ``cub.toml``."""
    return Path(__file__).with_name(name)
