"""``gpucache key``: a pair is made once, printed again, and nothing of it is overwritten."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.remote.signing import load_signing_key, read_trusted

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_a_pair_is_made_and_its_public_key_is_printed(run: Run, tmp_path: Path) -> None:
    """Standard output is the line for machines that pull, alone; the files are those that sign and trust."""
    file = tmp_path / "ci.key"
    made = run("key", file)
    assert made.code == 0 and list(read_trusted(made.out).keys.values()) == [load_signing_key(file).public]
    assert f"GPUCACHE_SIGNING_KEY={file}" in made.err and made.out.strip() in made.err
    assert read_trusted(f"{file}.pub") == read_trusted(made.out)
    assert file.stat().st_mode & 0o777 == 0o600
    again = run("key", "--public", file)
    assert (again.out, again.err, again.code) == (made.out, "", 0)


def test_a_key_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    """The sentence says how to read the key that exists, and neither file changes."""
    file = tmp_path / "ci.key"
    run("key", file)
    before = {path: path.read_bytes() for path in tmp_path.glob("ci.key*")}
    answer = run("key", file)
    assert answer.code == 2 and "--public" in answer.err and answer.out == ""
    assert {path: path.read_bytes() for path in tmp_path.glob("ci.key*")} == before


def test_without_the_extra_one_sentence_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command to install is in the sentence, and no file is left."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    answer = run("key", tmp_path / "ci.key")
    assert answer.code == 2 and "pip install cryptography" in answer.err
    assert answer.err.count("\n") == 1 and not list(tmp_path.glob("ci.key*"))
