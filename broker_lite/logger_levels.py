"""Loggers as Kafka's clients see them: a name and a level, changed while the broker runs and forgotten when it stops.

Levels have log4j's names. Python's logging has none below DEBUG, so TRACE is DEBUG.
"""

import logging
from collections.abc import Sequence

from pylog.broker_lite.config_changes import Operation, check_once
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.incremental_alter_configs import DELETE, SET

ROOT = "root"
_LEVEL = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_SHOWN = {level: name for name, level in _LEVEL.items()}


def levels() -> dict[str, str]:
    """Of the root and of every logger that is ours."""
    names = sorted(name for name, logger in logging.root.manager.loggerDict.items() if _is_ours(name, logger))
    return {ROOT: _shown(logging.root), **{name: _shown(logging.getLogger(name)) for name in names}}


def _is_ours(name: str, logger: object) -> bool:
    return name.split(".")[0] == "pylog" and isinstance(logger, logging.Logger)


def _shown(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _SHOWN[max((known for known in _SHOWN if known <= level), default=logging.DEBUG)]


def change(operations: Sequence[Operation], *, validate_only: bool) -> None:
    check_once(operation.name for operation in operations)
    known = levels()
    for name, code, level in operations:
        if code not in (SET, DELETE):
            raise RequestError(ErrorCode.INVALID_REQUEST, "A logger has one level: it can be set or deleted.")
        if name not in known:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"There is no logger '{name}'.")
        if code == DELETE and name == ROOT:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The root logger keeps a level; set another one.")
        if code == SET and level not in _LEVEL:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"'{level}' is not a level of '{name}'; levels are {', '.join(_LEVEL)}."
            )
    if not validate_only:
        for name, code, level in operations:
            logging.getLogger(None if name == ROOT else name).setLevel(
                logging.NOTSET if code == DELETE else _LEVEL[level or ""]
            )
