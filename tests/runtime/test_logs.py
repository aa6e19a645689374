from __future__ import annotations

import json
import logging
import subprocess
import sys

from nodeloom.runtime.logs import JsonFormatter


def formatted(**extra: object) -> dict[str, object]:
    record = logging.getLogger("nodeloom.x").makeRecord(
        "nodeloom.x", logging.INFO, __file__, 1, "batch_sent", (), None, extra=extra
    )
    line = JsonFormatter("e0").format(record)
    assert "\n" not in line
    decoded: dict[str, object] = json.loads(line)
    return decoded


def test_a_record_is_an_event_with_its_fields() -> None:
    entry = formatted(batch_id=7, model="sd15/vae", where=("a", "b"))
    time = entry.pop("time")
    assert str(time).endswith("+00:00")
    assert entry == {
        "level": "INFO",
        "component": "e0",
        "logger": "nodeloom.x",
        "event": "batch_sent",
        "batch_id": 7,
        "model": "sd15/vae",
        "where": ["a", "b"],
    }


def test_what_json_does_not_know_and_line_breaks_stay_on_one_line() -> None:
    entry = formatted(path=object, reason="two\nlines", broken="\ud800".encode("utf-8", "replace"))
    assert entry["path"] == "<class 'object'>"
    assert entry["reason"] == "two\nlines"


def test_errors_and_warnings_reach_stderr_with_their_traceback() -> None:
    program = (
        "import logging, warnings\n"
        "from nodeloom.runtime.logs import setup_logging\n"
        "setup_logging('INFO', 'server')\n"
        "logging.getLogger('a').debug('unheard')\n"
        "warnings.warn('careful')\n"
        "try:\n  1 / 0\nexcept ZeroDivisionError:\n  logging.getLogger('a').exception('broken')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=True
    )
    entries = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [entry["level"] for entry in entries] == ["WARNING", "ERROR"]
    assert "careful" in entries[0]["event"]
    assert entries[1]["event"] == "broken"
    assert "ZeroDivisionError" in entries[1]["traceback"]
    assert ran.stdout == ""
