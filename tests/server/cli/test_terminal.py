"""What goes to a terminal: a bar that redraws itself there, plain lines elsewhere, nothing else."""

from __future__ import annotations

import io

from kit.prompts import txt2img
from nodeloom.server.cli.run_progress import RunProgress
from nodeloom.server.cli.terminal import ProgressBar, plain
from nodeloom.server.client import Heard


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_never_reach_the_terminal() -> None:
    assert plain("a\x1b[31mb\tc\r\n\x9bd") == "a\ufffd[31mb c\ufffd\ufffd\ufffdd"
    stream = Terminal()
    ProgressBar(stream).show(0.5, "node \x1b]0;title\x07")
    assert "\x1b]" not in stream.getvalue()


def test_a_terminal_gets_one_line_that_is_redrawn() -> None:
    stream = Terminal()
    bar = ProgressBar(stream)
    bar.show(0.0, "a")
    bar.show(0.5, "b", "step 1 of 2")
    bar.close()
    assert stream.getvalue().count("\n") == 1
    assert " 50% b step 1 of 2" in stream.getvalue()


def test_elsewhere_a_line_is_written_per_text_and_quarter() -> None:
    stream = io.StringIO()
    bar = ProgressBar(stream)
    for step in range(101):
        bar.show(step / 100, "sampling", f"step {step}")
    assert stream.getvalue().splitlines() == [
        "  0% sampling step 0",
        " 25% sampling step 25",
        " 50% sampling step 50",
        " 75% sampling step 75",
        "100% sampling step 100",
    ]


def test_the_share_grows_with_every_message_and_ends_at_the_whole() -> None:
    stream = io.StringIO()
    progress = RunProgress(txt2img(steps=4), ProgressBar(stream))
    states = [("running", value, 4) for value in range(5)]
    progress.hear(Heard(type="execution_cached", data={"nodes": ["4", "5"]}))
    progress.hear(Heard(type="executing", data={"node": "3"}))
    for state, value, most in [("running", 0.0, 1.0), *states, ("finished", 4, 4)]:
        nodes = {"3": {"state": state, "value": value, "max": most}}
        progress.hear(Heard(type="progress_state", data={"nodes": nodes}))
    progress.hear(Heard(type="execution_success", data={}))
    shares = [int(line[:4].strip("% ")) for line in stream.getvalue().splitlines()]
    assert shares == sorted(shares)
    assert shares[-1] == 100
