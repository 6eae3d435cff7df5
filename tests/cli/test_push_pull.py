"""``gpucache push`` and ``pull`` between two users of one directory: words, files and exit codes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.answers.document import keys
from gpucache.answers.transfer import Pulled, Pushed
from gpucache.errors import RemoteError
from tests.contracts.examples import EXAMPLES

if TYPE_CHECKING:
    from tests.cli.conftest import Run

PROFILE = """\
{"schema": 1, "devices": [{"target": "cuda:sm_80", "backend": "cuda", "name": "A100", "driver_version": "",
"available": true, "present": true, "detail": "", "toolchain": null}], "environment": {}}
"""


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """The current directory, with caches of two systems, a trusted key, and a store that others can write."""
    for system in ("triton", "cupy"):
        EXAMPLES[system].make(tmp_path / system, 3)
    monkeypatch.chdir(tmp_path)
    assert run("key", "ci.key").code == 0
    monkeypatch.setenv("GPUCACHE_TRUSTED_KEYS", str(tmp_path / "ci.key.pub"))
    Path("store").mkdir()
    Path("store").chmod(0o777)
    return tmp_path


def _files(folder: Path) -> dict[str, int]:
    return {str(one.relative_to(folder)): one.stat().st_size for one in folder.rglob("*") if one.is_file()}


def _push(run: Run, *more: str) -> dict[str, object]:
    answer = run("--json", "push", "store", "--cache", "triton:triton", "--cache", "cupy:cupy", *more)
    assert answer.code == 0 and all(row.keys() == _names(Pushed) for row in answer.document["outcomes"])
    return dict(answer.document["summary"])


def _names(kind: type) -> set[str]:
    return {key.name for key in keys(kind)}


def test_a_push_and_a_pull_move_entries_and_a_second_one_nothing(run: Run, here: Path) -> None:
    """The caches are equal afterwards, and every outcome has the keys of its type."""
    signed = ("--key", "ci.key", "--sources")
    assert _push(run, *signed, "--dry-run")["would_send"] == 6 and not _files(here / "store")
    assert _push(run, *signed)["sent"] == 6
    assert (_push(run, *signed)["sent"], _push(run, *signed)["present"]) == (0, 6)
    names = ("--cache", "triton:new/t", "--cache", "cupy:new/c")
    plan = run("--json", "pull", "store", *names, "--dry-run").document
    assert plan["summary"]["would_pull"] == 6 and not (here / "new").exists()
    assert all(row.keys() == _names(Pulled) for row in plan["outcomes"])
    done = run("pull", "store", *names)
    assert done.code == 0 and "6 entries pulled" in done.out
    assert _files(here / "new/t").keys() == _files(here / "triton").keys()
    assert _files(here / "new/c") == _files(here / "cupy")
    again = run("pull", "store", *names)
    assert again.code == 0 and "nothing pulled, 6 here already" in again.out


def test_entries_with_sources_are_sent_on_request_alone(run: Run, here: Path) -> None:
    """Without --sources they are refused, which is not a failure, and the option is the remedy."""
    summary = _push(run, "--key", "ci.key")
    assert (summary["sent"], summary["refused"]) == (3, 3)
    assert "--sources" in str(summary["reasons"])


def test_pull_to_a_directory_writes_the_variables_of_what_it_filled(run: Run, here: Path) -> None:
    """The directory is laid out as warm --into lays it out; a system without entries has no variable."""
    Path("empty").mkdir()
    summary = _push(run, "--key", "ci.key", "--cache", "chromium:empty")
    assert summary["immovable"] == []  # its entries do not move, and it has none
    named = ("--cache", "all", "--to", "caches")
    assert run("pull", "store", *named, "--dry-run", at=None).code == 0 and not (here / "caches").exists()
    answer = run("pull", "store", *named, at=None)
    assert answer.code == 0 and _files(here / "caches/cupy") == _files(here / "cupy")
    told = (here / "caches/gpucache.env").read_text()
    assert told == f"CUPY_CACHE_DIR={here / 'caches/cupy'}\n"
    answer = run("pull", "store", "--cache", "cupy:cupy", "--to", "caches", at=None)
    assert answer.code == 2 and "--to" in answer.err


@pytest.mark.parametrize("url", ["store", "ftp://x/y"])
def test_pull_to_a_new_directory_writes_its_file_though_nothing_was_pulled(
    run: Run, here: Path, url: str
) -> None:
    """A program that reads the variables after an init container starts, whatever happened to the store."""
    answer = run("pull", url, "--to", "new", "--best-effort", at=None)
    assert answer.code == 0 and "gpucache.env" not in answer.err
    assert (here / "new/gpucache.env").read_text().startswith("#")


def test_what_no_trusted_key_signed_is_not_pulled(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a finding with its remedy; a push without a key makes one, which its user trusts."""
    pushed = run("push", "store", "--cache", "cupy:cupy")
    assert pushed.code == 0 and "3 entries sent" in pushed.out
    key = Path.home() / ".config/gpucache/key"
    assert f"made the key {key}" in pushed.err and "GPUCACHE_TRUSTED_KEYS=" in pushed.err
    own = run("pull", "store", "--cache", "cupy:own")
    assert own.code == 0 and "3 entries pulled" in own.out
    key.rename(here / "moved")
    refused = run("pull", "store", "--cache", "cupy:new")
    assert refused.code == 3 and "not trusted" in refused.out and not (here / "new").exists()
    assert run("pull", "store", "--cache", "cupy:new", "--best-effort").code == 0
    verified = run("verify", "store")
    assert verified.code == 3 and "untrusted" in verified.out


