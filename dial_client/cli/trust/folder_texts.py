"""Texts for the model from files: ``AGENTS.md``, commands, skills and agents, of the user and of the working folder.

The texts of the folder were written by others, so nothing in them is used before the user trusts them: each file by its
location and its content, as a ``servers.json`` (`settings.config_trust`); a skill with all its files. The user is asked
once about all files that are new or changed, and not again about a content that the user did not trust.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio import lowlevel

from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import print_to_stderr, warn_once
from dial_client.cli.streams.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.streams.word_wrap import find_terminal_width
from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Instruction, InstructionSource
from dial_client.providers import is_recording_name
from dial_client.runtime.safe_text import escape_line, sanitize
from dial_client.runtime.text import count_noun
from dial_client.settings.agent import Agent
from dial_client.settings.config_locations import build_user_config_path
from dial_client.settings.config_trust import FoundFile, TrustedFile, TrustStore, read_found
from dial_client.settings.config_types import Settings, SkillFolder

# The files with instructions for the model.
NAMES = ("AGENTS.md", "CLAUDE.md")
# The folder of commands in the working folder, and its name in the user's configuration folder.
FOLDER_COMMANDS = Path(".dial", "commands")
USER_COMMANDS = "commands"
# The maximum number of files with commands in one folder.
MAX_COMMANDS = 100
# The maximum characters of all instructions that the model reads.
MAX_CHARS = 40_000
# The maximum lines of a file that the question shows.
MAX_SHOWN_LINES = 8
_QUESTION = "[t]rust, [n]ot now, [v]iew every line: "


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """The texts that are in use."""

    instructions: tuple[FoundFile, ...] = ()
    """The files with instructions, those of the user first."""
    commands: tuple[FoundFile, ...] = ()
    """The files with commands, those of the user first."""
    skills: tuple[SkillFolder, ...] = ()
    """The folders of skills, those of the user first."""
    agents: tuple[Agent, ...] = ()
    """The agents, those of the user first."""

    @property
    def names(self) -> str:
        """The paths of the files with instructions; empty if there are none."""
        return ", ".join(str(file.path) for file in self.instructions)


async def read_folder_texts(options: Options, settings: Settings) -> FolderTexts:
    """Return the user's own texts, and those of the working folder that the user trusts; ask about the others.

    Without a terminal nothing is asked, and a line names the files that are not used.

    Args:
        options: The options of the command line.
        settings: The configuration, which may name folders of skills.
    """
    if options.model and is_recording_name(options.model):
        return FolderTexts()
    names = () if options.no_instructions else NAMES
    user_folder = build_user_config_path().parent
    own = [*_read_named(user_folder, names), *_read_commands(user_folder / USER_COMMANDS)]
    folder = Path()
    found = [*_read_named(folder, names), *_read_commands(FOLDER_COMMANDS)]
    known = {file.target for file in own}
    texts = {file.location: FoundText(file) for file in found if file.target not in known}
    texts |= {skill.file.location: skill for skill in find_folder_skills(settings)}
    agents = find_folder_agents(settings)
    texts |= {file.location: FoundText(file) for file in agents}
    trusted = await _select_trusted(list(texts.values()), may_ask=not options.trust)
    trusted_agents = [file for file in agents if any(text.file is file for text in trusted)]
    used = [*own, *(text.file for text in trusted if text.file.path.name != SKILL_FILE and text.file not in agents)]
    skills = (text.to_folder() for text in trusted if text.file.path.name == SKILL_FILE)
    instructions = dict[str, FoundFile]()
    for file in used:
        if file.path.name in NAMES and file.text.strip():
            instructions.setdefault(file.digest, file)
    commands = tuple(file for file in used if file.path.name not in NAMES)
    return FolderTexts(
        tuple(instructions.values()),
        commands,
        (*list_own_folders(settings), *skills),
        parse_agents([*list_own_agents(settings), *trusted_agents]),
    )


async def read_skills(options: Options, settings: Settings, *, is_silent: bool = False) -> tuple[SkillFolder, ...]:
    """Return the skills of `read_folder_texts` alone, for a command that uses no other texts.

    With `is_silent` nothing is asked on a terminal either: what the user has not trusted is not used.
    """
    found = find_folder_skills(settings)
    trusted = await _select_trusted(found, may_ask=not options.trust, is_silent=is_silent)
    return (*list_own_folders(settings), *(skill.to_folder() for skill in trusted))


async def read_agents(options: Options, settings: Settings, *, is_silent: bool = False) -> tuple[Agent, ...]:
    """Return the agents of `read_folder_texts` alone, as `read_skills`."""
    found = [FoundText(file) for file in find_folder_agents(settings)]
    trusted = await _select_trusted(found, may_ask=not options.trust, is_silent=is_silent)
    return parse_agents([*list_own_agents(settings), *(text.file for text in trusted)])


def build_instructions(files: Iterable[FoundFile], max_chars: int = MAX_CHARS) -> tuple[tuple[Instruction, ...], str]:
    """Return an instruction for each file, and a sentence about what was left out for want of room, or an empty text.

    Args:
        files: The files, in the order in which the model reads them.
        max_chars: The maximum characters of all texts together.
    """
    instructions, cut = [], []
    for file in files:
        text = sanitize(file.text).strip()
        kept = text[: max(0, max_chars)]
        max_chars -= len(kept)
        if len(kept) < len(text):
            cut.append(f"{file.path} ({len(kept):,} of {len(text):,} characters)")
            kept += "\n[cut here: the file is longer]"
        whose = "the user's own" if file.path.is_absolute() else "the working folder's"
        head = f"Instructions of the user, from {whose} {file.path.name}:"
        instructions.append(Instruction(InstructionSource.FILES, f"{head}\n\n{kept}"))
    return tuple(instructions), f"instructions are cut: the model reads {', '.join(cut)}" if cut else ""


def _read_named(folder: Path, names: Iterable[str]) -> Iterator[FoundFile]:
    for name in names:
        if (path := folder / name).is_file():
            yield from _read(path)


def _read_commands(folder: Path) -> Iterator[FoundFile]:
    try:
        paths = sorted(path for path in folder.glob("*.md") if path.is_file())
    except OSError:
        return
    if len(paths) > MAX_COMMANDS:
        warn_once(f"{folder}: only the first {MAX_COMMANDS} of {len(paths)} commands are offered")
    for path in paths[:MAX_COMMANDS]:
        yield from _read(path)


def _read(path: Path) -> Iterator[FoundFile]:
    try:
        yield read_found(path)
    except ConfigError as error:
        warn_once(f"not used: {error}")


async def _select_trusted(found: Sequence[FoundText], *, may_ask: bool, is_silent: bool = False) -> Sequence[FoundText]:
    """Return the texts of the working folder that are in use; with ``--trust`` (not `may_ask`), all of them."""
    if not may_ask:
        return found
    store, declined = TrustStore(), TrustStore(_find_declined_folder())
    before = {text.file.location: store.find(text.file.location) for text in found}
    trusted = [text for text in found if _matches(before[text.file.location], text)]
    asked = [text for text in found if text not in trusted and not _matches(declined.find(text.file.location), text)]
    if not asked:
        return trusted
    if is_silent or not can_ask_user():
        names = ", ".join(str(text.file.path) for text in asked)
        warn_once(f"not used, because you have not trusted it: {names} (`dial-chat trust FILE` trusts it)")
        return trusted
    is_trusted = await _ask_for_trust(asked, [before[text.file.location] for text in asked])
    for text in asked:
        try:
            (store if is_trusted else declined).save(text.file, text.files)
        except OSError as error:
            warn_once(f"your decision cannot be stored: {error.strerror}; it holds for this run")
            break
    return [text for text in found if text in trusted or (is_trusted and text in asked)]


async def _ask_for_trust(texts: Sequence[FoundText], before: Sequence[TrustedFile | None]) -> bool:
    from dial_client.cli.trust.trust_summary import number_lines

    width = find_terminal_width(sys.stderr)
    print_to_stderr("This folder has texts for the model, which you have not trusted:")
    for text, known in zip(texts, before, strict=True):
        file, lines = text.file, _show(text, known, width)
        changed = "" if known is None else ", changed since you trusted it"
        print_to_stderr(f"{escape_line(str(file.path))} ({count_noun(len(file.text.splitlines()), 'line')}{changed})")
        if Path(file.target).parent != Path(file.location).parent:
            print_to_stderr(f"  it is a link to: {escape_line(file.target)}")
        hidden = len(lines) - MAX_SHOWN_LINES
        shown = lines if hidden <= 0 else [*lines[:MAX_SHOWN_LINES], f"  … {count_noun(hidden, 'more line')}"]
        print_to_stderr(*shown)
    print_to_stderr(
        "The model would follow them as your own instructions, or be offered them as commands, skills and agents."
    )
    while True:
        match await ask_for_letter(_QUESTION):
            case "t" | "trust":
                print_to_stderr("Trusted, until they change; `dial-chat trust --revoke FILE` revokes this.")
                return True
            case "" | "n" | "no" | "not now":
                print_to_stderr("Not used; you are asked again when they change.")
                return False
            case "v" | "view":
                for text in texts:
                    print_to_stderr(escape_line(str(text.file.path)), number_lines(text.file.text, width))
                    print_to_stderr(*_name_files(text, {}))
            case _:
                print_to_stderr("Please answer t, n or v.")


def _show(text: FoundText, known: TrustedFile | None, width: int | None) -> list[str]:
    """Return the lines of a new file, or the changes of one that was trusted before; and the files of a skill."""
    from dial_client.cli.trust.trust_summary import SummaryRow, diff_text, render_rows

    if known is None:
        rows = (SummaryRow(f"  | {escape_line(line)}") for line in text.file.text.splitlines())
        return [*_name_files(text, {}), *render_rows(rows, width).split("\n")]
    changes = render_rows(diff_text(known.text, text.file.text), width).split("\n")
    return [*_name_files(text, known.env_files), *(changes if known.digest != text.file.digest else [])]


def _name_files(text: FoundText, before: Mapping[str, str]) -> list[str]:
    """Return a line for each file of a skill that is new or has changed, or is gone."""
    names = sorted({*before, *text.files})
    words = {name: _describe_change(before.get(name), text.files.get(name)) for name in names}
    return [f"  {word}: {escape_line(name)}" for name, word in words.items() if word]


def _describe_change(before: str | None, after: str | None) -> str:
    if before == after:
        return ""
    return "with the file" if before is None else "without the file" if after is None else "with a changed file"


async def ask_for_letter(question: str) -> str:
    """Return the answer to a question about trust in lower case; "n" if the user gives none."""
    try:
        return (await ask_for_line(question)).strip().lower()
    except Unanswered:
        await lowlevel.checkpoint()  # if Ctrl-C cancelled the program, this raises the cancellation
        return "n"


def _matches(known: TrustedFile | None, text: FoundText) -> bool:
    return known is not None and known.matches(text.file) and dict(known.env_files) == dict(text.files)


def _find_declined_folder() -> Path:
    from platformdirs import user_data_dir

    return Path(user_data_dir("dial-client"), "declined-files")


# The folder of skills in the user's configuration folder, and the folders of skills in the working folder.
USER_SKILLS = "skills"
SKILL_FILE = "SKILL.md"
FOLDER_SKILLS = (Path(".dial", "skills"), Path(".claude", "skills"))


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text below the working folder, such as a ``SKILL.md``, with its content at that moment."""

    file: FoundFile
    files: Mapping[str, str] = field(default_factory=dict)
    """For a ``SKILL.md``, the SHA-256 of the skill's other files, by their paths in the skill with ``/``."""

    def to_folder(self) -> SkillFolder:
        """Return a skill for a client, which compares each file that it reads."""
        return SkillFolder(self.file.path.parent, {self.file.path.name: self.file.digest, **self.files})


