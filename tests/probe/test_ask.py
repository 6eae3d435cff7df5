"""The probe: a child that fails in any way is a row with its error, and real compilers are found."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from gpucache.model import Device, Target, Toolchain
from gpucache.probe.ask import ask
from gpucache.probe.remembered import device_to_json
from tests.patience import PATIENCE_S, wait_until


def _child(code: str) -> tuple[str, ...]:
    """A command that runs some code as the child; the backend's name is its first argument."""
    return (sys.executable, "-c", f"import sys\n{code}")


def _broken(code: str, *, timeout_s: float = PATIENCE_S) -> str:
    """The error of the one row that a broken child gives."""
    (row,) = ask(["opencl"], command=_child(code), timeout_s=timeout_s)
    assert (row.target, row.toolchain) == (None, None)
    assert (row.backend, row.available, row.present) == ("opencl", False, False)
    return row.detail


@pytest.mark.parametrize(
    ("code", "timeout_s", "detail"),
    [
        ("sys.exit(3)", PATIENCE_S, "the driver failed during the probe: exit status 3"),
        (
            "sys.exit('first\\nImportError: libOpenCL.so is missing')",
            PATIENCE_S,
            "the driver failed during the probe: ImportError: libOpenCL.so is missing",
        ),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
            PATIENCE_S,
            "the driver crashed during the probe (SIGSEGV); check its installation",
        ),
        (
            "import threading\nthreading.Event().wait()",
            0.5,
            "the probe did not finish within 0.5 s; the driver hangs",
        ),
    ],
)
def test_a_child_that_does_not_answer_is_a_row(code: str, timeout_s: float, detail: str) -> None:
    """With its exit status or its last words, with the signal it died of, or with the limit."""
    assert _broken(code, timeout_s=timeout_s) == detail


def test_drivers_that_hang_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are queried at once, so after the first that hangs the second has no limit of its own."""
    now_s, waited = [0.0], []

    def hang(_: object, timeout: float) -> None:
        waited.append(timeout)
        now_s[0] += timeout
        raise subprocess.TimeoutExpired("a driver", timeout)

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(subprocess.Popen, "communicate", hang)
    rows = ask(["a", "b"], command=_child(""))
    assert [row.detail for row in rows] == ["the probe did not finish within 60 s; the driver hangs"] * 2
    assert waited == [60, 1]


_ASKING = """
import signal, sys
from pathlib import Path
from gpucache.probe.ask import ask
CHILD = "import os, signal, sys; print(os.getpid(), file=open(sys.argv[1], 'w')); signal.pause()"
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ask(sys.argv[1:], command=(sys.executable, "-c", CHILD))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "interrupted\n"), (signal.SIGKILL, "")])
def test_the_children_end_with_whoever_asks(tmp_path: Path, number: signal.Signals, said: str) -> None:
    """A signal ends the probe at once, even if drivers hang; a killed one takes its children along."""
    files = [tmp_path / "first", tmp_path / "second"]
    asking = subprocess.Popen([sys.executable, "-c", _ASKING, *files], stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: all(file.exists() and file.read_text(encoding="ascii") for file in files))
        asking.send_signal(number)
        out, _ = asking.communicate(timeout=PATIENCE_S)
    finally:
        asking.kill()
    assert out == said
    children = [Path("/proc", file.read_text(encoding="ascii").strip()) for file in files]
    # One that was killed may still be on its way out; one that was not would stay for ever.
    wait_until(lambda: not any(child.exists() for child in children))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "driver 1.0 loaded",
        "{",
        "3",
        "[]",
        "{}",
        '{"devices": 3}',
        '{"devices": [3]}',
        '{"devices": {"a": 1}}',
        '{"devices": [{"target": "x"}]}',
        "[" * 20_000,
        "\udcff",
    ],
)
def test_a_child_that_talks_nonsense_is_a_row(answer: str) -> None:
    """A reply that is not a list of devices is refused without an exception."""
    written = answer.encode("utf-8", "surrogateescape")
    assert _broken(f"sys.stdout.buffer.write({written!r})") == "the probe's output is not valid"


