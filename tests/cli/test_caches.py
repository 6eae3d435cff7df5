"""The other caches through the verbs, by name, place and kind of question."""

from pathlib import Path

import pytest

from gpucache.caches.registry import SYSTEMS
from tests.caches.futhark.build import OPTIONS, PTX, SOURCE, cuda_log, file_bytes
from tests.caches.rocfft.build import OTHER, database, row
from tests.cli.conftest import Run


@pytest.fixture
def futhark(tmp_path: Path) -> Path:
    """A directory with a sound cache file and one that was cut off."""
    folder = tmp_path / "futhark"
    folder.mkdir()
    (folder / "good.cache").write_bytes(file_bytes())
    (folder / "bad.cache").write_bytes(file_bytes()[:60])
    return folder


@pytest.fixture
def rocfft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's rocFFT database, in the place of rocFFT's variable."""
    path = tmp_path / "rocfft.db"
    monkeypatch.setenv("ROCFFT_RTC_CACHE_PATH", str(path))
    return database(path, [row(), row(OTHER), row(arch="gfx908", seconds=1_800_000_000)])


def test_a_place_is_recognised(run: Run, futhark: Path) -> None:
    """--cache takes another system's directory, and its entries are listed."""
    answer = run("--json", "inspect", "--list", "--cache", futhark)
    assert {entry["program"] for entry in answer.document["outcomes"]} == {"good", "bad"}
    assert {entry["cache"] for entry in answer.document["outcomes"]} == {"futhark"}


def test_a_place_can_be_named_with_its_system(run: Run, tmp_path: Path) -> None:
    """An unrecognised file is opened as the named system, and its damage is a finding."""
    junk = tmp_path / "junk"
    junk.write_bytes(b"no cache at all")
    assert run("verify", "--cache", junk).code == 2
    answer = run("--json", "verify", "--cache", f"futhark:{junk}")
    assert (answer.code, answer.document["summary"]["sound"]) == (3, 0)


def test_inspect_has_each_cache_in_its_document(run: Run, rocfft: Path) -> None:
    """The summary has the state of every other cache."""
    caches = run("--json", "inspect").document["summary"]["caches"]
    [own] = [one for one in caches if one["root"] == str(rocfft)]
    assert (own["cache"], own["entries"], own["role"]) == ("rocfft", 3, "user")


def test_one_cache_tells_how_to_redirect_and_trace_it(run: Run, rocfft: Path) -> None:
    """A system's own variables are shown with its cache."""
    out = run("inspect", "--cache", "rocfft").out
    assert "ROCFFT_RTC_CACHE_PATH=DIR" in out and "ROCFFT_LAYER=32" in out


def test_verify_finds_and_repairs(run: Run, futhark: Path) -> None:
    """A truncated file is a finding; after a repair it is gone and the sound one stays."""
    [finding] = run("--json", "verify", "--cache", futhark).document["outcomes"]
    assert (finding["kind"], finding["program"]) == ("truncated", "bad")
    assert run("verify", "--cache", futhark, "--repair").code == 0
    assert [path.name for path in futhark.iterdir()] == ["good.cache"]


