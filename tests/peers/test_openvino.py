"""OpenVINO's own cache on this CPU, and what OpenVINO does with damage and after a repair."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, opened

SYSTEM = of_others("openvino")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed"),
]
_PROGRAM = """
import sys, numpy as np, openvino
from openvino import opset13 as op
core = openvino.Core()
core.set_property({"CACHE_DIR": sys.argv[1]})
for factor in (2, 3):
    x = op.parameter([4], np.float32, name="x")
    product = op.multiply(x, op.constant(np.full(4, factor, np.float32), name="factor"), name="product")
    model = openvino.Model([op.result(product, name="result")], [x], "model")
    compiled = core.compile_model(model, "CPU")
    assert (compiled(np.ones(4, np.float32))[0] == factor).all()
    print(compiled.get_property("LOADED_FROM_CACHE"))
"""


def _run(root: Path) -> list[str]:
    """Whether each of two models came from the cache."""
    command = [sys.executable, "-c", _PROGRAM, str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.split()


def test_a_repaired_model_is_compiled_and_served_again(tmp_path: Path) -> None:
    """What OpenVINO writes is sound; a cut is found, and the other model stays."""
    root = tmp_path / "models"
    assert _run(root) == ["False", "False"] and _run(root) == ["True", "True"]
    cache = opened(SYSTEM, root)
    entries = list(cache.scan())
    assert [cache.check(entry).findings for entry in entries] == [(), ()]
    path = Path(entries[0].path)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-99])
    (entry,) = cache.find(entries[0].key)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED] and cache.repair(checked, entry).findings[0].repaired
    assert sorted(_run(root)) == ["False", "True"] and _run(root) == ["True", "True"]