def list_own_folders(settings: Settings) -> list[SkillFolder]:
    """Return the skills that need no trust: of the user's folder, and of ``"skills"`` outside the working folder."""
    folder = build_user_config_path().parent / USER_SKILLS
    named = [path for path in settings.skills if not is_below(path)]
    return [SkillFolder(path) for path in _list_valid([*([folder] if folder.is_dir() else []), *named])]


def find_folder_skills(settings: Settings) -> list[FoundText]:
    """Return the skills below the working folder, each with the digests of its files."""
    named = [path for path in settings.skills if is_below(path)]
    found: list[FoundText] = []
    for path in _list_valid([*(path for path in FOLDER_SKILLS if path.is_dir()), *named]):
        if not is_below(path):
            warn_once(f"not used: {path} is a link out of the working folder")
            continue
        try:
            found.append(read_found_skill(path))
        except ConfigError as error:
            warn_once(f"not used: {error}")
    return found


def read_found_skill(folder: Path) -> FoundText:
    """Read a skill, and the digests of its files.

    Raises:
        ConfigError: A file cannot be read, or there are too many files or bytes.
    """
    from dial_client.tools.skills.skill_folders import hash_files

    digests = hash_files(folder)
    # The bytes that are shown are the bytes that are trusted: those of the next reading.
    digests.pop(SKILL_FILE, None)
    return FoundText(read_found(folder / SKILL_FILE), digests)


