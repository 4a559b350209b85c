"""What a request to change options comes to: which option gets which value, None meaning its default.

Pure. Names and values are checked by whoever puts them in force; here it is what the operations themselves can do.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pylog.broker_lite.config_types import Kind, Row, show
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT

OPTIONS_MAX = 1000  # that one resource may be asked to change: no kind of them has as many
Changes = dict[str, str | None]


class Operation(NamedTuple):
    name: str
    code: int
    value: str | None


def replaced(given: Sequence[tuple[str, str | None]], present: Mapping[str, str]) -> Changes:
    """All options at once: those that are not named go back to their defaults."""
    check_once(name for name, _ in given)
    return {**dict.fromkeys(present), **{name: _not_null(name, value) for name, value in given}}


def changed(operations: Sequence[Operation], present: Mapping[str, str], rows: Mapping[str, Row]) -> Changes:
    check_once(operation.name for operation in operations)
    changes: Changes = {}
    for operation in operations:
        if operation.code == DELETE:
            changes[operation.name] = None
        elif operation.code == SET:
            changes[operation.name] = _not_null(operation.name, operation.value)
        elif operation.code in (APPEND, SUBTRACT):
            changes |= _list_changed(operation, present, rows)
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"Operation {operation.code} on {operation.name} is not known."
            )
    return changes


def _list_changed(operation: Operation, present: Mapping[str, str], rows: Mapping[str, Row]) -> Changes:
    """What is not set is its default; what is as it was needs no change."""
    name = operation.name
    row = rows.get(name)
    if row is None or row.kind != Kind.LIST:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: there is nothing to add to or take from.")
    words = row.parse(present[name]) if name in present else row.default
    others = row.parse(_not_null(name, operation.value))
    if operation.code == APPEND:
        after = (*words, *(word for word in others if word not in words))
    else:
        after = tuple(word for word in words if word not in others)
    return {} if after == words else {name: show(after)}


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} has no value.")
    return value


def check_count(options: Sequence[object]) -> None:
    """Of more than there are, some are not known or there twice: to say which would take long."""
    if len(options) > OPTIONS_MAX:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{len(options)} options are more than there are.")


def check_once(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} is there more than once.")