def test_a_child_that_cannot_be_started_is_a_row() -> None:
    """A command that is not there is a row with the reason."""
    (row,) = ask(["opencl"], command=("no-such-program-anywhere",))
    assert row.detail.startswith("the probe could not be started (")


def test_each_backend_has_its_own_child() -> None:
    """One broken backend leaves the rows of the others alone, in the order asked for."""
    device = Device(Target("b", "x"), "b", "x", "1", True, "fine", Toolchain("i", (), ()))
    answer = json.dumps({"devices": [device_to_json(device)]})
    rows = ask(["a", "b"], command=_child(f"sys.exit(3) if sys.argv[1] == 'a' else print({answer!r})"))
    assert [row.backend for row in rows] == ["a", "b"]
    assert rows[1] == device


def test_asking_for_no_backend_asks_nobody() -> None:
    assert ask([], command=("no-such-program-anywhere",)) == []


def test_what_a_driver_prints_is_not_the_answer() -> None:
    """The real child keeps stdout for its reply, although a driver may write there."""
    code = (
        "import os, gpucache.probe.child as child\n"
        "class Noisy:\n"
        "    caches = ()\n"
        "    def devices(self):\n"
        "        os.write(1, b'driver 1.0 loaded')\n"
        "        return []\n"
        "child.load_backend = lambda name: Noisy()\n"
        "child.main(sys.argv[1:])"
    )
    assert ask(["opencl"], command=_child(code)) == []


def test_a_backend_that_answers_with_an_error_of_ours_says_so() -> None:
    """The real child passes our own error on as its reply."""
    code = (
        "import gpucache.probe.child as child\n"
        "from gpucache.errors import NoDeviceError\n"
        "class Empty:\n"
        "    caches = ()\n"
        "    def devices(self):\n"
        "        raise NoDeviceError('nothing is installed; install something')\n"
        "child.load_backend = lambda name: Empty()\n"
        "child.main(sys.argv[1:])"
    )
    assert _broken(code) == "nothing is installed; install something"


def test_an_unknown_backend_is_a_row() -> None:
    """An unknown backend is a row that says so."""
    (row,) = ask(["metal"])
    assert "no backend is named 'metal'" in row.detail


def _missing(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return True
    return False


def _here(backend: str) -> Mapping[str, Device]:
    return {str(row.target): row for row in ask([backend])}


@pytest.mark.skipif(_missing("pocl-binary-distribution"), reason="pocl-binary-distribution is not installed")
def test_asking_leaves_nothing_in_the_users_cache_of_pocl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL makes a file there at every start; no directory of ours stays either."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "kcache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert any(target.startswith("opencl:pocl") for target in _here("opencl"))
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


@pytest.mark.skipif(_missing("nvidia-cuda-nvrtc"), reason="nvidia-cuda-nvrtc is not installed")
def test_the_real_probe_finds_nvrtc() -> None:
    """NVRTC from PyPI builds for architectures, as cubin and as PTX, on a machine without a GPU."""
    found = _here("cuda")
    for target in ("cuda:sm_90", "cuda:compute_90"):
        toolchain = found[target].toolchain
        assert found[target].available
        assert toolchain is not None
        assert toolchain.implementation == "nvrtc"
        assert dict(toolchain.fields)["architecture"] == target.partition(":")[2]


def test_the_probe_does_not_import_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the current directory that is named like a module is not imported by the child."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from here')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (row,) = ask(["metal"])
    assert "no backend is named 'metal'" in row.detail


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_something_else_is_done_while_drivers_think(tmp_path: Path) -> None:
    """The given function is called while the children run."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"print(open({str(pipe)!r}).read())"  # waits for the process that writes
    rows = ask(["a"], command=_child(code), meanwhile=lambda: pipe.write_text('{"devices": []}'))
    assert rows == []
