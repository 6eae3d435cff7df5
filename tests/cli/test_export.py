"""Caches of other systems written by export."""

import sys
from pathlib import Path

import pytest

from tests.caches.futhark.build import cuda_log
from tests.caches.rocfft.build import OTHER, database, row
from tests.cli.conftest import Run

DUMPED = 'extern "C" __global__ void scale(float *a) { a[threadIdx.x] *= max_thread_block_size; }\n'


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    path = tmp_path / "scale.cu"
    path.write_text(DUMPED, encoding="utf-8")
    return path


def test_a_futhark_file_is_hit(run: Run, nvrtc: str, dumped: Path, tmp_path: Path) -> None:
    """A file written for a device is sound, and a hit for the same source and options."""
    out, log = tmp_path / "scale.cache", tmp_path / "log"
    log.write_bytes(cuda_log([b"-arch", b"compute_80", b"-Dmax_thread_block_size=256"]))
    done = run("--json", "export", "futhark", out, dumped, "--log", log)
    assert done.code == 0, done.err
    assert run("verify", "--cache", out).code == 0
    asked = run("inspect", "--why", "--cache", out, "--want", f"source=@{dumped}", "--want", f"log=@{log}")
    assert asked.code == 0, asked.out
    assert b".target sm_80" in out.read_bytes() and not out.read_bytes().endswith(b"\0")


def test_a_futhark_file_by_default_options_says_what_it_does_not_know(
    run: Run, nvrtc: str, dumped: Path, tmp_path: Path
) -> None:
    """Without a log the options are those of a plain program on such a device, and a note says so."""
    done = run("--json", "export", "futhark", tmp_path / "out", dumped, "--target", "cuda:sm_86")
    [outcome] = done.document["outcomes"]
    assert done.code == 0 and "tuning parameters" in outcome["notes"][0]
    assert outcome["key"] == (tmp_path / "out").read_bytes()[16:48].hex()


def test_a_program_that_does_not_compile_writes_nothing(run: Run, nvrtc: str, tmp_path: Path) -> None:
    """The compiler's message is shown, exit 3, and no file is left."""
    bad = tmp_path / "bad.cu"
    bad.write_text('extern "C" __global__ void f() { nonesuch(); }\n', encoding="utf-8")
    done = run("export", "futhark", tmp_path / "out", bad, "--target", "cuda:sm_90")
    assert done.code == 3 and "nonesuch" in done.err and "bad.cu" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "log", [b"", b"OpenCL compiler options: -DX=1\n", b"NVRTC compile options:\n\t--pch\n\n"]
)
def test_a_log_that_gives_no_options_is_refused(run: Run, dumped: Path, tmp_path: Path, log: bytes) -> None:
    """A log without a CUDA option list, or with options that write files, compiles nothing."""
    (tmp_path / "log").write_bytes(log)
    done = run("export", "futhark", tmp_path / "out", dumped, "--log", tmp_path / "log")
    assert done.code == 2 and not (tmp_path / "out").exists()


@pytest.fixture
def databases(tmp_path: Path) -> tuple[Path, Path]:
    """Two databases that share a row, the second with the newer one, in write-ahead mode."""
    first = database(tmp_path / "a.db", [row(), row(OTHER), row(arch="gfx908")])
    return first, database(tmp_path / "b.db", [row(seconds=1_800_000_000)], wal=True)


def test_a_merge_is_reproducible(run: Run, databases: tuple[Path, Path], tmp_path: Path) -> None:
    """The bytes depend on the rows alone, not on the order of the sources."""
    first, second = databases
    assert run("export", "rocfft", tmp_path / "one.db", first, second).code == 0
    assert run("export", "rocfft", tmp_path / "two.db", second, first).code == 0
    assert (tmp_path / "one.db").read_bytes() == (tmp_path / "two.db").read_bytes()
    listed = run("--json", "inspect", "--list", "--cache", tmp_path / "one.db").document["outcomes"]
    assert len(listed) == 3 and len({one["created"] for one in listed}) == 1  # the file's own time


