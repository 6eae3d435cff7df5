"""Completion in bash, zsh and fish: the candidates of our process, and the scripts that request them.

Owns the few lines of shell, and Click's extension points that they use. Click's own scripts are
not used because bash takes ``cuda:sm_90`` for three words, all three lose the text before ``=``, and
names from the cache must reach a command line quoted. A script sends the line up to the cursor and
reads lines of type (``plain``, ``dir`` or ``file``), value and help, with a tab between them.

Must not know which words can be completed: the parameters know that.
"""

import os
import re

from click import Command
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

from gpucache.cli.group import COMPLETE, PROGRAM

_CURSOR = "\x1f"  # marks the cursor, so that even an empty last word is not lost
_PLAIN_IN_BASH = re.compile(r"[^\w@%+=:,./-]", re.ASCII)

_BASH = """\
# shellcheck shell=bash
# Completion of gpucache in bash 4.4 or newer.
%(complete_func)s() {
    local type value word
    COMPREPLY=()
    for ((word = 1; word < COMP_CWORD; word++)); do
        if [[ ${COMP_WORDS[word]} == -- ]]; then
            ((word == COMP_CWORD - 1)) && mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            compopt -o default
            return
        fi
    done
    while IFS=$'\\t' read -r type value _; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env %(complete_var)s=bash_complete COMP_LINE="${COMP_LINE:0:COMP_POINT}" \\
        COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s
# Completion of gpucache in zsh.
%(complete_func)s() {
    local kind type value help
    local -a entries
    local -i mark=${words[(i)--]}
    if ((mark < CURRENT)); then
        shift $mark words
        ((CURRENT -= mark))
        _normal
        return
    fi
    while IFS=$'\\t' read -r type value help; do
        if [[ $type == plain ]]; then
            entries+=("${value//:/\\\\:}${help:+:$help}")
        else
            kind=$type
        fi
    done < <(env %(complete_var)s=zsh_complete COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" \\
        "$words[1]" 2>/dev/null)
    [[ -n $kind && $PREFIX == -*=* ]] && compset -P '*='
    case $kind in
        dir) _files -/ ;;
        file) _files ;;
        *) _describe -V %(prog_name)s entries ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
# Completion of gpucache in fish.
function %(complete_func)s
    set -l line (commandline -cp | string collect)
    set -l command (string split -m 1 -- ' -- ' $line)
    if set -q command[2]
        complete -C "$command[2]"
        return
    end
    env %(complete_var)s=fish_complete COMP_LINE=$line %(prog_name)s 2>/dev/null | while read -l item
        set -l part (string split -m 2 \\t -- $item)
        switch $part[1]
            case dir
                __fish_complete_directories $part[2]
            case file
                # files, also after --option=, as fish offers them for a command it does not know
                complete -C "%(prog_name)s-files $part[2]"
            case plain
                printf '%%s\\t%%s\\n' $part[2] "$part[3]"
        end
    end
end
complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


class LineComplete(ShellComplete):
    """Candidates for a line that ends at the cursor, each value a whole word of it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words after the program's name, and the word at the cursor up to there."""
        *words, last = split_arg_string(os.environ["COMP_LINE"] + _CURSOR)
        return words[1:], last.removesuffix(_CURSOR)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Click's candidates with the ``--option=`` that it leaves out, and without control characters."""
        option = incomplete[: incomplete.find("=") + 1] if incomplete.startswith("-") else ""
        return [
            CompletionItem(option + item.value, type=item.type, help=item.help)
            for item in super().get_completions(args, incomplete)
            if item.value.isprintable()
        ]

    def format_completion(self, item: CompletionItem) -> str:
        return "\t".join((item.type, item.value, " ".join((item.help or "").split())))


class BashComplete(LineComplete):
    """Candidates without the part that bash counts as earlier words, and safe on a command line."""

    name = "bash"
    source_template = _BASH

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """The part of each value that bash replaces: the text after the last ``:`` or ``=``."""
        breaks = [mark for mark in ":=" if mark in os.environ.get("COMP_WORDBREAKS", "")]
        done = 1 + max((incomplete.rfind(mark) for mark in breaks), default=-1)
        items = super().get_completions(args, incomplete)
        return [CompletionItem(_quoted(item.value[done:]), type=item.type) for item in items]


class ZshComplete(LineComplete):
    """Candidates for zsh, which quotes them itself."""

    name = "zsh"
    source_template = _ZSH


class FishComplete(LineComplete):
    """Candidates for fish, which quotes them itself."""

    name = "fish"
    source_template = _FISH


SHELLS = (BashComplete, ZshComplete, FishComplete)


def register() -> None:
    for shell in SHELLS:
        add_completion_class(shell)


def script(shell: type[LineComplete], command: Command) -> str:
    return shell(command, {}, PROGRAM, COMPLETE).source()


def _quoted(value: str) -> str:
    return _PLAIN_IN_BASH.sub(r"\\\g<0>", value)
