"""Whatever the program and whichever one thing changes, exactly that field is named."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.store.directory import DirectoryStore
from tests.scenarios.drafts import change, drawn, made

_SEEDS = range(10)
_PER_SEED = 10


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_field_named_is_the_one_that_changed(
    ready: Callable[..., Prepared],
    keep: Callable[[Stores, Prepared], None],
    tell: Callable[[Stores, Prepared], Any],
    tmp_path: Path,
    seed: int,
) -> None:
    """After one change to a program the verdict is key-changed, and only that change is named."""
    random = Random(seed)
    for number in range(_PER_SEED):
        draft = drawn(random)
        changed, label = change(random, draft)
        stores = Stores(user=DirectoryStore(tmp_path / f"cache-{number}", writable=True))
        keep(stores, made(ready, draft, tmp_path / "include"))
        told = tell(stores, made(ready, changed, tmp_path / "include"))
        assert (told.verdict, told.causes) == ("key-changed", (label,)), (draft, changed, told)
        words = told.detail.partition(" (nearest: ")[0]
        assert words, (draft, changed, told)
        assert label.partition(" ")[2] in words or not label.startswith(("include ", "environment ")), told
