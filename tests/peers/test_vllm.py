"""An artifact as vLLM has PyTorch save it, and PyTorch's behaviour with a broken one."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.caches.vllm.build import ARTIFACT, put
from tests.patience import PATIENCE_S

SYSTEM = of_others("vllm")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

_SAVE = """
import sys, torch
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
graph = torch.fx.symbolic_trace(lambda x: (torch.nn.functional.gelu(x @ x),))
x = torch.ones(8, 8)
FakeTensorProp(graph).propagate(x)
made = torch._inductor.standalone_compile(graph, [x], dynamic_shapes="from_example_inputs")
made.save(path=sys.argv[1], format="binary")
"""
_LOAD = """
import sys, torch
print(float(torch._inductor.CompiledArtifact.load(path=sys.argv[1])(torch.ones(8, 8))[0].sum()))
"""


def _run(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(path.with_name("inductor"))}
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_a_real_artifact_is_sound_and_a_changed_one_is_found_that_ends_its_program(tmp_path: Path) -> None:
    """The failure is the finding's; the graph is compiled for a CPU."""
    saved = tmp_path / "artifact"
    assert not (done := _run(_SAVE, saved)).returncode, done.stderr
    assert _run(_LOAD, saved).stdout.strip() == "512.0"
    artifact = put(tmp_path / "vllm") / ARTIFACT
    artifact.write_bytes(saved.read_bytes())
    cache = opened(SYSTEM, tmp_path / "vllm")
    assert not cache.check(only(cache)).findings
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    for path in (artifact, saved):
        path.write_bytes(data)
    assert kinds(cache.check(only(cache))) == [FindingKind.CORRUPT]
    assert "checksum" in _run(_LOAD, saved).stderr
