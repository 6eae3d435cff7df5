"""The manifest: the meaning of its fields, and the report of each mistake in it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.cli.manual import terms
from gpucache.errors import ManifestError, SourceError
from gpucache.manifest import FIELDS, ProgramSpec, read_manifest
from gpucache.model import Language

Read = Callable[[str], list[ProgramSpec]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a few sources and include directories."""
    for name in ("a.cl", "b.cl", "k/c.cl", "k/d.cu", "k/e.cl.txt", "k/deep/f.cl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}\n", encoding="utf-8")
    (tmp_path / "k" / "folder.cl").mkdir()
    (tmp_path / "inc").mkdir()
    (tmp_path / "own").mkdir()
    return tmp_path


@pytest.fixture
def read(folder: Path) -> Read:
    def from_text(text: str) -> list[ProgramSpec]:
        path = folder / "gpucache.toml"
        path.write_text(text, encoding="utf-8")
        return read_manifest(path)

    return from_text


def test_a_source_is_enough(read: Read, folder: Path) -> None:
    """A program with a source alone is named by its path and includes from its own directory."""
    (spec,) = read('[[program]]\nsource = "k/d.cu"')
    assert spec == ProgramSpec(program=spec.program, include_dirs=(str(folder / "k"),), directory=str(folder))
    assert spec.program.name == "k/d.cu"
    assert spec.program.language is Language.CUDA_CPP
    assert spec.program.source == b"// k/d.cu\n"
    assert spec.program.path == folder / "k" / "d.cu"


_TOLD = {term.partition(" = ")[0]: (term, told) for term, (told,) in terms("manifest").items()}


@pytest.mark.parametrize("field", _TOLD)
def test_a_field_is_taken_as_it_is_told(field: str, folder: Path) -> None:
    """The example of every field is a valid value; defaults accept it unless the page says otherwise."""
    (folder / "include").mkdir()
    (folder / "kernels").mkdir()
    (folder / "kernels" / "a.cl").touch()
    path = folder / "gpucache.toml"
    line, told = _TOLD[field]
    source = "" if field == "source" else 'source = "a.cl"\n'
    path.write_text(f"[[program]]\n{source}{line}\n", encoding="utf-8")
    assert read_manifest(path)
    path.write_text(f'[defaults]\n{line}\n[[program]]\nsource = "a.cl"\n', encoding="utf-8")
    if not told.endswith("In [[program]] alone."):
        assert read_manifest(path)
    else:
        with pytest.raises(ManifestError, match="there is no such field"):
            read_manifest(path)


def test_every_field_of_a_program(read: Read, folder: Path) -> None:
    """Each field of a program is read as documented."""
    (spec,) = read(
        """
        [[program]]
        source = "a.cl"
        name = "alpha"
        options = ["-cl-fast-relaxed-math", "-w"]
        include = ["own", "inc"]
        defines = { N = 4, S = "text", ON = true, OFF = false, F = 0.5 }
        targets = ["opencl:pocl", "cuda:sm_90"]
        local_sizes = [[64], [16, 16], [4, 4, 4]]
        name_expressions = ["f<int>"]
        headers = ["inc/by_macro.h"]
        checks = "sync"
        """
    )
    assert spec.program.name == "alpha"
    assert spec.options == ("-cl-fast-relaxed-math", "-w")
    assert spec.include_dirs == (str(folder), str(folder / "own"), str(folder / "inc"))
    assert spec.variants == ((("N", "4"), ("S", "text"), ("ON", "1"), ("OFF", "0"), ("F", "0.5")),)
    assert spec.targets == ("opencl:pocl", "cuda:sm_90")
    assert spec.local_sizes == ((64,), (16, 16), (4, 4, 4))
    assert spec.name_expressions == ("f<int>",)
    assert spec.headers == (str(folder / "inc" / "by_macro.h"),)
    assert spec.checks == "sync"


