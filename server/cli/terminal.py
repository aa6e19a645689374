"""What a command shows: lines on stdout and stderr, and a bar that redraws itself on a terminal.

Whatever comes from a workflow or a server is shown without control characters, so that it can't
steer the terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Final, TextIO

_BAR_CHARACTERS: Final = 24
_NARROW: Final = 20


def plain(text: str) -> str:
    """`text` with every control character replaced; tabs become blanks."""
    return "".join(
        character if character.isprintable() else " " if character == "\t" else "�"
        for character in text
    )


def put(line: str) -> None:
    """A line of the command's result, on stdout."""
    sys.stdout.write(plain(line) + "\n")
    sys.stdout.flush()


def put_json(document: object) -> None:
    """The command's result as one JSON document, on stdout."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()


def tell(line: str) -> None:
    """A remark beside the result, on stderr."""
    sys.stderr.write(plain(line) + "\n")
    sys.stderr.flush()


class ProgressBar:
    """One line that is redrawn on a terminal; elsewhere a line per change of text or quarter."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._last_text = ""
        self._last_quarter = 0
        self._is_drawn = False

    def show(self, share: float, text: str, detail: str = "") -> None:
        """Show that `share` (0 to 1) is done, what is worked on, and a detail of it."""
        share = min(1.0, max(0.0, share))
        if self._is_terminal:
            self._redraw(share, f"{text} {detail}".strip())
            return
        quarter = int(share * 4)
        if text == self._last_text and quarter == self._last_quarter:
            return
        self._last_text, self._last_quarter = text, quarter
        self._write(f"{share:4.0%} {plain(f'{text} {detail}'.strip())}\n")

    def close(self) -> None:
        """Leave the line; what follows starts on a new one."""
        if self._is_drawn:
            self._write("\n")
            self._is_drawn = False

    def _redraw(self, share: float, text: str) -> None:
        filled = round(share * _BAR_CHARACTERS)
        bar = "█" * filled + "░" * (_BAR_CHARACTERS - filled)
        room = shutil.get_terminal_size().columns - _BAR_CHARACTERS - 8
        words = plain(text)
        if len(words) > max(room, _NARROW):
            words = words[: max(room, _NARROW) - 1] + "…"
        self._write(f"\r\x1b[K{bar} {share:4.0%} {words}")
        self._is_drawn = True

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:  # a terminal that knows ASCII only
            self._stream.write(text.encode("ascii", "replace").decode("ascii"))
        self._stream.flush()
