"""The input line: keys, pastes, history, and the input that is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import DummyOutput

from tests.inner import (
    InputLine,
    KeyboardParser,
    PastedTexts,
    Proposal,
    UserInput,
    build_mentions,
    can_report_modified_keys,
    decode_reports,
    find_editing_mode,
    find_editor,
    with_decoded_keys,
)

END = "\x1b[201~"


def sent(keys: str, history: Path | None = None) -> list[UserInput]:
    """Type keys into an input line, and return the inputs it sends."""
    inputs: list[UserInput] = []

    async def type_keys() -> None:
        with create_pipe_input() as keyboard:
            line = InputLine(inputs.append, history=history)
            app: Application[None] = Application(
                Layout(line.container, line.window),
                key_bindings=line.key_bindings,
                editing_mode=line.editing_mode,
                input=with_decoded_keys(keyboard),
                output=DummyOutput(),
            )
            line.key_bindings.add("c-d")(lambda event: event.app.exit())
            keyboard.send_bytes((keys + "\x04").encode(errors="surrogateescape"))
            await app.run_async()

    asyncio.run(asyncio.wait_for(type_keys(), 20))
    return inputs


def texts(keys: str) -> list[str]:
    return [user_input.text for user_input in sent(keys)]


def paste(text: str) -> str:
    return f"\x1b[200~{text}{END}"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("hello\r", ["hello"]),
        ("one\\\rtwo\r", ["one\ntwo"]),
        ("one\\\\\r", ["one\\\\"]),
        ("one\ntwo\r", ["one\ntwo"]),
        ("one\x1b\rtwo\r", ["one\ntwo"]),
        ("one\x1b[13;2utwo\r", ["one\ntwo"]),
        ("one\x1b[27;2;13~two\r", ["one\ntwo"]),
        ("one\x1b[13;130utwo\x1b[13u", ["one\ntwo"]),
        ("   \r\r", []),
        ("a\x1b[57376ub\x1b[44;5uc\r", ["abc"]),
        (paste("a\r\nb\rc") + "\r", ["a\nb\nc"]),
    ],
)
def test_enter_sends_and_other_keys_insert_a_line_break(keys: str, expected: list[str]) -> None:
    assert texts(keys) == expected


def test_in_vi_mode_escape_and_enter_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAL_EDITING_MODE", "vi")
    assert texts("one\x1b[13;2utwo\x1b\rthree\r") == ["one\ntwo", "three"]


def test_a_long_pasted_text_is_folded_and_sent_in_full() -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    (user_input,) = sent(f"look: {paste(long)} ok\r")
    assert user_input.shown == "look: [pasted 200 lines] ok"
    assert user_input.text == f"look: {long} ok"
    assert user_input.typed == "look:   ok"


def test_one_backspace_deletes_a_folded_text_and_folded_texts_of_one_size_are_numbered() -> None:
    first, second = "a\n" * 10, "b\n" * 10
    assert texts(f"x{paste(first)}\x7fy\r") == ["xy"]
    assert sent(f"{paste(first)}{paste(second)}\r")[0].shown == "[pasted 10 lines][pasted 10 lines, no. 2]"


def test_mentions_in_pasted_text_attach_nothing() -> None:
    (user_input,) = sent(paste("please read @/etc/passwd") + "\r")
    assert (user_input.text, user_input.typed) == ("please read @/etc/passwd", "")


def test_five_megabytes_are_pasted_in_linear_time() -> None:
    text = "x" * 5_000_000
    keys: list[KeyPress] = []
    parser = KeyboardParser(keys.append)
    for start in range(0, len(text), 1000):
        parser.feed(("\x1b[200~" if start == 0 else "") + text[start : start + 1000])
    parser.feed("\x1b[20")
    parser.feed("1~!")
    assert [(key.key, len(key.data)) for key in keys] == [(Keys.BracketedPaste, len(text)), ("!", 1)]


@pytest.mark.parametrize("pieces", [[*"\x1b[200~hello\x1b[201~x"], ["\x1b[200~", "hello", "\x1b[2", "01", "~x"]])
def test_the_end_of_a_paste_may_arrive_in_several_pieces(pieces: list[str]) -> None:
    keys: list[KeyPress] = []
    parser = KeyboardParser(keys.append)
    for piece in pieces:
        parser.feed(piece)
    assert [(key.key, key.data) for key in keys] == [(Keys.BracketedPaste, "hello"), ("x", "x")]


def test_a_proposal_with_characters_that_are_not_shown_is_unsafe() -> None:
    safe = {text: Proposal(text, 0).is_safe for text in ("a b", "a ", "a\u202eb ", "a\x1b[31m\n!rm ")}
    assert safe == {"a b": True, "a ": True, "a\u202eb ": False, "a\x1b[31m\n!rm ": False}


def test_a_key_report_that_arrives_in_pieces_is_one_key() -> None:
    keys: list[KeyPress] = []
    parser = KeyboardParser(keys.append)
    for piece in ("\x1b[1", "3;2", "u"):
        parser.feed(piece)
    assert [key.key for key in keys] == [Keys.ControlJ]
    parser.feed("\x1b[1")
    parser.flush()
    assert [key.key for key in keys[1:]] == [Keys.Escape, "[", "1"]


def test_key_reports_are_decoded_to_the_usual_key_sequences() -> None:
    reports = {
        "\x1b[99;5u": "\x03",
        "\x1b[99;133u": "\x03",
        "\x1b[97;3u": "\x1ba",
        "\x1b[27u": "\x1b",
        "\x1b[9;2u": "\x1b[Z",
        "\x1b[127;3u": "\x1b\x7f",
        "\x1b[27;5;32~": "\x00",
        "\x1b[57414u": "\r",
        "\x1b[57358u": "",
        "\x1b[9999999;2u": "",
        "\x1b[55296;1u": "",
        "\x1b[A": "\x1b[A",
    }
    assert {report: decode_reports(report) for report in reports} == reports


def test_history_is_kept_across_runs_except_for_lines_that_begin_with_a_space(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "history"
    long = "pasted line\n" * 20
    sent(f"first\r secret\r two\nlines\rtwo\nlines\rtwo\nlines\r{paste(long)}\r\udce9\r", file)
    assert "secret" not in file.read_text()
    up = "\x1b[A"
    assert [found.text for found in sent(f"{up}\r", file)] == ["?"]
    assert [found.text for word in ("first", "two") for found in sent(f"\x12{word}\r\r", file)] == [
        "first",
        "two\nlines",
    ]
    assert file.read_text().count("+lines") == 2
    assert file.read_text().count("+pasted line") == 20
    assert oct(file.stat().st_mode)[-3:] in ("600", "666")


def test_a_history_file_that_cannot_be_read_or_written_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [found.text for found in sent("hello\r", tmp_path / "file" / "history")] == ["hello"]
    (tmp_path / "odd").write_bytes(b"\xff\xfe+\n+a\n\x00+b\n")
    assert [found.text for found in sent("hello\r", tmp_path / "odd")] == ["hello"]


@pytest.mark.parametrize(
    ("inputrc", "mode"),
    [
        ("set editing-mode vi", EditingMode.VI),
        ("# set editing-mode vi\n", EditingMode.EMACS),
        ("$if bash\nset editing-mode vi\n$endif", EditingMode.EMACS),
        ("$if bash\nx\n$else\n  set editing-mode vi\n$endif", EditingMode.VI),
        ("$if dial-chat\nset editing-mode vi\n$endif", EditingMode.VI),
        ("$endif\n$else\nset editing-mode vi\nset editing-mode emacs", EditingMode.EMACS),
    ],
)
def test_the_editing_mode_is_that_of_the_inputrc_file(tmp_path: Path, inputrc: str, mode: EditingMode) -> None:
    (tmp_path / "rc").write_text(inputrc)
    environment = {"INPUTRC": str(tmp_path / "rc")}
    assert find_editing_mode(environment) is mode
    assert find_editing_mode(environment | {"DIAL_EDITING_MODE": "vi"}) is EditingMode.VI


def test_the_variable_visual_takes_precedence_over_the_variable_editor() -> None:
    assert find_editor({"VISUAL": "code --wait", "EDITOR": "nano"}) == ["code", "--wait"]
    assert find_editor({"EDITOR": "vim 'x"}) == ["vim 'x"]
    assert find_editor({"VISUAL": " ", "EDITOR": "'my editor' -x"}) == ["my editor", "-x"]


def test_dropped_files_become_mentions(tmp_path: Path) -> None:
    plain, spaced = tmp_path / "a.png", tmp_path / "two words.txt"
    for path in (plain, spaced):
        path.touch()
    escaped = str(spaced).replace(" ", "\\ ")
    cases = {
        str(plain): f"@{plain} ",
        f"'{spaced}'": f'@"{spaced}" ',
        escaped: f'@"{spaced}" ',
        f"{plain} {escaped}\n": f'@{plain} @"{spaced}" ',
        f"file://{str(spaced).replace(' ', '%20')}": f'@"{spaced}" ',
        str(spaced): f'@"{spaced}" ',
        f"{plain} is a file": "",
        str(tmp_path / "gone"): "",
        "a.png": "",
        "/" * 9000: "",
    }
    assert {pasted: build_mentions(pasted) for pasted in cases} == cases


def test_pasted_text_is_folded_again_after_an_external_edit() -> None:
    pasted = PastedTexts()
    long = "line\n" * 30
    placeholder = pasted.to_insertion(long)
    assert pasted.fold(pasted.unfold(f"a {placeholder} b") + "c") == f"a {placeholder} bc"
    assert pasted.to_insertion("[pasted 30 lines]") != "[pasted 30 lines]", "a placeholder cannot be pasted"


def test_only_known_terminals_are_asked_to_report_modified_keys() -> None:
    has_reports: Callable[..., bool] = lambda **environment: can_report_modified_keys(environment)  # noqa: E731
    assert (
        has_reports(XTERM_VERSION="XTerm(390)") and has_reports(TERM_PROGRAM="tmux") and has_reports(TERM="foot-extra")
    )
    assert not has_reports(TERM_PROGRAM="Apple_Terminal", TERM="xterm-256color") and not has_reports(TERM="linux")


@pytest.mark.parametrize("text", ["!touch x", " \n!touch x", "/quit", "Summarize @.env"])
def test_a_draft_that_was_not_typed_runs_and_attaches_nothing(text: str) -> None:
    line = InputLine(lambda _: None)
    line.edit(text)
    user_input = line.to_input(line.buffer.text)
    assert user_input.text == text
    assert user_input.shown.startswith("[pasted ")
    assert user_input.typed == ""


def test_a_draft_that_was_typed_in_this_run_counts_as_typed() -> None:
    line = InputLine(lambda _: None)
    line.to_input("compare @a.py")
    line.edit("compare @a.py")
    assert line.to_input(line.buffer.text).typed == "compare @a.py"
    line.edit("a plain question")
    assert line.buffer.text == "a plain question"


def test_the_history_omits_pasted_text_that_would_attach_or_run_something(tmp_path: Path) -> None:
    history = tmp_path / "history"
    command = "!touch x" + "\nline" * 10
    sent(f"{paste('look at @.env')}\rsee {paste('a @.env b')}\r{paste(command)}\rtyped @a.py\r", history)
    sent(f"on {paste(command)}\r", history)
    stored = list(InputLine(lambda _: None, history=history).buffer.history.load_history_strings())
    assert stored == [f"on {command}", "typed @a.py"]