def test_defaults_stand_before_or_behind_a_programs_own(read: Read, folder: Path) -> None:
    """Defaults are added to lists and tables, and replaced where only one value is possible."""
    own, bare = read(
        """
        [defaults]
        options = ["-A"]
        include = ["inc"]
        defines = { N = 1, M = 1 }
        targets = ["opencl:pocl"]
        local_sizes = [[64]]
        headers = ["inc/x.h"]
        checks = "async"
        [[program]]
        source = "a.cl"
        options = ["-B"]
        include = ["own"]
        defines = { N = 2 }
        targets = ["opencl:intel"]
        local_sizes = [[8]]
        checks = "none"
        headers = ["own/y.h"]
        [[program]]
        source = "b.cl"
        """
    )
    assert own.options == ("-A", "-B")
    assert own.include_dirs == (str(folder), str(folder / "own"), str(folder / "inc"))
    assert own.variants == ((("N", "2"), ("M", "1")),)
    assert (own.targets, own.local_sizes) == (("opencl:intel",), ((8,),))
    assert own.headers == (str(folder / "inc" / "x.h"), str(folder / "own" / "y.h"))
    assert bare.options == ("-A",)
    assert bare.variants == ((("N", "1"), ("M", "1")),)
    assert (bare.targets, bare.local_sizes) == (("opencl:pocl",), ((64,),))
    assert (own.checks, bare.checks) == ("none", "async")


def test_variants_are_every_combination(read: Read) -> None:
    """A table of lists gives every combination, over the defines that do not vary."""
    (spec,) = read(
        """
        [[program]]
        source = "a.cl"
        defines = { N = 1, BLOCK = 0 }
        [program.variants]
        BLOCK = [64, 128]
        T = ["float", "int"]
        """
    )
    assert spec.variants == tuple(
        (("N", "1"), ("BLOCK", block), ("T", kind)) for block in ("64", "128") for kind in ("float", "int")
    )


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.cl", ["a.cl", "b.cl"]),
        ("k/*.cl", ["k/c.cl"]),
        ("**/*.cl", ["a.cl", "b.cl", "k/c.cl", "k/deep/f.cl"]),
        ("k/**/**/*.cl", ["k/c.cl", "k/deep/f.cl"]),
        ("k/**/f.cl", ["k/deep/f.cl"]),
        ("./k//../k/*p/?.cl", ["k/../k/deep/f.cl"]),
        ("[ab].cl", ["a.cl", "b.cl"]),
    ],
)
def test_a_glob_is_the_files_it_fits(pattern: str, names: list[str], read: Read) -> None:
    """A glob means files, sorted and each once, and never directories."""
    assert [spec.program.name for spec in read(f'[[program]]\nsource = "{pattern}"')] == names


def test_an_absolute_source_is_found(read: Read, folder: Path) -> None:
    """A source outside of the manifest's directory is named by its file alone."""
    elsewhere = folder.parent / "elsewhere.cl"
    elsewhere.write_text("//", encoding="utf-8")
    for source in (elsewhere, elsewhere.with_name("elsewher?.cl")):
        (spec,) = read(f"[[program]]\nsource = '{source.as_posix()}'")
        assert (spec.program.name, spec.program.path) == ("elsewhere.cl", elsewhere)


