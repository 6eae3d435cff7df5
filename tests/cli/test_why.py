"""``gpucache inspect --why``: would it hit now, and if not why; without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.caches.sycl.build import Made, put, spirv

if TYPE_CHECKING:
    from gpucache.model import Device
    from tests.cli.conftest import Filled, Run

Write = Callable[..., Path]
ANSWER = {
    "program", "target", "variant", "consulted", "verdict", "detail", "differences", "key", "nearest",
    "written", "under_run", "layers", "not_asked", "directory", "elsewhere",
}  # fmt: skip
KERNEL = '#include "value.h"\nextern "C" __global__ void k(int *out) { *out = VALUE + EXTRA; }\n'
HEADER = "#define VALUE 1\n"


@pytest.fixture(scope="session")
def kernel(filling: Run, tmp_path_factory: pytest.TempPathFactory, nvrtc: str) -> Filled:
    """A program with a header elsewhere and a define, warmed for one target; copies are to be changed."""
    from tests.cli.conftest import Filled

    place = tmp_path_factory.mktemp("why")
    for name, text in {"k.cu": KERNEL, "include/value.h": HEADER}.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    answer = filling(
        place / "k.cu", "-I", place / "include", "-D", "EXTRA=2", "--option=-use_fast_math", "--target",
        nvrtc, "--root", place / "root",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    return Filled(place / "root", place, answer)


@pytest.fixture
def why(run: Run, no_workers: None, kernel: Filled, nvrtc: str) -> Callable[..., Any]:
    """The document of a question about the program, with the warmed options by default."""

    def ask(*more: object, include: Path = kernel.sources / "include", extra: str = "2") -> Any:
        built = ("-I", include, "-D", f"EXTRA={extra}", "--option=-use_fast_math", "--target", nvrtc)
        return run("inspect", "--why", kernel.sources / "k.cu", *built, *more, "--json", at=kernel.root)

    return ask


def _state(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_asked_as_it_was_warmed_it_would_hit(why: Callable[..., Any], kernel: Filled) -> None:
    """The same directories, defines, options and target are a hit with the warmed key."""
    answer = why()
    (row,) = answer.document["outcomes"]
    (warmed,) = kernel.answer.document["outcomes"]
    assert (answer.code, set(row)) == (0, ANSWER)
    assert (row["verdict"], row["key"]) == ("hit", warmed["key"])
    assert row["consulted"] == [str(kernel.root)]
    assert answer.document["summary"] == {"asked": 1, "hits": 1, "misses": 0}


def test_only_the_drivers_that_a_question_is_about_are_asked(
    why: Callable[..., Any], run: Run, kernel: Filled, devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a source they are those of its language, for a program those of its entries."""
    asked: list[Sequence[str] | None] = []

    def ask(backends: Sequence[str] | None = None, **_: object) -> list[Device]:
        asked.append(backends)
        return [device for device in devices if backends is None or device.backend in backends]

    monkeypatch.setattr("gpucache.probe.ask.ask", ask)
    assert why().code == 0
    assert run("inspect", "--why", "k.cu", at=kernel.root).code == 0
    assert asked == [["cuda"], ["cuda"]]


def test_an_edited_header_is_named_with_what_was_built_before(
    why: Callable[..., Any], kernel: Filled, write: Write
) -> None:
    """After an edit the answer is exit 3, the header, both digests, and the existing entry."""
    edited = write({"value.h": "#define VALUE 3\n"}, "edited")
    answer = why(include=edited)
    (row,) = answer.document["outcomes"]
    (warmed,) = kernel.answer.document["outcomes"]
    assert (answer.code, row["verdict"], row["key"]) == (3, "key-changed", None)
    assert row["detail"].startswith("the header value.h changed (nearest: ")
    assert {item["field"] for item in row["differences"]} == {"include value.h", "resolution of includes"}
    assert all(set(item) == {"field", "before", "now"} for item in row["differences"])
    assert row["nearest"] == warmed["key"] == row["written"][0]["key"]
    assert set(row["written"][0]) == {"key", "created"}


