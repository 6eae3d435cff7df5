"""Signals at any moment of a command: it ends as interrupted, or is done, and leaves nothing behind."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, wait_until
from tests.trials import tell, trials

pytestmark = [pytest.mark.slow, pytest.mark.stress]

TARGET = "opencl:stand-in/contrary"
COMMANDS = {
    "warm": ["--json", "warm", "{sources}", "--target", TARGET],
    "verify": ["--json", "verify", "--repair"],
    "evict": ["--json", "evict", "--all", "--yes"],
    "inspect": ["--json", "inspect"],
    "bench": ["--json", "bench", "{sources}/0.cl", "--target", TARGET, "--runs", "2"],
}
_SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READY_S = 0.4
"""Python itself needs about so long until it can handle a signal."""


class Place:
    """Sources, a cache and temporary files of one command."""

    def __init__(self, folder: Path, vendors: Path) -> None:
        self.temporary, self.sources = folder / "temporary", folder / "sources"
        self.temporary.mkdir()
        self.sources.mkdir()
        for number in range(6):
            kernel = f"kernel void k() {{}} // {number}\n"
            (self.sources / f"{number}.cl").write_text(kernel, encoding="ascii")
        self.log, self._root = folder / "log", folder / "root"
        self._environ = {
            **os.environ,
            "OCL_ICD_VENDORS": str(vendors),
            "TMPDIR": str(self.temporary),
            "DRIVER_LOG": str(self.log),
        }

    def start(self, words: list[str]) -> "subprocess.Popen[str]":
        place = [] if "bench" in words else ["--root", str(self._root)]
        told = [word.format(sources=self.sources) for word in words]
        return subprocess.Popen(
            [sys.executable, "-m", "gpucache", *place, *told],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[int]:
        lines = self.log.read_text(encoding="ascii").splitlines() if self.log.exists() else []
        return [int(line.split()[0]) for line in lines]


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_signal_ends_a_command_in_peace(tmp_path: Path, contrary: Path, verb: str) -> None:
    """Exit 130 with one document and no traceback, or the command was done before; nothing is left."""
    place, words = Place(tmp_path, contrary), COMMANDS[verb]
    place.start(COMMANDS["warm"]).communicate(timeout=PATIENCE_S)
    begun = time.monotonic()
    done = place.start(words)
    done.communicate(timeout=PATIENCE_S)
    whole_s = time.monotonic() - begun
    draw, count = random.Random(verb), trials(2, 100)
    wrong = []
    for number in range(count):
        if verb == "warm":
            source = f"kernel void k() {{}} // {number} of {verb}\n"
            (place.sources / "0.cl").write_text(source, encoding="ascii")
        said = _strike(place.start(words), draw, whole_s)
        wrong += [f"{number}: {each}" for each in _wrong(said, done.returncode)]
    tell(f"signals to {verb}", count, len(wrong))
    assert wrong == []
    for process in place.processes():
        wait_until(lambda: not Path(f"/proc/{process}").exists())  # noqa: B023 - called at once
    assert not list(place.temporary.glob("gpucache-*"))


def _strike(child: "subprocess.Popen[str]", draw: random.Random, whole_s: float) -> tuple[int, str, str]:
    """Send a signal to a process or its group, perhaps a second one, at a random time; the result."""
    number, to = draw.choice(_SIGNALS), draw.choice([os.kill, os.killpg])
    moments = [_READY_S + draw.random() * whole_s, draw.random() * 0.3]
    for moment in moments[: draw.choice([1, 2])]:
        try:  # only the moment of the signal is random, and nothing depends on it
            child.wait(moment)
        except subprocess.TimeoutExpired:
            to(child.pid, number)
    out, err = child.communicate(timeout=PATIENCE_S)
    return child.returncode, out, err


def _wrong(said: tuple[int, str, str], normal: int) -> list[str]:
    code, out, err = said
    if code in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP) and not out and not err:
        return []  # Python had not begun
    found = [] if code in (normal, 130) else [f"exit {code}"]
    found += (
        [err]
        if re.sub(
            r"gpucache: interrupted(; \d+ of \d+ were (checked|removed, and the rest stays))?", "", err
        ).strip()
        else []
    )
    try:
        json.loads(out)
    except ValueError:
        found.append(f"no document: {out[-200:]!r}")
    return found
