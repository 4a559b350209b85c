"""docs/producer.md: its table is that of the code, its numbers are those of the code, and its examples run."""

import re

import pytest

from pylog.connector.client.config import OPTIONS, Role
from pylog.connector.producer import SLICES_IN_BUFFER
from tests.support import option_pages

PATH = option_pages.DOCS / "producer.md"
ORDINALS = {2: "half", 4: "quarter"}
TABLES = {"client": lambda: option_pages.of_client(Role.PRODUCER, prefix="")}


def test_the_table_is_that_of_the_code(request: pytest.FixtureRequest) -> None:
    option_pages.assert_tables(PATH, TABLES, request.config.getoption("--rewrite-transcripts"))


def test_its_numbers_are_those_of_the_code() -> None:
    page = PATH.read_text()
    assert f"which is a {ORDINALS[SLICES_IN_BUFFER]} of it at most" in page
    assert f"`batch.size` is {OPTIONS['batch.size'].default >> 10} KB by default" in page


def test_its_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", PATH.read_text(), re.DOTALL):
        exec(example, names)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("RecordMetadata(topic='orders', partition=0, offset=0, ")
    assert said[1] == "2"