# A line below a program with its source, and the message about its field.
_FIELDS_WRONG = {
    "sources = 1": "there is no such field",
    "name = 3": "a name is text",
    'options = "-w"': "a list of texts",
    'options = ["-D\\u0000"]': "a list of texts",
    'targets = "cuda"': "a list of texts",
    'headers = "x.h"': "a list of texts",
    "name_expressions = 1": "a list",
    'defines = ["N"]': "write it as a table",
    "defines.N = [1]": "text or a number",
    "variants = [1]": "write it as a table",
    "variants = { N = [{}] }": "text or a number",
    "local_sizes = [64]": "list of lists",
    "local_sizes = [[1, 1, 1, 1]]": "three",
    "local_sizes = [[]]": "three",
    "local_sizes = [[0]]": "three",
    "local_sizes = [[true]]": "three",
    'checks = "all"': "none, sync, async",
    "checks = true": "none, sync, async",
    'checks = ["none"]': "none, sync, async",
    f'include = ["{"x" * 5000}"]': "is not a directory",
    f"defines.N = 0x{'f' * 6000}": "at most 64 bits",
    f"variants = {{ N = {list(range(33))}, M = {list(range(33))} }}": "more than 1024 combinations",
}
# A whole manifest, the line and the field of its mistake, and the message about it.
_MISTAKES = [
    ('[[program]]\nsource = "a.cl"\n[extra]\nx = 1', 3, "extra", "there is no such table"),
    ('name = "x"\n[[program]]\nsource = "a.cl"', 1, "name", "there is no such table"),
    ('[program]\nsource = "a.cl"', 1, "program", "under [[program]]"),
    ('\nprogram = "a.cl"', 2, "program", "under [[program]]"),
    ('\ndefaults = "x"\n[[program]]\nsource = "a.cl"', 2, "defaults", "as a table"),
    ('[defaults]\nname = "x"\n[[program]]\nsource = "a.cl"\nname = "y"', 2, "name", "there is no such field"),
    ('[[program]]\nname = "x"\n[[program]]\nsource = "a.cl"', 1, "source", "needs a source"),
    ('[[program]]\nname = "x"\nsource = ""', 3, "source", "needs a source"),
    ("[[program]]\nsource = 3", 2, "source", "needs a source"),
    ('[[program]]\nsource = "*\\u0000.cl"', 2, "source", "needs a source"),
    ('[[program]]\nsource = "none/*.cl"', 2, "source", "no file fits 'none/*.cl'"),
    ('[[program]]\nsource = "k/e.cl.txt"', 2, "source", "not OpenCL C (.cl), "),
    ('[[program]]\nsource = "*.cl"\nname = "x"', 3, "name", "the 2 files of the glob"),
    (
        '[[program]]\nsource = "a.cl"\noptions = []\n[defaults]\noptions = [1]',
        5, "options", "a list of texts",
    ),
    ('[[program]]\nsource = "a.cl"\n  include = ["a.cl"]', 3, "include", "is not a directory"),
    (
        '[defaults]\ninclude = ["none"]\n[[program]]\nsource = "a.cl"\ninclude = ["inc"]',
        2, "include", "is not a directory",
    ),
    ('[[program]]\nsource = "a.cl"\n[program.defines]\nN = 1979-05-27', 3, "defines", "text or a number"),
    ('[[program]]\nsource = "a.cl"\n[program.variants]\nN = []', 3, "variants", "give 'N' a list of values"),
    (
        '[[program]]\nsource = "a.cl"\noptions = []\n[[ program ]] # two\nsource = "b.cl"\noptions = 1',
        6, "options", "a list of texts",
    ),
    ("\nprogram = [{ source = 3 }]", 2, "source", "needs a source"),
    ('# one\nprogram = [{ source = "a.cl", options = 3 }]', 2, "options", "a list of texts"),
    (
        '[[program]]\nsource = "a.cl"\nname = """\n\u2028\noptions"""\noptions = 1',
        6, "options", "a list of texts",
    ),
    *((f'[[program]]\nsource = "a.cl"\n{line}', 3, re.split(r"[ .]", line)[0], why)
      for line, why in _FIELDS_WRONG.items()),
]  # fmt: skip


