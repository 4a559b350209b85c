"""The page on the protocol says what the broker advertises."""

import re
from pathlib import Path

from pylog.broker_lite.apis.api_versions import _ranges

PAGE = Path(__file__).parents[1] / "docs/protocol.md"
ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+)(?:-(\d+))? \|", re.MULTILINE)


def test_every_api_is_on_the_page_with_its_versions() -> None:
    said = {int(key): (int(low), int(high or low)) for _, key, low, high in ROW.findall(PAGE.read_text())}
    assert said == {one.api_key: (one.min_version, one.max_version) for one in _ranges()}