def test_read_only_repairs_nothing(run: Run, futhark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUCACHE_READ_ONLY also leaves the other caches unchanged."""
    monkeypatch.setenv("GPUCACHE_READ_ONLY", "1")
    assert run("verify", "--cache", futhark, "--repair").code == 5
    assert run("evict", "--cache", futhark, "--all", "--yes").code == 5
    assert len(list(futhark.iterdir())) == 2


def test_evict_removes_what_is_unlike(run: Run, rocfft: Path) -> None:
    """Rows whose key field has another value go, the others stay."""
    summary = run("--json", "evict", "--cache", "rocfft", "--unlike", "arch=gfx90a").document["summary"]
    assert (summary["removed"], summary["kept"]) == (1, 2)
    left = run("--json", "inspect", "--cache", "rocfft", "--list").document["outcomes"]
    assert {entry["fields"]["arch"] for entry in left} == {"gfx90a"}


def test_evict_by_size_takes_the_oldest(run: Run, rocfft: Path) -> None:
    """A bound in bytes keeps the newest rows."""
    run("evict", "--cache", "rocfft", "--max-size", "500B")
    [left] = run("--json", "inspect", "--cache", "rocfft", "--list").document["outcomes"]
    assert left["fields"]["arch"] == "gfx908"


def test_evict_without_a_bound_is_refused(run: Run, rocfft: Path) -> None:
    """A system without its own limit has none to apply."""
    answer = run("evict", "--cache", "rocfft")
    assert answer.code == 2 and "--max-size" in answer.err


def test_why_answers_for_what_is_wanted(run: Run, futhark: Path, tmp_path: Path) -> None:
    """A wanted source and log hit, and other options are a miss with exit 3."""
    (tmp_path / "source").write_bytes(SOURCE)
    (tmp_path / "log").write_bytes(cuda_log())
    (tmp_path / "other").write_bytes(cuda_log([*OPTIONS, b"-lineinfo"]))
    ask = (
        "--json",
        "inspect",
        "--why",
        "--cache",
        futhark / "good.cache",
        "--want",
        f"source=@{tmp_path}/source",
    )
    hit = run(*ask, "--want", f"log=@{tmp_path}/log")
    assert (hit.code, hit.document["outcomes"][0]["verdict"]) == (0, "hit")
    miss = run(*ask, "--want", f"log=@{tmp_path}/other")
    [outcome] = miss.document["outcomes"]
    assert (miss.code, outcome["verdict"]) == (3, "key-changed")
    assert outcome["differences"][0]["field"] == "key"


def test_an_unknown_field_lists_the_known(run: Run, rocfft: Path) -> None:
    """Each system lists its fields."""
    answer = run("inspect", "--why", "--cache", "rocfft", "--want", "colour=red")
    assert answer.code == 2 and "kernel" in answer.err


def test_extract_writes_the_payload(run: Run, futhark: Path, tmp_path: Path) -> None:
    """The compiled bytes of an entry of any cache are written, but never over an existing file."""
    assert run("inspect", "--cache", futhark, "good", "--extract", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == PTX
    (tmp_path / "out").write_bytes(b"mine")
    assert run("inspect", "--cache", futhark, "good", "--extract", tmp_path / "out").code == 2
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_options_of_our_own_cache_are_refused_for_others(run: Run, futhark: Path) -> None:
    """Options that work only on our own entries are refused for other caches."""
    for options in (("verify", "--load"), ("verify", "--rebuild"), ("inspect", "--misses")):
        answer = run(*options, "--cache", futhark)
        assert answer.code == 2 and "gpucache's own cache" in answer.err


def test_every_system_tells_its_places_without_failing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home, a cache directory or any variable gets an answer, not a traceback."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in SYSTEMS:
        assert run("inspect", "--cache", name).code in (0, 2), name


def test_a_broken_place_does_not_hide_the_others(
    run: Run, rocfft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cache that cannot be opened is reported on its own line, and the rest is shown."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SYCL_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("SYCL_CACHE_PERSISTENT", "1")
    answer = run("inspect")
    assert answer.code == 0 and str(rocfft) in answer.out and "sycl" in answer.out
    assert run("--json", "verify", "--cache", "all").document["summary"]["checked"] >= 3


def test_several_caches_can_be_named(run: Run, rocfft: Path, futhark: Path) -> None:
    """--cache is repeatable, and every row says which cache it is of."""
    answer = run("verify", "--cache", "rocfft", "--cache", futhark)
    assert answer.code == 3 and "5 entries checked" in answer.out
    listed = run("inspect", "--list", "--cache", "rocfft", "--cache", futhark).out
    assert {"rocfft", "futhark"} <= {line.split()[0] for line in listed.splitlines() if line.strip()}


def test_nothing_that_a_terminal_obeys_is_printed(run: Run, futhark: Path) -> None:
    """Names out of a cache are made printable."""
    (futhark / "a\x1b[31mb.cache").write_bytes(file_bytes())
    answer = run("inspect", "--list", "--cache", futhark)
    assert "\x1b" not in answer.out and "\ufffd[31mb" in answer.out


def test_others_are_shown_where_our_own_has_no_place(run: Run, rocfft: Path, tmp_path: Path) -> None:
    """A root that cannot be used is exit 5, after every other cache was shown."""
    (tmp_path / "file").write_bytes(b"")
    answer = run("inspect", at=tmp_path / "file")
    assert answer.code == 5 and str(rocfft) in answer.out


@pytest.mark.parametrize("arguments", [("inspect",), ("inspect", "--cache", "cuda.core")])
def test_a_default_place_that_a_variable_leads_away_from_is_shown(
    arguments: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is shown as not used, with the variable that decides that; only inspect looks there."""
    before = tmp_path / "home" / ".cache" / "cuda-python" / "program-cache"
    for path in (before / "entries" / "ab", before / "tmp"):
        path.mkdir(parents=True)
    (before / "entries" / "ab" / ("0" * 62)).write_bytes(b".version 8.0\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "now"))
    caches = run("--json", *arguments, at=None).document["summary"]["caches"]
    [unused] = [one for one in caches if one["root"] == str(before)]
    assert (unused["enabled"], unused["entries"]) == (False, 1)
    assert "XDG_CACHE_HOME sends them to" in unused["problems"][0]
    assert run("--json", "evict", "--cache", "cuda.core", "--all", "--yes").document["outcomes"] == []