def test_a_glob_does_not_walk_a_disk(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that matches more files and directories than any project has fails only its own program."""
    monkeypatch.setattr("gpucache.manifest._MAX_ENTRIES", 2)
    for pattern in ("**/*.cl", "*/*.cl", "k/**"):
        far, near = read(f'[[program]]\nsource = "{pattern}"\n[[program]]\nsource = "a.cl"')
        assert far.program.name == pattern and not near.problem
        assert far.problem.endswith("more than 2 files may match; name the sources' directory")
        assert "line 2, field 'source'" in far.problem


def test_a_pattern_follows_no_circle_of_links(read: Read, folder: Path) -> None:
    """A directory is searched once, and not again through a link in it that leads to itself."""
    (folder / "k" / "deep" / "round").symlink_to(folder, target_is_directory=True)
    names = [spec.program.name for spec in read('[[program]]\nsource = "**/*.cl"')]
    assert names == ["a.cl", "b.cl", "k/c.cl", "k/deep/f.cl"]


def test_a_deep_pattern_is_refused(read: Read) -> None:
    """Each part takes a Python call."""
    with pytest.raises(ManifestError, match="at most 100 parts"):
        read(f'[[program]]\nsource = "{"k/../" * 2000}*.cl"')


@pytest.mark.parametrize(
    ("text", "line", "field", "why"),
    _MISTAKES,
    ids=[f"{field}-{number}" for number, (_, _, field, _) in enumerate(_MISTAKES)],
)
def test_a_mistake_is_told_with_its_place(
    text: str, line: int, field: str, why: str, read: Read, folder: Path
) -> None:
    """Each mistake gives one sentence with the file, the line and the field."""
    with pytest.raises(ManifestError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'gpucache.toml'}, line {line}, field {field!r}: ")
    assert why in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[program", "is not TOML"),
        ('[[program]]\nsource = "a.cl"\nsource = "b.cl"', "is not TOML"),
        ("x = " + "9" * 5000, "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
        ("", "names no program; add a [[program]] table with a source"),
        ("program = []", "names no program"),
    ],
)
def test_a_file_that_is_no_manifest_is_told(text: str, why: str, read: Read, folder: Path) -> None:
    """A file that is not TOML, or names no program, is reported with its name."""
    with pytest.raises(ManifestError) as caught:
        read(text)
    assert str(caught.value).startswith(f"{folder / 'gpucache.toml'} ")
    assert why in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A manifest that is missing, a directory, too large or not text is refused with the remedy."""
    with pytest.raises(ManifestError, match=r"there is no manifest .* name one with --manifest"):
        read_manifest(tmp_path / "none.toml")
    with pytest.raises(SourceError, match="cannot be read"):
        read_manifest(tmp_path)
    path = tmp_path / "gpucache.toml"
    path.write_bytes(b"# \xff")
    with pytest.raises(ManifestError, match="not UTF-8 text; save it as UTF-8"):
        read_manifest(path)
    path.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    with pytest.raises(ManifestError, match=r"larger than a manifest can be .*; split it"):
        read_manifest(path)


def test_a_missing_source_is_an_error_of_the_source(read: Read) -> None:
    """A source that is not there is reported as such."""
    with pytest.raises(SourceError, match=r"no source .*none\.cl"):
        read('[[program]]\nsource = "none.cl"')


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(
            char if char.isalnum() and char.isascii() else f"\\U{ord(char):08x}" for char in value
        )
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())} }}"
    return str(value)


_SCALAR = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["a.cl", "*.cl", "**", "[", "inc", "../", ".", "1979-05-27T07:32:00Z"]),
)
_VALUE: st.SearchStrategy[Any] = st.recursive(
    _SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_FIELD = st.sampled_from([*sorted(FIELDS), "other"])
_TABLE = st.dictionaries(_FIELD, _VALUE, max_size=4)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest to be written over and over, next to one source and one directory."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a.cl").write_text("//", encoding="utf-8")
    (folder / "inc").mkdir()
    return folder / "gpucache.toml"


@given(defaults=_VALUE | _TABLE, program=_TABLE, sound=st.booleans())
def test_any_values_are_read_or_told(
    defaults: object, program: dict[str, object], sound: bool, fuzzed: Path
) -> None:
    """Any manifest is read, or refused in one sentence."""
    if sound:
        program = {**program, "source": "a.cl"}
    lines = [f"{field} = {_toml(value)}" for field, value in program.items()]
    text = "\n".join([f"defaults = {_toml(defaults)}", "[[program]]", *lines])
    fuzzed.write_text(text, encoding="utf-8")
    try:
        specs = read_manifest(fuzzed)
    except (ManifestError, SourceError) as error:
        assert "\n" not in str(error)
    else:
        assert all(isinstance(option, str) for spec in specs for option in spec.options)


@given(text=st.text(alphabet='[]{}=",.#\n program defaults source \\x', max_size=60))
def test_any_text_is_read_or_told(text: str, fuzzed: Path) -> None:
    """Any text is read as a manifest, or refused in one sentence."""
    fuzzed.write_text(text, encoding="utf-8")
    try:
        read_manifest(fuzzed)
    except (ManifestError, SourceError) as error:
        assert str(error)
