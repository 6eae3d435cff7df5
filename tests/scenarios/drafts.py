"""Random programs, and the changes that each of them can have, with the label of the change."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from gpucache.engine.prepare import Prepared

_VARIABLES = {"nvrtc": "NVRTC_", "pocl": "POCL_", "intel": "CL_CONFIG_"}
_OPTIONS = ("-DN=4", "-DM", "-DT=unsigned int", "-w", "-cl-fast-relaxed-math", "-DF(x)=x", "-Dn=4")
_SIZES = ((64,), (16, 16), (8, 8, 4), (128,))
_EXPRESSIONS = ("f<int>", "f<float>", "g<1, 2>", "&h")


@dataclass(frozen=True, slots=True)
class Draft:
    """A program and everything that it is built with."""

    implementation: str
    name: str = "show"
    version: str = "1.0"
    device: str = "a device"
    constant: int = 7
    included: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Existing headers; an include of any other resolves nowhere."""
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    local_sizes: tuple[tuple[int, ...], ...] = ()
    name_expressions: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        includes = "".join(f'#include "{name}"\n' for name in self.included)
        return f"{includes}__global__ void show(int *out) {{ *out = {self.constant}; }}\n"


Options = tuple[str, ...]
Changed = tuple[Draft, str]
"""A draft after one change, and the label of the change."""


def drawn(random: Random) -> Draft:
    """A program and a way to build it."""
    implementation = random.choice(list(_VARIABLES))
    names = tuple(f"{name}.h" for name in random.sample("abcdef", random.randint(0, 4)))
    return Draft(
        implementation=implementation,
        constant=random.randint(0, 99),
        included=names,
        headers={name: _header(random, names) for name in names if random.random() < 0.8},
        options=tuple(random.sample(_OPTIONS, random.randint(0, 4))),
        environ={
            f"{_VARIABLES[implementation]}{name}": "x" for name in random.sample("PQR", random.randint(0, 2))
        },
        local_sizes=tuple(random.sample(_SIZES, random.randint(0, 2))),
        name_expressions=tuple(random.sample(_EXPRESSIONS, random.randint(0, 3))),
    )


def _header(random: Random, names: tuple[str, ...]) -> str:
    """A header that may include the others, and itself."""
    others = random.sample(names, random.randint(0, len(names)))
    return "#pragma once\n" + "".join(f'#include "{name}"\n' for name in others)


def _possible(random: Random, draft: Draft) -> Iterator[Changed]:
    """Every kind of change that this draft can have, each drawn once."""
    yield replace(draft, constant=draft.constant + 1), "source"
    yield replace(draft, version="1.1"), "driver version"
    yield replace(draft, device="another device"), "device name"
    for name in _some(random, draft.headers):
        edited = {**draft.headers, name: draft.headers[name] + "// edited\n"}
        yield replace(draft, headers=edited), f"include {name}"
    for lost in _some(random, draft.headers):
        yield replace(draft, headers=_without(draft.headers, lost)), f"include {lost}"
    for name in _some(random, {*draft.included} - {*draft.headers}):
        yield replace(draft, headers={**draft.headers, name: "#pragma once\n"}), f"include {name}"
    for option in _options(random, draft.options):
        yield replace(draft, options=option), "option"
    if draft.implementation != "nvrtc":
        outside = {**draft.environ, "PYOPENCL_BUILD_OPTIONS": "-DOUTSIDE"}
        yield replace(draft, environ=outside), "option"
    for name, value in (
        (f"{_VARIABLES[draft.implementation]}NEW", "x"),
        *((one, "y") for one in _some(random, draft.environ)),
    ):
        environ = {**draft.environ, name: random.choice(["", value])}
        yield replace(draft, environ=environ), f"environment {name}"
    for lost in _some(random, draft.environ):
        yield replace(draft, environ=_without(draft.environ, lost)), f"environment {lost}"
    for expression in _some(random, {*_EXPRESSIONS} - {*draft.name_expressions}):
        yield replace(draft, name_expressions=(*draft.name_expressions, expression)), "name expression"
    if draft.name_expressions:
        yield replace(draft, name_expressions=draft.name_expressions[1:]), "name expression"


def _options(random: Random, given: Options) -> Iterator[Options]:
    """One more, one less, one repeated, another value, another order."""
    place = random.randint(0, len(given))
    for option in _some(random, {*_OPTIONS} - {*given}):
        yield (*given[:place], option, *given[place:])
    if given:
        place = random.randrange(len(given))
        yield (*given[:place], *given[place + 1 :])
        yield (*given, random.choice(given))
    if "-DN=4" in given:
        changed = tuple("-DN=8" if option == "-DN=4" else option for option in given)
        yield changed
    if len(given) > 1:
        yield given[1:] + given[:1]


def _some(random: Random, values: Iterable[str]) -> list[str]:
    return random.sample(found := sorted(values), min(1, len(found)))


def _without(values: Mapping[str, str], lost: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != lost}


def change(random: Random, draft: Draft) -> Changed:
    return random.choice([*_possible(random, draft)])


def made(ready: Callable[..., Prepared], draft: Draft, folder: Path) -> Prepared:
    """A draft made ready, with its headers and no others in a directory."""
    for path in folder.glob("*.h"):
        path.unlink()
    folder.mkdir(exist_ok=True)
    for name, text in draft.headers.items():
        (folder / name).write_text(text, encoding="ascii")
    return ready(
        draft.source,
        implementation=draft.implementation,
        name=draft.name,
        version=draft.version,
        device=draft.device,
        options=draft.options,
        include_dirs=[folder],
        environ=draft.environ,
        local_sizes=draft.local_sizes,
        name_expressions=draft.name_expressions,
    )
