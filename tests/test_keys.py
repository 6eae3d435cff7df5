"""Cache keys: everything that could change an artifact changes the key, and nothing else does."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.keys import (
    Closure,
    Difference,
    Include,
    KeyInputs,
    cache_key,
    difference,
    format_local_size,
    key_fields,
    located_fields,
    source_digest,
)
from gpucache.model import (
    ArtifactKind,
    BuildRequest,
    CacheKey,
    Checks,
    KeyField,
    Language,
    Program,
    Target,
    Toolchain,
)

_FIELDS = (("platform name", "P"), ("driver version", "1.0"), ("driver UUID", "00ff"))
_REQUEST = BuildRequest(
    program=Program("scale", Language.OPENCL_C, b"kernel void\nscale() {}"),
    target=Target("opencl", "p/d"),
    name_expressions=("f<int>",),
)
_CLOSURE = Closure((Include("a.h", "aa"), Include("b.h", None)), resolution="r0")
_INPUTS = KeyInputs(
    options=("-DA=1", "-DB=2"),
    toolchain=Toolchain("pocl", _FIELDS, ("platform name",)),
    environment=(("POCL_X", "1"),),
    local_sizes=((64,), (16, 16)),
    locations=("/src/include",),
    file_name="program.cl",
)


def make_fields(**overrides: Any) -> tuple[KeyField, ...]:
    """Fields of one build; an override replaces the part of request, program, closure or inputs it names."""

    def changed(value: Any) -> Any:
        named = {name: overrides[name] for name in overrides if hasattr(value, name)}
        change: Any = getattr(value, "_replace", partial(replace, value))
        return change(**named)

    request = changed(_REQUEST._replace(program=changed(_REQUEST.program)))
    return key_fields(request, changed(_CLOSURE), changed(_INPUTS))


def make_key(**overrides: Any) -> CacheKey:
    return cache_key(make_fields(**overrides))


def _toolchain(*fields: tuple[str, str]) -> Toolchain:
    return Toolchain("pocl", fields, ("platform name",))


DIFFERS: Mapping[str, Mapping[str, Any]] = {
    "language": {"language": Language.CUDA_CPP},
    "source": {"source": b"kernel void\nscale() { }"},
    "source without a line's end": {"source": b"kernel void scale() {}"},
    "header changed": {"includes": (Include("a.h", "ab"), Include("b.h", None))},
    "header spelled otherwise": {"includes": (Include("./a.h", "aa"), Include("b.h", None))},
    "missing header appeared": {"includes": (Include("a.h", "aa"), Include("b.h", "bb"))},
    "header gone": {"includes": (Include("a.h", "aa"),)},
    "no includes": {"includes": ()},
    "headers reached differently": {"resolution": "r1"},
    "option value": {"options": ("-DA=1", "-DB=3")},
    "option order": {"options": ("-DB=2", "-DA=1")},
    "option repeated": {"options": ("-DA=1", "-DB=2", "-DB=2")},
    "options joined": {"options": ("-DA=1 -DB=2",)},
    "no options": {"options": ()},
    "artifact kind": {"artifact_kind": ArtifactKind.PTX},
    "driver version": {"toolchain": _toolchain(_FIELDS[0], ("driver version", "1.1"), _FIELDS[2])},
    "no driver UUID": {"toolchain": _toolchain(*_FIELDS[:2])},
    "probe failed": {"toolchain": _toolchain(*_FIELDS[:2], ("driver UUID", "probe failed with -30"))},
    "environment value": {"environment": (("POCL_X", "2"),)},
    "environment name": {"environment": (("POCL_Y", "1"),)},
    "environment empty value": {"environment": (("POCL_X", ""),)},
    "environment unset": {"environment": ()},
    "name expression": {"name_expressions": ("f<long>",)},
    "no name expression": {"name_expressions": ()},
    "checks": {"checks": Checks.ASYNC},
}
SAME: Mapping[str, Mapping[str, Any]] = {
    "name": {"name": "another"},
    "line ends of the source": {"source": b"kernel void\r\nscale() {}"},
    "path": {"path": Path("elsewhere", "scale.cl")},
    "where headers lie": {"files": ("elsewhere/a.h",)},
    "variant's name": {"variant": "A=1"},
    "current directory": {"cwd": "/elsewhere", "searches_cwd": True},
    "options as given": {"include_dirs": ("/elsewhere",)},
    "places": {"locations": ("/elsewhere",), "file_name": "other.cl"},
    "local size": {"local_sizes": ((64,), (16, 8))},
    "no local sizes": {"local_sizes": ()},
    "what identifies a toolchain": {"toolchain": _INPUTS.toolchain._replace(identity=())},
}


@pytest.mark.parametrize("change", DIFFERS)
def test_what_could_change_the_artifact_changes_the_key(change: str) -> None:
    """Every input of a build that reaches the compiler has its part in the key."""
    assert make_key(**DIFFERS[change]) != make_key()


def test_no_two_changes_share_a_key() -> None:
    keys = [make_key(**change) for change in DIFFERS.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("change", SAME)
def test_what_cannot_change_the_artifact_leaves_the_key(change: str) -> None:
    """Inputs that the compiler does not get, and the declared local sizes, do not change the portable key."""
    assert make_key(**SAME[change]) == make_key()


@pytest.mark.parametrize("change", DIFFERS)
def test_every_changed_key_has_a_difference_to_show(change: str) -> None:
    """If keys differ, some field does, so a miss is never explained by a hash alone."""
    assert difference(make_fields(), make_fields(**DIFFERS[change]))


def test_fields_stand_in_the_documented_order() -> None:
    """The readable fields come in the order in which they are hashed."""
    assert [item.label for item in make_fields()] == [
        "language",
        "source",
        "include a.h",
        "include b.h",
        "resolution of includes",
        "option",
        "option",
        "artifact kind",
        "platform name",
        "driver version",
        "driver UUID",
        "environment POCL_X",
        "name expression",
    ]


def test_a_header_that_is_nowhere_says_so() -> None:
    """A name that resolved nowhere is a separate field, not an empty one."""
    assert KeyField("include b.h", "not found") in make_fields()


def test_the_key_is_stable() -> None:
    """The framing and the hash do not change by accident: caches on disk depend on them."""
    key = cache_key([KeyField("language", "opencl-c"), KeyField("source", "caf\u00e9")])
    assert key.hex == "4d46e7acb47ed9d1b16a1adbb177b4eaf37172f7487e291dae4e5e0712893fde"
    assert key.short == key.hex[:12]


_TEXT = st.text(max_size=6)
_SOME_FIELDS = st.lists(st.builds(KeyField, _TEXT, _TEXT), max_size=4)


@given(_SOME_FIELDS, _SOME_FIELDS)
def test_different_fields_have_different_keys(left: list[KeyField], right: list[KeyField]) -> None:
    """Keys are equal exactly if the fields are."""
    assert (cache_key(left) == cache_key(right)) == (left == right)


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8), st.data())
def test_bytes_cannot_move_between_fields(label: str, value: str, data: st.DataObject) -> None:
    """The same characters divided differently over label, value and fields give another key."""
    whole = label + value
    cut = data.draw(st.integers(0, len(whole)).filter(lambda place: place != len(label)))
    keys = {
        cache_key([KeyField(label, value)]),
        cache_key([KeyField(whole[:cut], whole[cut:])]),
        cache_key([KeyField(label, value), KeyField("", "")]),
        cache_key([KeyField("", label), KeyField("", value)]),
        cache_key([KeyField(whole, "")]) if cut != len(whole) else None,
    }
    assert len(keys) == 5


@given(st.text(alphabet=st.characters(), max_size=5), st.text(alphabet=st.characters(), max_size=5))
def test_undecodable_names_have_keys_of_their_own(left: str, right: str) -> None:
    """Any text has a key, also with escaped bytes, and no other text has the same."""
    assert (cache_key([KeyField("x", left)]) == cache_key([KeyField("x", right)])) == (left == right)


def test_escaped_bytes_are_not_the_character_they_spell() -> None:
    """Undecodable bytes do not collide with the character that they would decode to."""
    escaped = "".join(chr(0xDC00 + byte) for byte in "\u00e9".encode())
    assert cache_key([KeyField("x", escaped)]) != cache_key([KeyField("x", "\u00e9")])


def test_a_located_key_holds_the_places() -> None:
    """The located key adds directories and file name, and so differs from the portable one and by place."""
    fields = make_fields()
    located = located_fields(fields, _INPUTS)
    assert located == (
        *fields,
        KeyField("searched directory", "/src/include"),
        KeyField("file name", "program.cl"),
    )
    moved = located_fields(fields, _INPUTS._replace(locations=("/moved/include",)))
    renamed = located_fields(fields, _INPUTS._replace(file_name="other.cl"))
    assert len({cache_key(fields), cache_key(located), cache_key(moved), cache_key(renamed)}) == 4


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([("a", "1")], [("a", "1")], ()),
        ([("a", "1"), ("b", "2")], [("a", "1"), ("b", "3")], (Difference("b", "2", "3"),)),
        ([("a", "1")], [], (Difference("a", "1", None),)),
        ([], [("a", "1")], (Difference("a", None, "1"),)),
        (
            [("o", "-DA"), ("o", "-DB")],
            [("o", "-DB")],
            (Difference("o", "-DA -DB", "-DB", (("-DA", "-DB"), ("-DB",))),),
        ),
        (
            [("o", "A"), ("o", "B")],
            [("o", "B"), ("o", "A")],
            (Difference("o", "A B", "B A", (("A", "B"), ("B", "A"))),),
        ),
        ([("o", "A"), ("o", "B")], [("o", "A B")], (Difference("o", "A B", "A B", (("A", "B"), ("A B",))),)),
        (
            [("b", "1"), ("a", "1")],
            [("c", "1"), ("a", "2"), ("b", "2")],
            (Difference("b", "1", "2"), Difference("a", "1", "2"), Difference("c", None, "1")),
        ),
    ],
)
def test_differences_are_named_by_label(
    left: list[tuple[str, str]], right: list[tuple[str, str]], expected: tuple[Difference, ...]
) -> None:
    """A difference names each label whose values differ, in the left order, with both sides."""
    assert difference([KeyField(*pair) for pair in left], [KeyField(*pair) for pair in right]) == expected


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        (["-w", "-DN=4", "-O1"], ["-w", "-DN=8", "-O1"], ("-DN=4", "-DN=8")),
        (["-w", "-DN=4"], ["-w"], ("-DN=4", None)),
        (["-w"], ["-w", "-w"], (None, "-w")),
        (["-DA", "-DB"], ["-DB", "-DA"], ("-DA -DB", "-DB -DA")),
        ([""], ["x"], ("", "x")),
    ],
)
def test_what_is_on_both_sides_is_left_out(
    left: list[str], right: list[str], apart: tuple[str | None, str | None]
) -> None:
    """Of many options only differing ones are reported; if only the order differs, all of them."""
    (found,) = difference(
        [KeyField("option", one) for one in left], [KeyField("option", one) for one in right]
    )
    assert found.apart() == apart


def test_of_instruction_sets_those_on_one_side_are_told() -> None:
    """They are one value of many words."""
    assert Difference("CPU features", "avx sse4_2 sse4a", "avx sse4_2").apart() == ("sse4a", None)
    assert Difference("device name", "a b", "a c").apart() == ("a b", "a c")


@pytest.mark.parametrize(("size", "text"), [((64,), "64"), ((16, 16), "16x16"), ((4, 4, 4), "4x4x4")])
def test_local_sizes_are_written_as_people_do(size: tuple[int, ...], text: str) -> None:
    """A local size is its extents joined by x."""
    assert format_local_size(size) == text


def test_texts_that_look_alike_have_keys_of_their_own() -> None:
    """A lone carriage return is not a line end, and an undecodable byte equals only itself."""
    assert len({source_digest(source) for source in (b"a\rb", b"ab", b"a\nb")}) == 3
    values = ("\udc80", "\udc81", "?", "\ufffd", "")
    assert len({cache_key([KeyField("option", value)]) for value in values}) == len(values)
