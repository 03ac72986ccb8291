"""The output of the screen, which writes printed text and the live area below the text to the terminal at once."""

from __future__ import annotations

import os
import sys

from prompt_toolkit.output import Output, create_output

from dial_client.cli.input.keyboard import KeyReportingOutput


class ScreenOutput(KeyReportingOutput):
    """An output that can be held back while the live area is erased and redrawn.

    Bracketed paste stays on meanwhile, so that text pasted at that moment does not arrive as typed keys.
    """

    is_held = False

    def erase_down(self) -> None:
        """Erase from the cursor, in the first column, to the end of the screen.

        tmux gets another sequence: when it erases the screen from the first row, it copies the screen into its history,
        where the live area would remain.
        """
        if os.environ.get("TMUX"):
            self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")
        else:
            super().erase_down()

    def flush(self) -> None:
        """Write the buffered output, unless it is held back."""
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
        """Write all output that was held back."""
        self.is_held = False
        self.flush()


def open_output() -> Output:
    """Return the output. It never queries the cursor position, because some terminals do not answer."""
    if sys.platform == "win32":
        return create_output()
    output = ScreenOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output
