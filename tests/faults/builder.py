"""Builds by the library in separate processes, some of whose system calls fail."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CUDA = 'extern "C" __global__ void show(int *out) { *out = 7; }'
OPENCL = "kernel void show(global int *out) { *out = 7; }"
_CALL = re.compile(r"(\w+)\((.*)")


@dataclass(frozen=True, slots=True)
class Call:
    """The ``number``-th system call of its name in a run."""

    name: str
    number: int
    shown: str


class Builder:
    """A process that builds one source in a child at a time, so that imports happen only once."""

    def __init__(self, *arguments: str, source: str, place: Path, environ: Mapping[str, str]) -> None:
        self._source = source
        self._log = place / "strace"
        # From the same beginning every child makes the same calls.
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("call_process.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, "PYTHONHASHSEED": "0", "GPUCACHE_MEMORY_BYTES": "0"},
        )

    def build(self, root: Path) -> dict[str, Any]:
        """The outcome of a build with a root."""
        return self._outcome(self._child(root))

    def build_traced(self, root: Path, inject: str = "") -> dict[str, Any]:
        """The same under strace; skips if that may not trace."""
        child = self._child(root)
        tracer = subprocess.Popen(
            ["strace", "-y", "-o", self._log, "-p", str(child), *(["-e", inject] if inject else [])],
            stderr=subprocess.PIPE,
            text=True,
        )
        with tracer:
            assert tracer.stderr is not None
            attached = tracer.stderr.readline()
            outcome = self._outcome(child)
            tracer.stderr.read()
        if "attached" not in attached:
            pytest.skip(f"strace may not trace here: {attached}")
        return outcome

    def build_failing(self, root: Path, call: Call, error: str) -> dict[str, Any] | None:
        """The outcome of a build in which a call failed; None if the call was not on the root.

        A compiler's threads take descriptors in no fixed order, so that now and then the call of this number
        is one that does not touch the root.
        """
        outcome = self.build_traced(root, f"inject={call.name}:error={error}:when={call.number}")
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        injected = [line for line in lines if line.endswith("(INJECTED)")]
        return outcome if injected and str(root) in injected[0] else None

    def calls(self, root: Path) -> list[Call]:
        """The calls of a build that touch the root, from a dry run."""
        assert self.build_traced(root)["error"] == ""
        seen: Counter[str] = Counter()
        found = []
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            if match := _CALL.match(line):
                seen[match[1]] += 1
                if str(root) in match[2]:
                    found.append(Call(match[1], seen[match[1]], line))
        return found

    def _child(self, root: Path) -> int:
        job = {"environment": {"GPUCACHE_DIR": str(root)}, "source": self._source}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def _outcome(self, child: int) -> dict[str, Any]:
        assert self._process.stdout is not None
        os.kill(child, signal.SIGUSR1)
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