def test_a_dry_run_makes_no_key(run: Run, here: Path) -> None:
    """It shows the plan of a push as with the key that the push would make."""
    answer = run("push", "store", "--cache", "cupy:cupy", "--dry-run")
    assert answer.code == 0 and "3 entries would be sent" in answer.out
    assert not (Path.home() / ".config/gpucache").exists()


@pytest.mark.parametrize("line", ["push store --cache triton:triton", "push store", "push store none"])
def test_a_push_that_sends_nothing_makes_no_key(run: Run, here: Path, line: str) -> None:
    """Entries need --sources, no cache exists, or no entry has the name."""
    assert "made the key" not in run(*line.split()).err
    assert not (Path.home() / ".config/gpucache").exists()


def test_entries_for_another_machine_are_listed_by_the_fact_that_differs(run: Run, here: Path) -> None:
    """That is not a failure: nothing is written, and both values are shown."""
    _push(run, "--key", "ci.key", "--sources")
    Path("node.json").write_text(PROFILE)
    answer = run("pull", "store", "--cache", "triton:new", "--device-profile", "node.json")
    assert answer.code == 0 and "3 for other machines" in answer.out and not (here / "new").exists()
    assert any(
        line.split()[1:5] == ["architecture", "sm_90", "sm_80", "3"] for line in answer.out.splitlines()
    )


@pytest.mark.parametrize("line", ["pull ftp://x/y", "pull store --cache nosuch", "pull store --to ci.key/x"])
def test_best_effort_ends_well_whatever_happens(run: Run, here: Path, line: str) -> None:
    """The sentence is the same, and so is the document except its exit code."""
    hard, soft = (run("--json", *line.split(), *more, at=None) for more in ((), ("--best-effort",)))
    assert hard.code in (2, 3, 5) and soft.code == 0
    assert soft.err == hard.err
    assert soft.document.get("error", {}).get("exit_code", 0) == 0


def test_a_read_only_cache_is_not_filled(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUCACHE_READ_ONLY applies to pull as to evict; a plan is shown."""
    _push(run, "--key", "ci.key")
    monkeypatch.setenv("GPUCACHE_READ_ONLY", "1")
    answer = run("pull", "store")
    assert answer.code == 5 and "GPUCACHE_READ_ONLY" in answer.err
    assert run("pull", "store", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [(KeyboardInterrupt(), 130, "3 were {}"), (RemoteError("it is slow"), 5, "it is slow (3 were {})")],
)
@pytest.mark.parametrize(("verb", "done"), [("push", "sent; push"), ("pull", "pulled; pull")])
def test_what_is_stopped_says_how_far_it_came(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, verb: str, done: str, error: BaseException,
    code: int, says: str,
) -> None:  # fmt: skip
    """By the user or a store; the next one goes on."""
    if verb == "pull":
        _push(run, "--key", "ci.key", "--sources")
    module = import_module(f"gpucache.remote.{verb}")
    real = getattr(module, verb)

    def stopped(*arguments: object, **named: object) -> object:
        yield from real(*arguments, **named)
        raise error

    monkeypatch.setattr(module, verb, stopped)
    signs = ("--key", "ci.key") if verb == "push" else ()
    answer = run(verb, "store", "--cache", f"cupy:{'cupy' if verb == 'push' else 'new'}", *signs)
    assert answer.code == code and says.format(f"{done} again to go on") in answer.err
