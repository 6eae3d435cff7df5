"""Texts that may make constants of paths, and the result for a closure."""

import sysconfig
from pathlib import Path

import pytest

from gpucache.sources import Place, SearchRule, Wanted, read_closure
from gpucache.sources.path_constants import PathConstants
from gpucache.sources.scan import scan

_NAMED = SearchRule((Place.INCLUDER, Place.DIRS), (Place.DIRS,), names_sources=True)
_MADE_UP = _NAMED._replace(names_sources=False)
_INCLUDE = '#include "h.h"\n'


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("int v = sizeof(__FILE__);", True),
        ("int v = __FILE__[3];", True),
        ('printf("%c", __FILE__[3]);', True),
        ('printf("%s", __FILE__ + 3);', True),
        ('printf("%d", length(__FILE__));', True),
        ('report("; printf(" , __FILE__ , ")");', True),
        ("report(__FILE__);", True),
        ("int v = length(__builtin_FILE());", True),
        ("int v = length(cuda::std::source_location::current().file_name());", True),
        ('printf("%s:%d", __FILE__, __LINE__);', False),
        ("printf(__FILE__);", False),
        ('printf(__FILE__ ": %d", 1);', False),
        ('printf("%s %d",\n       __FILE__,\n       __LINE__);', False),
        ('__assertfail("x", __FILE__, __LINE__, __func__, 1);', False),
        ('asm volatile("// " __FILE__ NUMBER(__LINE__) "");', False),
        ("// __FILE__\n/* sizeof(__FILE__) */", False),
        ("#include <cuda/std/source_location>\n", False),
        ("int __FILE__x, the__FILE__;", False),
    ],
)
def test_a_path_counts_unless_it_can_only_be_printed(code: str, counts: bool) -> None:
    """A path that could be computed with makes a constant; a path that is printed is in the artifact."""
    found = scan(f"void f() {{\n{code}\n}}\n".encode())
    assert bool(found.path_constants & ~PathConstants.PRINTED) == counts


@pytest.mark.parametrize(
    ("source", "header", "option", "tells", "refused"),
    [
        pytest.param(_INCLUDE, "int v = sizeof(__FILE__);", "", True, False, id="in a header"),
        pytest.param(_INCLUDE, "#define V sizeof(__FILE__)", "", False, False, id="in an unused macro"),
        pytest.param(
            _INCLUDE, "#define V sizeof(__FILE__)\n#define W V\nint v = W;", "", True, False, id="macro"
        ),
        pytest.param(
            _INCLUDE + "int v = V;", "#define V sizeof(__FILE__)", "", False, True, id="macro of a header"
        ),
        pytest.param(
            "#define V sizeof(__FILE__)\n" + _INCLUDE, "int v = V;", "", True, False, id="macro of the source"
        ),
        pytest.param(_INCLUDE, "int v = V;", "V=sizeof(__FILE__)", True, False, id="option"),
        pytest.param(_INCLUDE, "", "V=sizeof(__FILE__)", False, False, id="unused option"),
        pytest.param(
            _INCLUDE, "int f(char *s = __builtin_FILE());", "", True, True, id="caller of a function"
        ),
        pytest.param(_INCLUDE, "void f() { printf(__FILE__); }", "", False, False, id="printed"),
        pytest.param(
            "#define printf(text) sizeof(text)\n" + _INCLUDE,
            "int v = printf(__FILE__);",
            "",
            True,
            True,
            id="printed anew",
        ),
        pytest.param(
            _INCLUDE,
            "namespace mine {\nconstexpr int printf(const char *text) noexcept\n{ return text[1]; }\n"
            "int v = printf(__FILE__); }",
            "",
            True,
            True,
            id="printed by a function of its own",
        ),
        pytest.param(
            "constexpr Length fprintf{};\n" + _INCLUDE,
            "int v = fprintf(__FILE__);",
            "",
            True,
            True,
            id="printed by an object of its own",
        ),
        pytest.param(
            "namespace std { using ::printf; }\n" + _INCLUDE,
            "int printf(const char *, ...);\nvoid f() { if (1) { printf(__FILE__); } }",
            "",
            False,
            False,
            id="printed by the function that is taken over",
        ),
        pytest.param("int v = sizeof(__FILE__);", "", "", False, True, id="in the source"),
        pytest.param(_INCLUDE, "int v = sizeof(__BASE_FILE__);", "", False, True, id="of the source"),
        pytest.param(_INCLUDE, "int v = sizeof(__FILE_NAME__);", "", False, True, id="last part"),
        pytest.param(_INCLUDE, "int v = sizeof(__PRETTY_FUNCTION__);", "", False, True, id="names of types"),
    ],
)
def test_what_a_constant_is_made_of_ties_to_a_place_or_to_one_build(
    tmp_path: Path, source: str, header: str, option: str, tells: bool, refused: bool
) -> None:
    """A header's path ties to its place; the source's name is refused if the compiler makes it up."""
    (tmp_path / "h.h").write_text(header, encoding="ascii")
    for rule in (_NAMED, _MADE_UP):
        closure = read_closure(
            Wanted(
                source.encode(),
                rule=rule,
                include_dirs=[str(tmp_path)],
                definitions=[option] if option else [],
            )
        )
        assert closure.tells_places == tells
        assert (closure.uncacheable is not None) == (refused and rule is _MADE_UP), closure.uncacheable


_WITHOUT_EFFECT = PathConstants.TYPES | PathConstants.PRINTED | PathConstants.ASSERTS


@pytest.mark.parametrize(
    ("source", "header", "option", "tells"),
    [
        ("int v;", "", "", False),
        ("void f() { assert(1); }", "", "", True),
        ("#define S(x) #x\nint v = sizeof(S(printf(__FILE__)));", "", "", True),
        (_INCLUDE, "inline void f() { assert(1); printf(__FILE__); }", "", False),
        ("#define __assertfail(e, f, ...) g(f)\n" + _INCLUDE, "inline void f() { assert(1); }", "", True),
        (_INCLUDE + "int v = T(SAY);", "#define SAY printf(__FILE__)", "", True),
        (_INCLUDE, "inline void f() { g(__PRETTY_FUNCTION__); }", "", False),
        ("int v = V;", "", "V=sizeof(__FILE__)", True),
        ("void f() { CHECK; }", "", "CHECK=assert(1)", True),
    ],
)
def test_whether_a_source_tells_its_name(
    tmp_path: Path, source: str, header: str, option: str, tells: bool
) -> None:
    """For NVRTC: a source's prints may become texts, and no types are named after files."""
    (tmp_path / "h.h").write_text(header, encoding="ascii")
    definitions = [option] if option else []
    folders = [str(tmp_path)]
    closure = read_closure(
        Wanted(source.encode(), rule=_NAMED, include_dirs=folders, definitions=definitions)
    )
    assert closure.tells_name == tells


def test_headers_of_the_cuda_toolkit_make_no_constants_of_their_places() -> None:
    """For all of them, with CUB, Thrust and libcu++: programs that include them may hit from any place."""
    include = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include")
    if not (include / "cccl").is_dir():
        pytest.skip("nvidia-cuda-cccl is not installed")
    likely = [path for path in include.rglob("*") if path.is_file() and b"FILE__" in path.read_bytes()]
    likely += [include / "cccl/cuda/std/source_location", include / "cccl/cuda/std/__exception/cuda_error.h"]
    assert len(likely) > 10
    for path in likely:
        found = scan(path.read_bytes())
        assert not found.path_constants & ~_WITHOUT_EFFECT, path
        assert not found.path_macros, path
