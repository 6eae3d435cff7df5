"""Differences between key fields in words, and how much each one weighs."""

from collections.abc import Sequence

import pytest

from gpucache.engine.explain import phrases, weight
from gpucache.keys import NOT_FOUND, SOURCE_NAME, Difference, difference
from gpucache.model import KeyField

_OLD, _NEW = "0" * 64, "1" * 64


@pytest.mark.parametrize(
    ("label", "left", "right", "words"),
    [
        ("source", _OLD, _NEW, ["the source changed"]),
        ("include a.h", _OLD, _NEW, ["the header a.h changed"]),
        ("include a.h", None, _NEW, ["it now includes a.h"]),
        ("include a.h", _OLD, None, ["it no longer includes a.h"]),
        ("include a.h", NOT_FOUND, _NEW, ["a.h now exists where it was not found before"]),
        ("include a.h", _OLD, NOT_FOUND, ["a.h is no longer found"]),
        ("resolution of includes", _OLD, _NEW, ["the same headers are reached another way"]),
        ("searched directory", "/a", "/b", ["it contains paths and was built in other directories"]),
        ("option", "-DN", "-DN=8", ["the define N: (no value) -> 8"]),
        ("driver version", "1.0", "1.1", ["driver 1.0 -> 1.1"]),
        ("platform version", "1", "2", ["platform version 1 -> 2"]),
        ("NVRTC version", "12.9", "13.0", ["NVRTC 12.9 -> 13.0"]),
        ("NVRTC build id", "a", "b", ["another build of NVRTC"]),
        ("driver UUID", "a", "b", ["another build of the driver"]),
        ("CPU features", "avx", "avx avx2", ["the CPU has other instruction sets"]),
        ("device name", "one", "other", ["another device: one -> other"]),
        ("platform name", "one", "other", ["another platform: one -> other"]),
        ("environment A", None, "1", ["the environment variable A: none -> 1"]),
        ("environment A", "1", None, ["the environment variable A: 1 -> none"]),
        ("environment A", "1", "2", ["the environment variable A: 1 -> 2"]),
        (
            "local size",
            "64",
            None,
            ["an older gpucache had local sizes in the key, which no longer belong there"],
        ),
        (
            "name of the source",
            None,
            "a.cu",
            [
                "it was kept by an older gpucache, whose keys lack the name that the program gives its "
                "source; it is compiled once more"
            ],
        ),
        (
            "name of the source",
            "a.cu",
            "b.cu",
            ["the program calls its source b.cu, which it called a.cu"],
        ),
        ("current directory", "/a", "/b", ["it contains the current directory, which was /a"]),
        ("name expression", None, "f<int>", ["name expression none -> f<int>"]),
    ],
)
def test_a_difference_in_words(label: str, left: str | None, right: str | None, words: list[str]) -> None:
    """Each kind of field is phrased as a person would say it, with both values if they mean something."""
    assert phrases([Difference(label, left, right)]) == words


def test_a_build_that_was_asked_for_in_another_way_is_told_in_one_sentence() -> None:
    """Its consequences are left out, and an older version's entry is not mistaken for it."""
    itself, ours = "of 'gpucache run', whose keys", "of warm or the library, whose keys"
    name = Difference("name of the source", None, "a.cu")
    options = Difference("option", "-DA=1", "-arch=sm_90 -DA=1", (("-DA=1",), ("-arch=sm_90", "-DA=1")))
    older = Difference("option", "-arch=sm_80", "-arch=sm_90", (("-arch=sm_80",), ("-arch=sm_90",)))
    back = [Difference(one.label, one.right, one.left, one.values()[::-1]) for one in (options, name)]
    for differences, told in (([options, name], ours), (back, itself)):
        (phrase,) = phrases(differences)
        assert told in phrase
    assert any("older gpucache" in phrase for phrase in phrases([older, name]))


def test_a_build_in_another_language_is_not_said_to_be_kept_for_another_way_of_asking() -> None:
    """A CUDA program with the name of an OpenCL one differs first of all in the language."""
    told = phrases(
        [
            Difference("language", "opencl-c", "cuda-c++"),
            Difference("option", "-DN=3", "-arch=sm_90", (("-DN=3",), ("-arch=sm_90",))),
            Difference(SOURCE_NAME, None, "f"),
        ]
    )
    assert told[0] == "language opencl-c -> cuda-c++" and len(told) > 1


