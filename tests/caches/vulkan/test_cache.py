"""Files of a directory that may be a user's own."""

import os
from pathlib import Path

import pytest

from gpucache.caches.registry import of_others
from tests.caches.opened import opened

SYSTEM = of_others("vulkan")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may wait for its other end."""
    os.mkfifo(tmp_path / "pipe")
    asked, really = [], os.open

    def opening(path: str, *rest: int, **more: int | None) -> int:
        asked.append(str(path))
        return really(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opening)
    assert not SYSTEM.recognises(tmp_path) and not list(opened(SYSTEM, tmp_path).scan())
    assert str(tmp_path) in asked and "pipe" not in asked
