"""The scripts that connect the shells to the completion of ``dial-chat``, and their installation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dial_client.messages.errors import ConfigError

_BASH = r"""# Completion of dial-chat for bash
_dial_chat() {
    local value
    COMPREPLY=()
    while IFS= read -r value; do
        COMPREPLY+=("$value")
    done < <(_DIAL_CHAT_COMPLETE=bash _DIAL_CHAT_LINE="${COMP_LINE:0:COMP_POINT}" \
        _DIAL_CHAT_BREAKS="$COMP_WORDBREAKS" dial-chat 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -F _dial_chat dial-chat
"""
_ZSH = r"""#compdef dial-chat
# Completion of dial-chat for zsh
_dial_chat() {
    local line
    local -a values
    while IFS= read -r line; do
        values+=("$line")
    done < <(_DIAL_CHAT_COMPLETE=zsh dial-chat "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#values} )); then
        _describe -V 'dial-chat' values
    else
        _files
    fi
}
if (( ! ${+functions[compdef]} )); then
    autoload -Uz compinit && compinit
fi
compdef _dial_chat dial-chat
"""
_FISH = r"""# Completion of dial-chat for fish
function __dial_chat
    set -l words (commandline -opc) (commandline -ct | string trim -c "'\"")
    set -l found (env _DIAL_CHAT_COMPLETE=fish dial-chat $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c dial-chat -f -k -a '(__dial_chat)'
"""
_POWERSHELL = r"""# Completion of dial-chat for PowerShell
Register-ArgumentCompleter -Native -CommandName dial-chat -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_".Trim("'", '"') })
    if (-not $wordToComplete) { $words += '""' }
    $env:_DIAL_CHAT_COMPLETE = 'powershell'
    try { $lines = @(& dial-chat @words 2>$null) } finally { Remove-Item Env:_DIAL_CHAT_COMPLETE }
    foreach ($line in $lines) {
        $value, $about = $line -split "`t", 2
        if (-not $about) { $about = $value }
        $text = if ($value -match '^[\w:./@=-]+$') { $value } else { "'" + $value.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $about)
    }
}
"""
SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL}
_BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/share/bash-completion/bash_completion",
)
"""Paths of the package bash-completion, which loads the scripts of a folder by itself."""


def choose_shell(name: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the named shell, else the user's shell.

    Raises:
        ConfigError: The shell has no script.
    """
    found = name or Path(environment.get("SHELL", "powershell" if sys.platform == "win32" else "")).stem
    found = "powershell" if found == "pwsh" else found
    if found not in SCRIPTS:
        problem = f"there is no completion for {found!r}" if found else "SHELL is not set"
        raise ConfigError(problem, hint=f"dial-chat --install-completion {' | '.join(SCRIPTS)}")
    return found


def install(shell: str, home: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Install the script of a shell, and return sentences about the changes. A second installation changes nothing.

    Args:
        shell: A key of `SCRIPTS`.
        home: The user's home folder.
        environment: The environment variables, which may name other folders.

    Raises:
        ConfigError: A file cannot be written.
    """
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    settings = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    script = {
        "bash": data / "bash-completion" / "completions" / "dial-chat",
        "zsh": data / "dial-client" / "completion.zsh",
        "fish": settings / "fish" / "completions" / "dial-chat.fish",
        "powershell": data / "dial-client" / "completion.ps1",
    }[shell]
    start, line = _build_start_line(shell, script, home, environment)
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(SCRIPTS[shell], encoding="utf-8", newline="\n")
        sentences = [f"written: {script}"]
        if start is not None and _add_line(start, line):
            sentences.append(f"added to {start}: {line}")
    except OSError as error:
        raise ConfigError(f"{error.filename or script} cannot be written: {error.strerror}") from None
    return [*sentences, f"Completion for {shell} works in the next shell that you open."]


def _build_start_line(shell: str, script: Path, home: Path, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return the start-up file of the shell, and the line to add to it; None as the file if no line is needed."""
    match shell:
        case "bash" if not any(Path(path).exists() for path in _BASH_COMPLETION):
            return home / ".bashrc", f"source '{script}'"
        case "zsh":
            return Path(environment.get("ZDOTDIR") or home) / ".zshrc", f"source '{script}'"
        case "powershell":
            return _find_powershell_profile(), f". '{script}'"
        case _:
            return None, ""


def _add_line(file: Path, line: str) -> bool:
    """Add a line to the end of a file; return False if it has the line already."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if line in text.splitlines():
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8", newline="\n") as end:
        end.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")
    return True


def _find_powershell_profile() -> Path:
    """Return the path of the user's PowerShell profile, which PowerShell itself names."""
    for program in ("pwsh", "powershell"):
        try:
            result = subprocess.run(
                [program, "-NoProfile", "-NonInteractive", "-Command", "$PROFILE"],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if result.stdout.strip():
            return Path(result.stdout.strip())
    raise ConfigError("PowerShell cannot be found", hint="dial-chat --show-completion powershell prints the script")
