"""Real programs shipped with gpucache, small to large, and the manifests that build them on any machine."""

from pathlib import Path


def manifest_path(name: str = "gpucache.toml") -> Path:
    """A manifest of the example programs: ``gpucache.toml``, ``large.toml`` or ``cub.toml``."""
    return Path(__file__).with_name(name)


def checks_path() -> Path:
    """The kernels with checks that ``bench --checks`` times."""
    return Path(__file__).parent / "checks" / "suite.cl"
