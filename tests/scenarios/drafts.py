"""Programs made up at random, and the changes that each of them can have, with the label of what changed."""

from collections.abc import Callable, Mapping
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
    """Headers that are there; what is included and not there resolves nowhere."""
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    local_sizes: tuple[tuple[int, ...], ...] = ()
    name_expressions: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        includes = "".join(f'#include "{name}"\n' for name in self.included)
        return f"{includes}__global__ void show(int *out) {{ *out = {self.constant}; }}\n"


Changed = tuple[Draft, str]
"""A draft after one change, and the label of what changed."""


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


def _source(random: Random, draft: Draft) -> Changed:
    return replace(draft, constant=draft.constant + 1), "source"


def _version(random: Random, draft: Draft) -> Changed:
    return replace(draft, version="1.1"), "driver version"


def _device(random: Random, draft: Draft) -> Changed:
    return replace(draft, device="another device"), "device name"


def _edited_header(random: Random, draft: Draft) -> Changed | None:
    if not draft.headers:
        return None
    name = random.choice(list(draft.headers))
    return replace(
        draft, headers={**draft.headers, name: draft.headers[name] + "// edited\n"}
    ), f"include {name}"


def _lost_header(random: Random, draft: Draft) -> Changed | None:
    if not draft.headers:
        return None
    lost = random.choice(list(draft.headers))
    kept = {name: text for name, text in draft.headers.items() if name != lost}
    return replace(draft, headers=kept), f"include {lost}"


def _new_header(random: Random, draft: Draft) -> Changed | None:
    missing = [name for name in draft.included if name not in draft.headers]
    if not missing:
        return None
    name = random.choice(missing)
    return replace(draft, headers={**draft.headers, name: "#pragma once\n"}), f"include {name}"


def _new_option(random: Random, draft: Draft) -> Changed | None:
    others = [each for each in _OPTIONS if each not in draft.options]
    if not others:
        return None
    option = random.choice(others)
    place = random.randint(0, len(draft.options))
    return replace(draft, options=(*draft.options[:place], option, *draft.options[place:])), "option"


def _lost_option(random: Random, draft: Draft) -> Changed | None:
    if not draft.options:
        return None
    place = random.randrange(len(draft.options))
    return replace(draft, options=(*draft.options[:place], *draft.options[place + 1 :])), "option"


def _repeated_option(random: Random, draft: Draft) -> Changed | None:
    if not draft.options:
        return None
    return replace(draft, options=(*draft.options, random.choice(draft.options))), "option"


def _defined_otherwise(random: Random, draft: Draft) -> Changed | None:
    changed = tuple("-DN=8" if option == "-DN=4" else option for option in draft.options)
    return None if changed == draft.options else (replace(draft, options=changed), "option")


def _other_order(random: Random, draft: Draft) -> Changed | None:
    return (
        (replace(draft, options=draft.options[1:] + draft.options[:1]), "option")
        if len(draft.options) > 1
        else None
    )


def _options_from_outside(random: Random, draft: Draft) -> Changed | None:
    if draft.implementation == "nvrtc":
        return None
    return replace(draft, environ={**draft.environ, "PYOPENCL_BUILD_OPTIONS": "-DOUTSIDE"}), "option"


def _new_variable(random: Random, draft: Draft) -> Changed:
    name = f"{_VARIABLES[draft.implementation]}NEW"
    return replace(draft, environ={**draft.environ, name: random.choice(["", "x"])}), f"environment {name}"


def _other_variable(random: Random, draft: Draft) -> Changed | None:
    if not draft.environ:
        return None
    name = random.choice(list(draft.environ))
    return replace(draft, environ={**draft.environ, name: random.choice(["", "y"])}), f"environment {name}"


def _lost_variable(random: Random, draft: Draft) -> Changed | None:
    if not draft.environ:
        return None
    lost = random.choice(list(draft.environ))
    kept = {name: value for name, value in draft.environ.items() if name != lost}
    return replace(draft, environ=kept), f"environment {lost}"


def _new_expression(random: Random, draft: Draft) -> Changed | None:
    others = [each for each in _EXPRESSIONS if each not in draft.name_expressions]
    if not others:
        return None
    expression = random.choice(others)
    return replace(draft, name_expressions=(*draft.name_expressions, expression)), "name expression"


def _lost_expression(random: Random, draft: Draft) -> Changed | None:
    if not draft.name_expressions:
        return None
    return replace(draft, name_expressions=draft.name_expressions[1:]), "name expression"


_CHANGES: tuple[Callable[[Random, Draft], Changed | None], ...] = (
    _source,
    _version,
    _device,
    _edited_header,
    _lost_header,
    _new_header,
    _new_option,
    _lost_option,
    _repeated_option,
    _defined_otherwise,
    _other_order,
    _options_from_outside,
    _new_variable,
    _other_variable,
    _lost_variable,
    _new_expression,
    _lost_expression,
)


def change(random: Random, draft: Draft) -> Changed:
    """One change that this draft can have."""
    possible = (each(random, draft) for each in random.sample(_CHANGES, len(_CHANGES)))
    return next(changed for changed in possible if changed is not None)


def made(ready: Callable[..., Prepared], draft: Draft, folder: Path) -> Prepared:
    """A draft made ready, with its headers and no others in a folder."""
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