def _list_valid(places: list[Path]) -> Iterator[Path]:
    """Yield the folders of the skills at some places; a warning names each that is wrong."""
    if not places:
        return
    from dial_client.tools.skills.skill_folders import find_skill_folders, read_skill

    for place in places:
        try:
            folders = find_skill_folders(place)
        except ConfigError as error:
            warn_once(f"not used: {error}")
            continue
        for folder in folders:
            try:
                read_skill(SkillFolder(folder))
            except ConfigError as error:
                warn_once(f"not used: {error}")
            else:
                yield folder


def is_below(path: Path) -> bool:
    """Return True for a folder in the working folder, whatever links lead to it."""
    return path.resolve().is_relative_to(Path.cwd().resolve())


# The folder of agents in the user's configuration folder, and the folders of agents in the working folder.
USER_AGENTS = "agents"
FOLDER_AGENTS = (Path(".dial", "agents"), Path(".claude", "agents"))


def list_own_agents(settings: Settings) -> list[FoundFile]:
    """Return the files of agents that need no trust: of the user, and of ``"agents"`` outside the working folder."""
    folder = build_user_config_path().parent / USER_AGENTS
    return list(_read_files([folder, *(path for path in settings.agents if not is_below(path))]))


def find_folder_agents(settings: Settings) -> list[FoundFile]:
    """Return the files of agents below the working folder."""
    return list(_read_files([*FOLDER_AGENTS, *(path for path in settings.agents if is_below(path))]))


def parse_agents(files: Iterable[FoundFile]) -> tuple[Agent, ...]:
    """Return the agents of files; of two of one name the first. A warning names each file that is wrong."""
    agents: dict[str, Agent] = {}
    paths: dict[str, Path] = {}
    for file in files:
        from dial_client.settings.agent_files import parse_agent

        try:
            agent = parse_agent(file.data, file.path)
        except ConfigError as error:
            warn_once(f"not used: {error}")
        else:
            if agents.setdefault(agent.name, agent) is not agent:
                warn_once(f"not used: {file.path}: there is an agent {agent.name} already, in {paths[agent.name]}")
            paths.setdefault(agent.name, file.path)
    return tuple(agents.values())


def _read_files(places: Iterable[Path]) -> Iterator[FoundFile]:
    for place in places:
        if not place.exists():
            continue
        from dial_client.settings.agent_files import list_files

        try:
            yield from map(read_found, list_files(place))
        except ConfigError as error:
            warn_once(f"not used: {error}")
