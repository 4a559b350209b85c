"""What the broker logs, on standard error: as lines for people (`text`) or one JSON object a line (`json`).

Nothing is logged per request. A warning or an error that comes again and again, as from a client that hammers, is told
some times a minute, and then how often it came besides.
"""

import logging
import time
from collections.abc import Callable

FORMATS = ("text", "json")
SAME_PER_MINUTE_MAX = 50
_MINUTE_S = 60.0
_KINDS_MAX = 1000  # that are remembered

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    handler.addFilter(Repeats())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        import json  # which a broker that logs for people does without

        self._dumps = json.dumps

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{second}.{int(record.created * 1000) % 1000:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return self._dumps(line, ensure_ascii=False)


class Repeats(logging.Filter):
    """Lets so many of a kind pass in a minute. Of one kind is what one line of the code says, whatever it names."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # since when, how often

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now_s = self._now_s()
        kind = (record.name, record.levelno, str(record.msg))
        since_s, count = self._seen.get(kind, (now_s, 0))
        left_out = 0
        if now_s - since_s >= _MINUTE_S:
            left_out = max(count - SAME_PER_MINUTE_MAX, 0)
            since_s, count = now_s, 0
        if len(self._seen) >= _KINDS_MAX and kind not in self._seen:
            self._seen.clear()
        self._seen[kind] = since_s, count + 1
        if left_out:
            _append(record, f"({left_out} more like this were left out)")
        elif count + 1 == SAME_PER_MINUTE_MAX:
            _append(record, "(more like this are left out for a minute)")
        return count < SAME_PER_MINUTE_MAX


def _append(record: logging.LogRecord, words: str) -> None:
    record.msg, record.args = f"{record.getMessage()} {words}", None
