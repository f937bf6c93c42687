"""`duralog completion`: scripts for shells that complete commands, options, and names of topics.

The script is printed, not installed: no start-up file is changed, and it can be put into an image or a package. All
three scripts run `duralog` with two variables set, and get a line for each candidate, with its meaning after a tab.
Without candidates, the shell offers files.

| variable | value |
|---|---|
| `_DURALOG_COMPLETE` | `complete_lines` |
| `_DURALOG_LINE` | the command line up to the cursor |

Completion never writes to standard error and never fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from duralog.cli.voice.failures import WrongUsage

ASKED = "_DURALOG_COMPLETE"
_LINE = "_DURALOG_LINE"
_ANSWER = "lines"

_BASH = """\
_duralog() {
    local value help
    COMPREPLY=()
    while IFS=$'\\t' read -r value help; do
        COMPREPLY+=("$value")
        [[ $value == *= ]] && compopt -o nospace
    done < <(_DURALOG_LINE="${COMP_LINE:0:COMP_POINT}" _DURALOG_COMPLETE=complete_lines "$1" 2>/dev/null)
}
complete -o default -F _duralog duralog
"""

_ZSH = """\
#compdef duralog
_duralog() {
    local value help
    local -a found settings
    while IFS=$'\\t' read -r value help; do
        if [[ $value == *= ]]; then settings+=("$value"); else found+=("${value//:/\\\\:}${help:+:$help}"); fi
    done < <(_DURALOG_LINE="${(j: :)words[1,CURRENT]}" _DURALOG_COMPLETE=complete_lines "${words[1]}" 2>/dev/null)
    [[ $words[CURRENT] == --*=* ]] && compset -P 1 '*='
    (( $#settings )) && compadd -S '' -- $settings
    if (( $#found )); then _describe -V duralog found; elif (( ! $#settings )); then _files; fi
}
if [[ $funcstack[1] == _duralog ]]; then _duralog "$@"; else compdef _duralog duralog; fi
"""

_FISH = """\
function __duralog_complete
    set -l line (commandline -cp | string collect)
    set -l found (env _DURALOG_LINE="$line" _DURALOG_COMPLETE=complete_lines duralog 2>/dev/null)
    # Candidates must begin with the current word, which may be --option=value.
    set -l option (string match -r -- '^--[^=]+=' (commandline -ct))
    set -q option[1]; or set option ''
    if set -q found[1]
        printf '%s\\n' $option$found
    else
        printf '%s\\n' $option(__fish_complete_path (string replace -r -- '^--[^=]+=' '' (commandline -ct)))
    end
end
complete --command duralog --no-files --arguments '(__duralog_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def shell_names(incomplete: str) -> list[str]:
    return [name for name in SCRIPTS if name.startswith(incomplete)]


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False, autocompletion=shell_names),
    ] = None,
) -> None:
    """Print a script for shell completion of commands and topics.

    bash: eval "$(duralog completion bash)" in ~/.bashrc.

    zsh: eval "$(duralog completion zsh)" in ~/.zshrc, after compinit.

    fish: duralog completion fish > ~/.config/fish/completions/duralog.fish

    Exit code: 0 done, 2 wrong usage.
    """
    name = shell if shell is not None else os.path.basename(os.environ.get("SHELL", ""))
    if name not in SCRIPTS:
        said = f"{name!r} is not supported" if name else "which shell?"
        raise WrongUsage(f"{said}: give bash, zsh or fish")
    typer.echo(SCRIPTS[name], nl=False)


def answer_shell(app: Callable[..., Any]) -> None:
    """Answer the completion request in the environment, and exit."""
    try:
        _register()
        with open(os.devnull, "w") as nowhere:
            sys.stderr = nowhere
            app(prog_name="duralog")
    except Exception:
        sys.exit(0)  # After any error, offer nothing.


def _register() -> None:
    """Register a completion class that answers in lines of a value, a tab and its meaning."""
    import typer.completion

    shell_completion: Any = typer.completion.shell_completion  # type: ignore[attr-defined]

    class Lines(shell_completion.ShellComplete):  # type: ignore[misc]
        name = _ANSWER
        source_template = ""

        def source_vars(self) -> dict[str, Any]:
            return {}

        def get_completion_args(self) -> tuple[list[str], str]:
            line = os.environ.get(_LINE, "")
            words = shell_completion.split_arg_string(line)[1:]
            if not words or line[-1:].isspace():
                return words, ""
            return words[:-1], words[-1]

        def complete(self) -> str:
            found = str(super().complete())
            if not found:
                sys.exit(0)  # Not even an empty line: a shell would treat it as a candidate.
            return found

        def format_completion(self, item: Any) -> str:
            meaning = " ".join((item.help or "").split())
            return f"{item.value}\t{meaning}" if meaning else str(item.value)

    shell_completion.add_completion_class(Lines, _ANSWER)
