"""Small real programs shipped with gpucache, and the manifest that builds them on any machine."""

from pathlib import Path


def manifest_path() -> Path:
    """The manifest of the example programs."""
    return Path(__file__).with_name("gpucache.toml")
