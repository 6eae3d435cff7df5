"""The environment of one cache alone, for commands that store results in PLACE."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucache.answers.entries import Held, Snapshot


@dataclass(frozen=True)
class OneCache:
    """See ``gpucache.engine.warm.command.CacheEnvironment``."""

    environ: Mapping[str, str]
    off: frozenset[str] = frozenset()
    root: Path | None = None

    def variables(self, folder: Path) -> Mapping[str, str]:
        return {"PLACE": str(folder)}

    isolate = variables

    def look(self, environ: Mapping[str, str], *, private: bool) -> Snapshot:  # noqa: ARG002 - it has no others
        place = Path(environ["PLACE"])
        files = place.iterdir() if place.is_dir() else ()
        return {"app": {path.name: Held(path.stat().st_size) for path in files}}

    def root_of(self, path: Path) -> Path | None:
        return self.root if self.root == path else None

    def notes(self, written: Collection[str]) -> tuple[str, ...]:
        return tuple(f"wrote into {name}" for name in written)

    def used(self, folder: Path) -> tuple[tuple[str, str], ...]:
        return (("PLACE", str(folder)),)

    def remove_unused(self, folder: Path) -> None:
        pass
