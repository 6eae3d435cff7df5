"""Bad input of every kind, each with its exit code and its sentence: one error, one code, one voice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROWS = """
2 warm k.cl --local-size 99999999 | 99999999 is too large; no device takes more than 99999
2 warm k.cl --local-size 16xx | '16xx' is not a local size; write one to three numbers, such as 64 or 16x16
2 warm k.cl --timeout abc | 'abc' is not a number of at least 0.1
2 warm k.cl --timeout inf | 'inf' is not a number of at least 0.1
2 warm k.cl --jobs many | 'many' is not a whole number from 1 to 1024
2 warm k.cl --jobs 1e3 | '1e3' is not a whole number from 1 to 1024
2 bench k.cl --runs 1.5 | '1.5' is not a whole number from 1 to 1000
2 bench k.cl --fail-below -1 | '-1' is not a number above 0
2 bench k.cl --against nothing | 'nothing' is not one of
2 bench k.cl --export out.txt | --export writes .json, .md, .png, .svg or .pdf
2 bench k.cl --export plain/out.json | cannot be written (Not a directory); name another file
2 warm k.cl --check --device-profile k.cl | k.cl is not a device profile (it is not JSON)
2 warm k.cl --check --device-profile {} | {} is not a device profile (it is not of schema 1)
2 warm k.cl --check --device-profile none.json | none.json cannot be read (No such file or directory)
2 warm k.cl --check --device-profile loop | profile loop cannot be read (Too many levels of symbolic links)
2 devices --compare k.cl none.json | k.cl is not a device profile (it is not JSON)
2 devices --save adir | adir is a directory, not a file; see 'gpucache devices --help'
2 warm loop | the source 'loop' cannot be read (Too many levels of symbolic links); fix its links
2 warm loop/k.cl | the source 'loop/k.cl' cannot be read (Too many levels of symbolic links)
2 warm k.cl -I loop | loop cannot be read (Too many levels of symbolic links); fix its links
2 warm k.cl -I none | there is no directory none; check its path
5 --root plain warm k.cl | plain is not a directory; name your own directory with --root or GPUCACHE_DIR
2 warm --manifest loop | the manifest loop cannot be read (Too many levels of symbolic links)
2 warm --manifest empty.toml | empty.toml names no program; add a [[program]] table with a source
2 warm --manifest k.cl | k.cl is not TOML
2 warm --recording loop | the recording 'loop' cannot be read (Too many levels of symbolic links)
2 warm --recording none | the recording 'none' cannot be read (No such file or directory)
2 record -o loop -- true | cannot be made a recording (File exists)
2 record -o plain -- true | plain is a file, not a directory
2 record -o plain/r -- true | cannot be made a recording (Not a directory)
5 inspect --cache loop | loop cannot be read (Too many levels of symbolic links); fix its links
5 inspect --cache pocl:loop | loop cannot be read (Too many levels of symbolic links); fix its links
2 inspect --cache pocl:none | none does not exist; check the path
2 inspect --cache none | there is no cache 'none'; 'man gpucache-caches' lists the names
2 inspect --cache tritonn | there is no cache 'tritonn'; did you mean triton? 'man gpucache-caches'
2 --root none inspect | none does not exist; check --root
2 --root none verify | none does not exist; check --root
2 verify --cache triton | triton/cache does not exist; name its place, as in --cache triton:PLACE
2 verify ./loop | ./loop cannot be read (Too many levels of symbolic links); check the path and its
2 inspect /none/store | /none/store does not exist, and no program has this name; name a cache by --cache
2 pull /none/store | /none/store does not exist; check its path, or push there first
2 evict k | k does not exist; name a cache by --cache, and a program by --program
2 verify ../ | ../ is a directory and is not a store; name the cache in it with --cache NAME:DIRECTORY
2 run --report none/x -- true | none/x cannot be written (No such file or directory); name another file
2 inspect --since 1x --misses | '1x' is not an age; write a number with s, m, h, d or w, such as 30d
5 verify --cache triton:plain | plain is not a directory; name the directory of a cache
2 evict --max-size 20 | '20' is not a size; write a number with a unit, such as 512M or 2GiB
2 evict --max-size lots | 'lots' is not a size; write a number with a unit, such as 512M or 2GiB
2 evict | no filter was given; add --max-size
2 evict --program none | no entry is of the program 'none'
2 warm k.cl --into loop | after '--'
2 warm --into loop -- true | loop cannot be made
2 export layer plain -- true | plain cannot be made a layer (File exists); name another
2 export layer out true | write '--' before the command, as in 'gpucache export layer DIR -- true'
3 export rocfft out loop | loop is a link, which is not followed
2 export nope | no such command 'nope'; see 'gpucache export --help'
2 wram k.cl | no such command 'wram'; did you mean 'warm'? see 'gpucache --help'
2 warm app.py | run 'gpucache record -o recording -- python app.py', then
2 prune | no such command 'prune'; did you mean 'evict'? see 'gpucache --help'
2 ls | no such command 'ls'; did you mean 'inspect'? see 'gpucache --help'
2 stats | no such command 'stats'; did you mean 'inspect --stats'? see 'gpucache --help'
2 check | no such command 'check'; did you mean 'verify'? see 'gpucache --help'
2 warm --dry-run | no such option '--dry-run'; did you mean '--check'? see 'gpucache warm --help'
2 --root wram wram k.cl -- true | no such command 'wram'; did you mean 'warm'? see 'gpucache --help'
2 export lyer out | no such command 'lyer'; did you mean 'layer'? see 'gpucache export --help'
2 export lyer out -- true | no such command 'lyer'; did you mean 'layer'? see 'gpucache export --help'
2 export rocfft out -- true | only run, record, warm, bench and export layer run a command
2 warm --traget x | no such option '--traget'; did you mean '--target'? see 'gpucache warm --help'
2 warm --frobnicate | no such option '--frobnicate'
2 help layer | no such command 'layer'; see 'gpucache help export layer'
2 help keys | no such command 'keys'; see 'man gpucache-keys'
2 help manifest | no such command 'manifest'; see 'man gpucache-manifest'
2 help frobnicate | no such command 'frobnicate'
2 inspect --cache | option '--cache' requires an argument
2 verify run -- true | only run, record, warm, bench and export layer run a command
127 run -- none | the command 'none' cannot be started (No such file or directory); check its name
126 run -- ./plain | the command './plain' cannot be started (Permission denied)
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_a_mistake_has_its_code_and_its_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    """One line on stderr names the thing and the remedy, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "k.cl": "__kernel void k() {}\n",
        "empty.toml": "",
        "{}": "{}",
        "plain": "",
        "app.py": "",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("adir").mkdir()
    Path("loop").symlink_to("loop")
    before = sorted(Path().iterdir())
    line, _, words = row.partition(" | ")
    code, _, line = line.partition(" ")
    answer = run(*shlex.split(line), at=None)
    assert (answer.code, answer.err.count("\n")) == (int(code), 1), answer
    assert words in answer.err and answer.err.startswith("gpucache: ")
    assert sorted(Path().iterdir()) == before
