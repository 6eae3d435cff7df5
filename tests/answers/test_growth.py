"""The growth of caches between two moments."""

from gpucache.answers.entries import NAMES_KEPT, Growth, Held, growth, joined


def test_new_and_larger_entries_count() -> None:
    """A new entry counts in full, a larger one by its growth; the rest do not count."""
    before = {"pocl": {"a": Held(10), "b": Held(20), "c": Held(5)}}
    after = {"pocl": {"a": Held(10), "b": Held(25), "d": Held(7)}}
    assert growth(before, after) == (Growth("pocl", 2, 12, ("b", "d")),)


def test_an_entry_written_anew_counts_whole() -> None:
    """The same name and size with another time is an entry of a cache that every start empties."""
    assert growth({"pocl": {"a": Held(9, 1)}}, {"pocl": {"a": Held(9, 2)}}) == (
        Growth("pocl", 1, 9, ("a",), 1),
    )


def test_a_cache_that_gained_nothing_is_left_out() -> None:
    """Removed and unchanged entries are not growth, and neither is a text of an unknown owner."""
    assert growth({"sycl": {"a": Held(1)}}, {"sycl": {}, "pocl": {"log": Held(9, text=True)}}) == ()


def test_a_cache_that_was_not_there_counts_whole() -> None:
    """The first start makes the cache itself."""
    assert growth({}, {"sycl": {"a": Held(1)}}) == (Growth("sycl", 1, 1, ("a",)),)


def test_few_names_are_kept() -> None:
    """Only some of many names are kept."""
    [one] = growth({}, {"pocl": {str(number): Held(1) for number in range(100)}})
    assert (one.entries, len(one.names)) == (100, NAMES_KEPT)


def test_runs_are_added_up_by_cache() -> None:
    """The growth of several runs is one sum for each cache."""
    runs = ((Growth("pocl", 1, 10, ("a",)),), (Growth("pocl", 2, 5, ("b",)), Growth("sycl", 1, 1, ("c",))))
    assert joined(runs) == (Growth("pocl", 3, 15, ("a", "b")), Growth("sycl", 1, 1, ("c",)))
