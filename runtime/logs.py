"""Logs: one JSON object a line on stderr, a constant event name with its fields beside it.

`log.info("batch_sent", extra={"batch_id": 7})` gives
`{"time": "...", "level": "INFO", "component": "gpu0", "event": "batch_sent", "batch_id": 7, ...}`.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

# What every LogRecord has; whatever else a record carries came in through `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; `component` says which process speaks."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self.component = component

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break at its end."""
        when = datetime.fromtimestamp(record.created, tz=UTC)
        entry: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "component": self.component,
            "event": record.getMessage(),
        }
        entry.update({k: v for k, v in vars(record).items() if k not in _STANDARD})
        if record.name != "root":
            entry["logger"] = record.name
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def setup_logging(level: str, component: str) -> None:
    """Send this process's log to stderr; replaces what was set up before.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
        component: `server` or the executor's id.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(component))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
