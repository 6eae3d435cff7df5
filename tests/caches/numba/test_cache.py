"""Files laid by the rules of Numba's cache, and what is said of those that break them."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.numba.build import OBJECT, VERSION, put
from tests.caches.opened import kinds, only, opened

SYSTEM = of_others("numba")


def test_a_function_says_its_name_versions_and_numbas(tmp_path: Path) -> None:
    """From the names of its files and the first pickle."""
    put(tmp_path, versions=3)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert (entry.program, entry.fields) == ("module.scale", (("versions", "3"),))
    assert entry.toolchain == (("Numba", VERSION),)
    assert not cache.check(entry).findings and cache.extract(entry) == OBJECT


def _data(index: Path) -> Path:
    return index.with_suffix(".1.nbc")


def _index_cut(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:-9])


def _index_empty(index: Path) -> None:
    index.write_bytes(b"")


def _index_other(index: Path) -> None:
    index.write_bytes(b"\xff" * 9)


def _data_cut(index: Path) -> None:
    _data(index).write_bytes(OBJECT[:-9])


def _data_other(index: Path) -> None:
    _data(index).write_bytes(b"\xff" * 9)


def _data_gone(index: Path) -> None:
    _data(index).unlink()


def _index_gone(index: Path) -> None:
    index.unlink()


def _data_of_another(index: Path) -> None:
    _data(index).write_bytes(pickle.dumps(("shift", "object", b"")))


def _bitcode_cut(index: Path) -> None:
    _data(index).write_bytes(pickle.dumps(("scale", "object", b"BC\xc0\xde" + bytes(9))))


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_index_cut, FindingKind.TRUNCATED, "fails at every start"),
        (_index_empty, FindingKind.TRUNCATED, "fails at every start"),
        (_index_other, FindingKind.CORRUPT, "fails at every start"),
        (_data_cut, FindingKind.TRUNCATED, "fails at every start"),
        (_data_other, FindingKind.CORRUPT, "fails at every start"),
        (_data_gone, FindingKind.TRUNCATED, "compiles it again"),
        (_index_gone, FindingKind.ORPHAN, "compiles it again"),
        (_data_of_another, FindingKind.MISLABELLED, "another function"),
        (_bitcode_cut, FindingKind.CORRUPT, "fails at every start"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], None], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes the function's files, and leaves the others."""
    other, index = put(tmp_path, 1), put(tmp_path)
    damage(index)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if Path(one.path).name.startswith("module.scale-1."))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    if kind.wrong:
        assert cache.repair(checked, entry).findings[0].repaired
        assert sorted(one.suffix for one in other.parent.iterdir()) == [".nbc", ".nbi"]


@pytest.mark.parametrize("name", ["scale", "Kind.<locals>.scale", "<numba.np.ufunc.wrappers object at 0x7f>"])
def test_the_names_that_numba_gives_a_function_are_its_own(name: str, tmp_path: Path) -> None:
    """That of a method or a closure has its surroundings, and a ufunc's wrapper is called by its address."""
    index = put(tmp_path)
    _data(index).write_bytes(pickle.dumps((name, "object", b"")))
    for path in list(index.parent.iterdir()) if "locals" in name else ():
        data = path.read_bytes().replace(b"module.scale", b"module.Kind.locals.scale")
        path.with_name(path.name.replace("scale", "Kind.locals.scale")).write_bytes(data)
        path.unlink()
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.scan()
    assert not [one for one in cache.check(entry).findings if one.kind is FindingKind.MISLABELLED]


class _Trap:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch trapped",)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a check nor a report nor an extraction runs the code in a pickle."""
    monkeypatch.chdir(tmp_path)
    index = put(tmp_path / "cache")
    _data(index).write_bytes(pickle.dumps(_Trap()))
    cache = opened(SYSTEM, tmp_path / "cache")
    (entry,) = cache.scan()
    cache.check(entry)
    cache.report(entry)
    cache.extract(entry)
    assert not (tmp_path / "trapped").exists()


@given(st.binary(max_size=300))
def test_any_bytes_are_judged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever an index holds, a check ends with findings or without, and never with an error."""
    root = tmp_path_factory.mktemp("numba")
    put(root).write_bytes(data)
    cache = opened(SYSTEM, root)
    for entry in cache.scan():
        cache.check(entry)


def test_the_files_next_to_a_source_are_found_in_the_current_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Numba lays them without a variable; bytecode next to them is Python's, and stays."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = tmp_path / "project" / "package" / "__pycache__"
    put(place, below="")
    (place / "module.cpython-311.pyc").write_bytes(b"")
    put(tmp_path / "project" / ".venv" / "__pycache__", below="")
    monkeypatch.chdir(tmp_path / "project")
    (location,) = SYSTEM.locations({})
    assert location.root == str(place) and location.enabled
    assert not SYSTEM.locations({"NUMBA_CACHE_DIR": ""})[1:]
    cache = SYSTEM.open(location)
    (entry,) = cache.scan()
    assert not cache.check(entry).findings and not list(cache.leftovers())
    _data(Path(entry.path)).write_bytes(b"")
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED] and cache.repair(checked, entry).findings[0].repaired
    assert [path.name for path in place.iterdir()] == ["module.cpython-311.pyc"]


@pytest.mark.parametrize(
    ("below", "variable"),
    [
        (".cache/numba", "HOME"),
        (".ipython/numba_cache", "HOME"),
        ("xdg/ipython/numba_cache", "XDG_CACHE_HOME"),
    ],
)
def test_the_places_of_a_user_are_listed(
    below: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sources whose directory cannot be written, and of notebooks, whose functions have ten digits."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / below)
    environ = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    if variable == "HOME":
        del environ["XDG_CACHE_HOME"]
    (location,) = SYSTEM.locations(environ)
    assert (location.root, location.decided_by) == (str(tmp_path / below), variable)
    assert len(list(SYSTEM.open(location).scan())) == 1


def test_an_index_that_does_not_read_is_numbas_by_the_code_next_to_it(tmp_path: Path) -> None:
    """It is repaired; one without such code may be another program's, and stays."""
    for number, beside in enumerate((OBJECT, b"text")):
        root = tmp_path / str(number)
        index = put(root)
        index.write_bytes(b"\xda" + index.read_bytes()[1:])
        next(index.parent.glob("*.nbc")).write_bytes(beside)
        cache = opened(SYSTEM, root)
        entry = only(cache)
        assert kinds(cache.check(entry)) == [FindingKind.CORRUPT]
        cache.repair(cache.check(entry), entry)
        assert index.exists() is (beside is not OBJECT)