def test_a_header_that_has_longer_names_as_well_is_told_once() -> None:
    """One file with three names in a closure is one change; another file of that name is its own change."""
    names = ("sub/a.h", "inc/sub/a.h", "/far/inc/sub/a.h", "/far/b.h")
    changed = [Difference(f"include {name}", _OLD, _NEW) for name in names]
    assert phrases(changed) == ["the header sub/a.h changed", "the header /far/b.h changed"]
    other = Difference("include /near/sub/a.h", _OLD, "2" * 64)
    assert "the header /near/sub/a.h changed" in phrases([*changed, other])


def _options(before: Sequence[str], now: Sequence[str]) -> tuple[Difference, ...]:
    return difference(*([KeyField("option", option) for option in side] for side in (before, now)))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (["-DN=4", "-DA"], ["-DN=8", "-DA"], ["the define N: 4 -> 8"]),
        (["-DA"], ["-DA", "-O3"], ["the option -O3 is new"]),
        (["-DA", "-O3"], ["-DA"], ["the option -O3 is gone"]),
        (["-DA", "-DB"], ["-DB", "-DA"], ["the options are in another order"]),
        (["-DN=4", "-DN=8"], ["-DN=8", "-DN=4"], ["the options are in another order"]),
        (
            ["-DA", "-DB", "-DN=4"],
            ["-DB", "-DN=8", "-DA"],
            ["the define N: 4 -> 8", "the options are in another order"],
        ),
        (["-DS=a -b"], ["-DS=c -b"], ["the define S: a -b -> c -b"]),
        (["-DS=a", "-b"], ["-DS=a -b"], ["the define S: a -> a -b", "the option -b is gone"]),
        (["-DA"], ["-DA", "-DA"], ["the option -DA is given more often"]),
        (["-DA", "-DA"], ["-DA"], ["the option -DA is given less often"]),
        (["-DA"], ["-DA="], ["the define A: (no value) -> (empty)"]),
    ],
)
def test_options_are_told_one_by_one(before: Sequence[str], now: Sequence[str], words: list[str]) -> None:
    """Every option is shown as given, with its white space and hyphens, and so is a change of order."""
    assert phrases(_options(before, now)) == words


def test_another_order_is_the_lightest_difference() -> None:
    """The same options in another order are nearer than one other option, however many there are."""
    order = weight(_options(["-DA", "-DT=float"], ["-DT=float", "-DA"]))
    assert 0 < order < weight(_options(["-DA", "-DT=float"], ["-DA", "-DT=double"]))
    assert weight(_options(["-DA"], ["-DB"])) < weight(_options(["-DA"], ["-DB", "-DC", "-DE"]))


def test_what_follows_from_a_header_is_not_told() -> None:
    """The resolution of includes changes with every header, so next to one it is left out."""
    header = Difference("include a.h", _OLD, _NEW)
    resolution = Difference("resolution of includes", _OLD, _NEW)
    assert phrases([resolution, header]) == ["the header a.h changed"]


def test_the_weightiest_comes_first() -> None:
    """Another device is reported before a changed source, a source before an option, versions last."""
    differences = [
        Difference("driver version", "1", "2"),
        Difference("option", None, "-DA"),
        Difference("source", _OLD, _NEW),
        Difference("device name", "one", "other"),
    ]
    assert phrases(differences) == [
        "another device: one -> other",
        "the source changed",
        "the option -DA is new",
        "driver 1 -> 2",
    ]


def test_a_shadowing_header_is_told_instead_of_a_changed_one() -> None:
    """If it is known which file shadows which, that sentence replaces the header's."""
    changed = [Difference("include a.h", _OLD, _NEW), Difference("include b.h", _OLD, _NEW)]
    assert phrases(changed, {"a.h": "a new a.h"}) == ["a new a.h", "the header b.h changed"]


def test_an_update_of_a_driver_is_nearer_than_another_device() -> None:
    """All versions that an update moves weigh less than one other device, an option less than a source."""
    labels = ("driver version", "platform version", "device version", "driver UUID")
    update = [Difference(label, "1", "2") for label in labels]
    assert weight(update) < weight([Difference("device name", "one", "other")])
    assert weight([Difference("option", "-DA", "-DB")]) < weight([Difference("source", _OLD, _NEW)])
    assert weight([Difference("resolution of includes", _OLD, _NEW)]) == weight([]) == 0
