"""A store that several machines share: roots that begin empty, keys, and programs that compile there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucache.remote.signing import PublicKey, load_signing_key, make_pair
from tests.children import run_text
from tests.patience import PATIENCE_S, TIME_OUT_MS

LIBRARY = Path(__file__).parents[1] / "library_process.py"
PATIENT = {"GPUCACHE_REMOTE_TIMEOUT_MS": TIME_OUT_MS}
Outcome = dict[str, Any]


def cuda_job(value: int = 7, **more: object) -> dict[str, object]:
    """A kernel of CUDA C++ that writes a number."""
    source = f'extern "C" __global__ void show(int *out) {{ *out = {value}; }}'
    return {"source": source, "arguments": {"target": "compute_90"}, **more}


@dataclass
class Fleet:
    """One store, and the directory of everything else."""

    place: Path

    @property
    def store(self) -> Path:
        return self.place / "store"

    def key(self, name: str = "ci") -> PublicKey:
        """A pair of keys, made once: the secret one is the file of its name."""
        path = self.place / name
        return load_signing_key(path).public if path.exists() else make_pair(path)

    def others(self) -> None:
        """Let another user write to the store, so that only signatures count."""
        self.store.mkdir(exist_ok=True)
        self.store.chmod(0o777)

    def environment(self, root: str, **settings: object) -> dict[str, str]:
        ours = {"GPUCACHE_DIR": self.place / root, "GPUCACHE_REMOTE": self.store, **PATIENT}
        return {**os.environ, **{name: str(value) for name, value in {**ours, **settings}.items()}}

    def signing(self, name: str = "ci") -> dict[str, Any]:
        self.key(name)
        return {"GPUCACHE_REMOTE_WRITE": "1", "GPUCACHE_SIGNING_KEY": self.place / name}

    def trusting(self, *names: str) -> dict[str, Any]:
        """The variables of a machine that trusts keys."""
        return {"GPUCACHE_TRUSTED_KEYS": " ".join(self.key(name).text for name in names or ("ci",))}

    def start(
        self, root: str, library: str = "cuda", env: Mapping[str, str] | None = None, **settings: Any
    ) -> "subprocess.Popen[str]":
        """A program with everything imported, that waits for its jobs."""
        environ = {**(env or {}), **self.environment(root, **settings)}
        program = subprocess.Popen(
            [sys.executable, str(LIBRARY), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    def finish(self, program: "subprocess.Popen[str]", *jobs: Mapping[str, object]) -> list[Outcome]:
        """The outcomes of its jobs, once it has ended."""
        out, errors = program.communicate(json.dumps(jobs), timeout=PATIENCE_S)
        assert program.returncode == 0, errors
        outcomes: list[Outcome] = json.loads(out)
        assert [one["error"] for one in outcomes] == [None] * len(outcomes)
        return outcomes

    def run(self, root: str, *jobs: Mapping[str, object], **settings: Any) -> list[Outcome]:
        """The outcomes of jobs in a separate program."""
        return self.finish(self.start(root, **settings), *jobs)

    def gpucache(self, root: str, *words: object, **settings: object) -> "subprocess.CompletedProcess[str]":
        return run_text(
            [sys.executable, "-m", "gpucache", *map(str, words)], env=self.environment(root, **settings)
        )

    def objects(self) -> list[Path]:
        return sorted(path for path in (self.store / "entries").rglob("*-*") if path.is_file())

    def entries(self, root: str) -> list[Path]:
        return sorted((self.place / root / "v1" / "entries").rglob("*.gpc"))


def compiled(outcomes: list[Outcome]) -> list[int]:
    return [one["compiled"] for one in outcomes]


def warnings(outcomes: list[Outcome]) -> list[str]:
    """The warnings that the library logged, without the level."""
    lines = [line for one in outcomes for line in one["log"]]
    return [line.removeprefix("WARNING: ") for line in lines if line.startswith("WARNING: ")]


@contextmanager
def moved(path: Path) -> Iterator[None]:
    path.rename(path.with_name("moved"))
    try:
        yield
    finally:
        path.with_name("moved").rename(path)
