import logging

import pytest

from pylog.broker_lite import logger_levels
from pylog.broker_lite.config_changes import Operation
from pylog.broker_lite.protocol.incremental_alter_configs import DELETE, SET

NAME = "pylog.some.logger"


@pytest.fixture(autouse=True)
def logger():
    logger = logging.getLogger(NAME)
    before = logging.root.level
    logging.root.setLevel(logging.WARNING)
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.root.setLevel(before)


def test_ours_and_the_root_are_there_and_nobody_elses():
    logging.getLogger("somebody.else")
    levels = logger_levels.levels()
    assert (levels["root"], levels[NAME]) == ("WARN", "WARN")
    assert all(name == "root" or name.startswith("pylog") for name in levels)


@pytest.mark.parametrize(
    ("level", "python", "shown"),
    [
        pytest.param("TRACE", logging.DEBUG, "DEBUG"),
        pytest.param("DEBUG", logging.DEBUG, "DEBUG"),
        pytest.param("INFO", logging.INFO, "INFO"),
        pytest.param("WARN", logging.WARNING, "WARN"),
        pytest.param("ERROR", logging.ERROR, "ERROR"),
        pytest.param("FATAL", logging.CRITICAL, "FATAL"),
    ],
)
def test_a_level_is_set_and_shown(logger, level, python, shown):
    logger_levels.change([Operation(NAME, SET, level)], validate_only=True)
    assert logger.level == logging.NOTSET
    logger_levels.change([Operation(NAME, SET, level)], validate_only=False)
    assert logger.level == python
    assert logger_levels.levels()[NAME] == shown


def test_without_a_level_of_its_own_it_has_that_of_the_root(logger):
    logger_levels.change([Operation(NAME, SET, "DEBUG"), Operation("root", SET, "ERROR")], validate_only=False)
    logger_levels.change([Operation(NAME, DELETE, None)], validate_only=False)
    assert logger_levels.levels()[NAME] == "ERROR"
    assert logging.root.level == logging.ERROR


def test_a_level_between_two_is_shown_as_the_one_that_lets_more_pass(logger):
    logger.setLevel(logging.INFO + 5)
    assert logger_levels.levels()[NAME] == "INFO"
