"""From an option's text to its value: each raises ValueError with what the text must be, to stand behind its name."""

import json
import re
import warnings
from collections.abc import Callable
from typing import Any

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.spark.offsets import Offsets, by_partition

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_ASSIGN = 'must be JSON of topics and their partitions, like {"topic": [0, 1]}'
_TIMES = 'must be JSON of topics, partitions and milliseconds since 1970, like {"topic": {"0": 1700000000000}}'
_DURATION = re.compile(r"(\d+)([a-z]*)")
_UNIT_US = {
    "us": 1,
    "ms": 1_000,
    "": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ValueError("must be true or false")
    return found


def _whole(text: str, least: int, most: int, what: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ValueError(what)
    return value


def positive(text: str) -> int:
    return _whole(text, 1, _INT64_MAX, "must be a whole number above 0")


def positive_int(text: str) -> int:
    return _whole(text, 1, _INT32_MAX, f"must be a whole number above 0, {_INT32_MAX} at most")


def milliseconds(text: str) -> int:
    return _whole(text, 0, _INT32_MAX, f"must be a whole number of milliseconds, {_INT32_MAX} at most")


def time_ms(text: str) -> int:
    return _whole(text, 0, _INT64_MAX, "must be a whole number: milliseconds since 1970")


def duration_ms(text: str) -> int:
    """As Spark reads durations: a number with us, ms, s, m, min, h or d behind it, or nothing for milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if not found or found[2] not in _UNIT_US or int(found[1]) > _INT64_MAX:
        raise ValueError("must be a duration: a whole number, and us, ms (if there is none), s, m, min, h or d")
    return int(found[1]) * _UNIT_US[found[2]] // 1000


def choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        found = text.strip().lower()
        if found not in values:
            raise ValueError(f"must be {' or '.join(values)}")
        return found

    return parse


def name(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def topic(text: str) -> str:
    if not text.strip():
        raise ValueError("must name a topic")
    return text.strip()


def topics(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not found:
        raise ValueError("must name at least one topic, several with commas between")
    return found


def pattern(text: str) -> str:
    """A regular expression. What Java reads in another way than Python is not let through: Python warns of most."""
    if not text.strip():
        raise ValueError("must be a regular expression for the names of topics, and is empty")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            re.compile(text.strip(), re.ASCII)
        except (re.error, Warning, OverflowError, RecursionError) as error:
            raise ValueError(f"must be a regular expression that Python's re knows: {error}") from None
    return text.strip()


def assignment(text: str) -> tuple[TopicPartition, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError(_ASSIGN) from None
    if not isinstance(found, dict) or not all(isinstance(ids, list) for ids in found.values()):
        raise ValueError(_ASSIGN)
    places = {(topic, partition) for topic, ids in found.items() for partition in ids if _is_partition(partition)}
    if not places or any(not _is_partition(partition) for ids in found.values() for partition in ids):
        raise ValueError(_ASSIGN)
    return tuple(sorted(places))


def _is_partition(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _INT32_MAX


def times_ms(text: str) -> Offsets:
    try:
        return by_partition(json.loads(text), 0)
    except ValueError:
        raise ValueError(_TIMES) from None
