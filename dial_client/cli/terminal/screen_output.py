"""The output of the screen: what is printed and the live area below it reach the terminal in one piece."""

from __future__ import annotations

import os
import sys

from prompt_toolkit.output import Output, create_output

from dial_client.cli.input.keyboard import KeyReportingOutput


class ScreenOutput(KeyReportingOutput):
    """An output that is held while the live area is erased and drawn again.

    Meanwhile bracketed paste stays on: text that is pasted at that moment must not arrive as typed keys.
    """

    is_held = False

    def erase_down(self) -> None:
        """Erase from the cursor, in the first column, to the end of the screen.

        In the first row tmux copies the screen into its history when it is erased: the live area would stay there.
        """
        if os.environ.get("TMUX"):
            self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")
        else:
            super().erase_down()

    def flush(self) -> None:
        """Write what is there, unless it is held."""
        if not self.is_held:
            super().flush()

    def disable_bracketed_paste(self) -> None:
        """Disable bracketed paste, unless the live area will be drawn again at once."""
        if not self.is_held:
            super().disable_bracketed_paste()

    def reset_cursor_shape(self) -> None:
        """Reset the shape of the cursor, unless the live area will be drawn again at once."""
        if not self.is_held:
            super().reset_cursor_shape()

    def hold(self) -> None:
        """Write nothing until `release`."""
        self.is_held = True

    def release(self) -> None:
        """Write everything that was held."""
        self.is_held = False
        self.flush()


def open_output() -> Output:
    """Return the output. It never asks for the position of the cursor: some terminals do not answer."""
    if sys.platform == "win32":
        return create_output()
    output = ScreenOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output
