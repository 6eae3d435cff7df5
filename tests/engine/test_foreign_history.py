"""Builds whose histories contain lines that gpucache did not write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.lookup import Built
from gpucache.engine.lookup import get_or_build
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.store.bounded_log import line_of
from gpucache.store.directory import DirectoryStore


@pytest.mark.parametrize("key", ["z" * 64, "A" * 64, "../" * 21 + "a", "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_a_key_that_is_none_costs_nothing(
    store: DirectoryStore, stores: Stores, ready: Callable[..., Prepared], compiler: Any, tree: Any, key: str
) -> None:
    """An event with an invalid key is skipped: the next miss builds, and the other events are read."""
    folder = tree("include")
    first, second = (ready(include_dirs=[folder], options=options) for options in ([], ["-DNEW"]))
    assert isinstance(get_or_build(stores, first, compiler()), Built)
    history = Path(store.root) / "v1" / "log.jsonl"
    event = {"program": "show", "when_ns": 2**62, "what": "built", "key": key, "target": "cuda:compute_90"}
    with history.open("ab") as file:
        file.write(line_of(event))
    built = get_or_build(stores, second, compiler())
    assert isinstance(built, Built)
    assert (built.key, "NEW" in built.miss.detail) == (second.key, True)
