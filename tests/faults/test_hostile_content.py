"""Whatever is in a cache or a file of ours: only our own errors are raised, and no content is executed.

The reading is done in children with little memory; ``fuzzing`` says what is changed and watched.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.children import run_text
from tests.contracts.examples import EXAMPLES
from tests.faults.fuzzing import SUBJECTS
from tests.patience import PATIENCE_S
from tests.trials import tell, trials

pytestmark = pytest.mark.stress
_TOP = Path(__file__).parents[2]
_FOREIGN = EXAMPLES.keys() - {"gpucache"}
_ROUNDS = 5
"""Of the long form, each with its own random seed."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in _FOREIGN else []) for name in SUBJECTS]
)
def test_damaged_content_is_answered(name: str, tmp_path: Path) -> None:
    """No exception but ours, bounded memory, and nothing unpickled, started or written elsewhere."""
    count = failed = 0
    for seed in range(trials(1, _ROUNDS)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        quick = name in ("payloads", "texts", "records")
        wanted = trials(300, 20_000) if quick else trials(40, 1000)
        done = run_text(
            [sys.executable, "-m", "tests.faults.fuzzing", name, str(seed), str(wanted), str(folder)],
            cwd=_TOP,
            env=os.environ | {"TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=trials(1, 60) * PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["failures"] == 0, "\n".join(told["first"])
        count += told["trials"]
        failed += told["failures"]
    tell(f"changed bytes in what {name} keeps, read, checked, repaired and removed", count, failed)
