"""`python -m gdbext completion SHELL`: commands, their options, processes and files, completed by bash, zsh and fish."""

from __future__ import annotations

from collections.abc import Mapping

from ..commands import table, verbs
from ..session.session import Session

ALWAYS = ("help", "version")
PROCESSES = "processes"  # in place of a shell: the words that name processes, which the scripts ask for


def script(shell: str, setup: Mapping[str, str]) -> str:
    """The script for the shell. `setup`: {command: what it does} of those that are not in the table."""
    if shell == PROCESSES:
        return "\n".join(Session().process_words())
    summaries = {e.name: e.summary for e in table.entries() if not e.gdb_only}
    options = {name: {o.name: o.told for o in table.load(name).all_options()} for name in summaries}
    own = {name: table.load(name).own_words() for name in summaries}
    for word in (*(name[name.startswith("llm") and 4 or 2 :] for name in summaries), *verbs.VERBS):
        name = verbs.command_of([word])[0]
        if " " not in word and word not in setup and name in options:
            summaries[word], options[word], own[word] = summaries[name], options[name], own[name]
    return _SHELLS[shell]({**summaries, **setup}, options, own)


def _bash(summaries: Mapping[str, str], options: Mapping[str, Mapping[str, str]], own: Mapping[str, list[str]]) -> str:
    cases = "\n".join(
        f"        {name}) words=' {' '.join('-' + o for o in found)}' own='{' '.join(own[name])}' ;;"
        for name, found in options.items()
    )
    return f"""# source <(gdbext completion bash), or put it into ~/.local/share/bash-completion/completions/gdbext
_gdbext() {{
    local words='' own='' word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" = 1 ] || {{ [ "$command" = help ] && [ "$COMP_CWORD" = 2 ]; }}; then
        COMPREPLY=($(compgen -W '{" ".join([*summaries, *ALWAYS])}' -- "$word"))
        return
    fi
    case $command in
{cases}
    esac
    case $word in
        --*) COMPREPLY=($(compgen -W "${{words// -/ --}}" -- "$word")) ;;
        -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
        */*) ;;
        *) [ -n "$words" ] && COMPREPLY=($(compgen -W "$own $(gdbext completion processes 2>/dev/null)" -- "$word")) ;;
    esac
}}
complete -o default -F _gdbext gdbext"""


def _zsh(summaries: Mapping[str, str], options: Mapping[str, Mapping[str, str]], own: Mapping[str, list[str]]) -> str:
    commands = "\n".join(f"        {_quoted(f'{name}:{text}')}" for name, text in summaries.items())
    cases = "\n".join(
        f"        ({name}) found=({' '.join(_quoted(f'-{o}:{text}') for o, text in each.items())}) own=({' '.join(own[name])}) ;;"
        for name, each in options.items()
    )
    return f"""#compdef gdbext
# source <(gdbext completion zsh) after compinit, or put it into a folder of $fpath as _gdbext
_gdbext() {{
    local -a commands found own
    commands=(
{commands}
    )
    if (( CURRENT == 2 )) || [[ $words[2] == help && CURRENT -eq 3 ]]; then
        _describe command commands
        return
    fi
    case $words[2] in
{cases}
    esac
    if [[ $words[CURRENT] == -* ]]; then
        _describe option found
    else
        (( $#found )) && [[ $words[CURRENT] != */* ]] && compadd -- $own ${{(f)"$(gdbext completion processes 2>/dev/null)"}}
        _files
    fi
}}
compdef _gdbext gdbext"""


def _fish(summaries: Mapping[str, str], options: Mapping[str, Mapping[str, str]], own: Mapping[str, list[str]]) -> str:
    lines = ["# gdbext completion fish > ~/.config/fish/completions/gdbext.fish"]
    for name, text in summaries.items():
        lines.append(f"complete -c gdbext -f -n __fish_use_subcommand -a {name} -d {_quoted(text)}")
    lines.append(f"complete -c gdbext -f -n '__fish_seen_subcommand_from help' -a {_quoted(' '.join(summaries))}")
    for name, each in options.items():
        words = " ".join([*own[name], "(gdbext completion processes 2>/dev/null)"])
        lines.append(f"complete -c gdbext -n '__fish_seen_subcommand_from {name}' -a '{words}'")
        for option, text in each.items():
            lines.append(f"complete -c gdbext -n '__fish_seen_subcommand_from {name}' -o {option} -l {option} -d {_quoted(text)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A text as one word of a shell."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