def test_a_system_root_that_is_not_asked_is_told(
    run: Run,
    why: Callable[..., Any],
    kernel: Filled,
    nvrtc: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A missing shared cache is named by a hit and a miss, next to the roots that were searched."""
    gone = tmp_path / "gone"
    monkeypatch.setenv("GPUCACHE_SYSTEM_DIRS", str(gone))
    told = f"the system root {gone} is not used, as it does not exist; correct GPUCACHE_SYSTEM_DIRS"
    for answer in (why(), why(extra="5")):
        (row,) = answer.document["outcomes"]
        assert row["not_asked"] == [told]
        assert row["verdict"] == "hit" or told in row["detail"]
    text = run("inspect", "--why", kernel.sources / "k.cu", "--target", nvrtc, at=kernel.root).out
    assert f"asked:   {kernel.root}; not {gone}\n" in text


def test_asking_changes_nothing(why: Callable[..., Any], kernel: Filled, write: Write) -> None:
    """Neither a hit nor a miss changes a last use, the journal or any other file of the root."""
    before = _state(kernel.root)
    why()
    why(include=write({"value.h": "#define VALUE 4\n"}, "edited"))
    assert _state(kernel.root) == before


def test_a_program_is_asked_for_by_name(
    run: Run, no_workers: None, cache: Path, mixed: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history names its entries, which are looked up by their own source, options and local sizes."""

    def scan(self: object) -> None:
        raise AssertionError("the whole cache was read")

    monkeypatch.setattr("gpucache.caches.own.OwnCache.scan", scan)
    answer = run("inspect", "--why", "twice.cl", "twice.cu", "--json")
    rows = answer.document["outcomes"]
    built = {row["key"] for row in mixed.answer.document["outcomes"] if row["result"] == "built"}
    assert (answer.code, {row["key"] for row in rows}) == (0, built)


def test_a_program_that_did_not_compile_is_told_as_that(run: Run, tmp_path: Path, nvrtc: str) -> None:
    """After a warm that failed, --check and --why say that it failed, and after its repair no longer."""
    source, built = tmp_path / "k.cu", ("--target", nvrtc, "--json")
    source.write_text('extern "C" __global__ void k(int *out) { oops; }\n', encoding="utf-8")
    for verb in (("warm",), ("warm", "--check"), ("inspect", "--why")):
        (row,) = run(*verb, source, *built).document["outcomes"]
    assert (row["verdict"], row["detail"][:22]) == ("failed", "it did not compile at ")
    (row,) = run("warm", "--check", source, *built).document["outcomes"]
    assert row["verdict"] == "failed"
    source.write_text('extern "C" __global__ void k(int *out) {}\n', encoding="utf-8")
    (row,) = run("inspect", "--why", source, *built).document["outcomes"]
    assert row["verdict"] == "never-built"


def test_a_target_asks_for_every_program_it_has(
    run: Run, filling: Run, write: Write, root: Path, nvrtc: str
) -> None:
    """All programs of a target have an answer, not only the newest."""
    text = 'extern "C" __global__ void own() {}\n'
    folder = write({"one.cu": text, "two.cu": text.replace("own", "two")})
    assert filling(folder, "--target", nvrtc, "--root", root).code == 0
    rows = run("inspect", "--why", nvrtc, "--json").document["outcomes"]
    assert {(row["program"], row["verdict"]) for row in rows} == {("one.cu", "hit"), ("two.cu", "hit")}


@pytest.mark.parametrize("folder", [False, True])
def test_a_file_without_a_source_does_not_hide_a_program(
    run: Run, filling: Run, write: Write, root: Path, tmp_path: Path, nvrtc: str,
    monkeypatch: pytest.MonkeyPatch, folder: bool,
) -> None:  # fmt: skip
    """A program is looked up by its name even if a file or directory without a source has that name."""
    source = write({"own.cu": 'extern "C" __global__ void own() {}\n'}) / "own.cu"
    manifest = source.with_name("m.toml")
    manifest.write_text('[[program]]\nname = "own"\nsource = "own.cu"\n', encoding="utf-8")
    assert filling("--manifest", manifest, "--target", nvrtc, "--root", root).code == 0
    place = tmp_path / "elsewhere"
    place.mkdir()
    for name in ("own", "other"):
        (place / name).mkdir() if folder else (place / name).touch()
    monkeypatch.chdir(place)
    (row,) = run("inspect", "--why", "own", "--json").document["outcomes"]
    assert (row["program"], row["verdict"]) == ("own", "hit")
    assert run("inspect", "--why", "other").code == 2


def test_a_name_whose_source_changed_is_a_miss(
    run: Run, filling: Run, write: Write, root: Path, nvrtc: str
) -> None:
    """A program looked up by name misses if its file was edited; if that is gone, the answer says so."""
    source = write({"own.cu": 'extern "C" __global__ void own() {}\n'}) / "own.cu"
    assert filling(source, "--target", nvrtc, "--root", root).code == 0
    source.write_text('extern "C" __global__ void own() { return; }\n', encoding="utf-8")
    (row,) = run("inspect", "--why", "own.cu", "--json").document["outcomes"]
    assert (row["verdict"], [item["field"] for item in row["differences"]]) == ("key-changed", ["source"])
    source.unlink()
    answer = run("inspect", "--why", "own.cu", "--json")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["verdict"]) == (3, "not-consulted")
    assert row["detail"].startswith("it cannot be looked up: ") and "own.cu" in row["detail"]