def test_a_relative_place_works(
    run: Run, databases: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are relative to the current directory."""
    monkeypatch.chdir(tmp_path)
    assert run("export", "rocfft", "out.db", "a.db", "b.db").code == 0
    assert run("export", "rocfft-image", "image", "out.db").code == 0


def test_rows_can_be_chosen(run: Run, databases: tuple[Path, Path], tmp_path: Path) -> None:
    """--like takes only the rows of an architecture, and says how many were left out."""
    done = run("--json", "export", "rocfft", tmp_path / "o.db", *databases, "--like", "arch=gfx908")
    [outcome] = done.document["outcomes"]
    assert outcome["entries"] == 1 and any("--like" in note for note in outcome["notes"])


def test_an_existing_database_is_added_to_only_on_request(
    run: Run, databases: tuple[Path, Path], tmp_path: Path
) -> None:
    """Existing entries are never overwritten; --into adds to them."""
    first, second = databases
    before = second.read_bytes()
    assert run("export", "rocfft", second, first).code == 2
    assert second.read_bytes() == before
    assert run("export", "rocfft", second, first, "--into", "--keep-times").code == 0
    assert len(run("--json", "inspect", "--list", "--cache", second).document["outcomes"]) == 3


def test_an_image_and_back(run: Run, databases: tuple[Path, Path], tmp_path: Path) -> None:
    """An image of a database in write-ahead mode can be loaded, and made a database again."""
    _, second = databases
    assert run("export", "rocfft-image", tmp_path / "image", second).code == 0
    assert (tmp_path / "image").read_bytes()[18:20] == b"\1\1"
    assert run("export", "rocfft-restore", tmp_path / "back.db", tmp_path / "image").code == 0
    assert run("verify", "--strict", "--cache", tmp_path / "back.db").code == 0


def test_junk_is_no_source(run: Run, tmp_path: Path) -> None:
    """A file that is not a database ends in one sentence, and nothing is written."""
    (tmp_path / "junk").write_bytes(b"x" * 5000)
    done = run("export", "rocfft", tmp_path / "out.db", tmp_path / "junk")
    assert done.code in (2, 3) and len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "out.db").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("layer", "out"), "no command is named"),
        (("layer", "out", "a.cu"), "as in 'gpucache export layer DIR -- a.cu'"),
        (("layer", "out", "--keep-times", "--", "true"), "--keep-times"),
        (("layer", "out", "--at", "relative", "--", "true"), "absolute path"),
        (("layer", "out", "--at", "/a:b", "--", "true"), "absolute path"),
        (("layer", "full", "--", "true"), "contains other files"),
        (("layer", "file", "--", "true"), "cannot be made a layer"),
        (("layer", "open", "--", "true"), "run chmod go-w on it"),
        (("rocfft", "out", "a.db", "--at", "/a"), "--at"),
        (("rocfft", "out", "a.db", "--", "true"), "only run, record, warm, bench and export layer"),
        (("rocfft", "out"), "'SOURCE...'"),
        (("rocfft", "open", "a.db"), "is a directory"),
    ],
)
def test_a_layer_takes_a_command_and_the_others_take_sources(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    """Each mistake is one sentence and exit 2, and nothing is written or run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "more").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    done = run("export", *arguments)
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1)
    assert why in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="layers are for Linux")
def test_a_command_that_builds_nothing_makes_no_layer(run: Run, tmp_path: Path) -> None:
    """A message says so; the exit code is that of findings, unless the command itself failed."""
    out = tmp_path / "above" / "out"
    for command, code in ((("sh", "-c", "exit 7"), 7), (("true",), 3), (("./nothere",), 127)):
        done = run("export", "layer", out, "--", *command)
        assert (done.code, out.parent.exists()) == (code, False)
        assert code == 127 or "nothing was exported, and no layer is made" in done.err
    done = run("--json", "export", "layer", out, "--", "true")
    assert done.code == 3 and '"exported": 0' in done.err