def test_two_keys_are_compared(run: Run, mixed: Filled, nvrtc: str) -> None:
    """Two keys give the fields in which their entries differ, before and now, and exit 0."""
    keys = [
        row["key"]
        for target in (nvrtc, "cuda:compute_80")
        for row in mixed.answer.document["outcomes"]
        if (row["target"], row["result"]) == (target, "built")
    ]
    answer = run("inspect", "--why", *(key[:12] for key in keys), "--json", at=mixed.root)
    document = answer.document
    assert answer.code == 0
    assert document["summary"] == {
        "left": keys[0], "right": keys[1], "differences": len(document["outcomes"]),
    }  # fmt: skip
    assert {"field": "artifact kind", "before": "cubin", "now": "ptx"} in document["outcomes"]
    text = run("inspect", "--why", *(key[:12] for key in keys), at=mixed.root).out
    assert text.splitlines()[0] == f"{keys[0][:12]} -> {keys[1][:12]}"
    assert "artifact kind cubin -> ptx" in text
    same = run("inspect", "--why", keys[0][:12], keys[0][:12], at=mixed.root)
    assert "nothing: their key fields are the same" in same.out


def test_defines_and_options_keep_the_order_in_which_they_were_given(
    run: Run, filling: Run, write: Write, root: Path, nvrtc: str
) -> None:
    """A build with ``--option`` before ``-D`` hits in that order, and the other order is reported."""
    source = write({"k.cu": 'extern "C" __global__ void k(int *out) { *out = N; }\n'}) / "k.cu"
    first, second = "--option=-lineinfo", ("-D", "N=4")
    assert filling(source, first, *second, "--target", nvrtc, "--root", root).code == 0
    same = run("inspect", "--why", source, first, *second, "--target", nvrtc, "--json")
    other = run("inspect", "--why", source, *second, first, "--target", nvrtc, "--json")
    assert (same.code, other.code) == (0, 3)
    (row,) = other.document["outcomes"]
    assert row["differences"] == [{"field": "option", "before": "-lineinfo -DN=4", "now": "-DN=4 -lineinfo"}]


def test_name_expressions_are_warmed_and_asked_for(
    run: Run, filling: Run, write: Write, root: Path, nvrtc: str
) -> None:
    """A template warmed for a C++ name hits when asked for that name, and misses without it."""
    source = write({"k.cu": "template <class T> __global__ void k(T *out) { *out = 7; }\n"}) / "k.cu"
    named = ("--name-expression", "k<float>")
    assert filling(source, *named, "--target", nvrtc, "--root", root).code == 0
    assert run("inspect", "--why", source, *named, "--target", nvrtc).code == 0
    answer = run("inspect", "--why", source, "--target", nvrtc, "--json")
    (row,) = answer.document["outcomes"]
    assert [item["field"] for item in row["differences"]] == ["name expression"]


def test_two_keys_of_another_system_are_compared(run: Run, tmp_path: Path) -> None:
    """By the fields that their entries store."""
    for name in ("kernel_0", "kernel_1"):
        put(tmp_path / "sycl", Made(image=spirv(name)))
    place = f"sycl:{tmp_path / 'sycl'}"
    rows = run("--json", "inspect", "--list", "--cache", place).document["outcomes"]
    first, second = (row["key"] for row in sorted(rows, key=lambda row: str(row["program"])))
    answer = run("--json", "inspect", "--cache", place, "--why", first, second)
    assert answer.code == 0
    assert {"field": "kernel", "before": "kernel_0", "now": "kernel_1"} in answer.document["outcomes"]


def test_an_option_that_must_be_refused_is_an_answer(run: Run, kernel: Filled, nvrtc: str) -> None:
    """An option with side effects makes its program uncacheable, with the reason; the others are answered."""
    answer = run(
        "inspect", "--why", kernel.sources / "k.cu", "--option=--time=x.csv", "--target", nvrtc, "--json",
        at=kernel.root,
    )  # fmt: skip
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["verdict"]) == (3, "uncacheable")
    assert "--time" in row["detail"]
