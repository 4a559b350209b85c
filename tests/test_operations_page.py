"""docs/operations.md: its table of metrics is the code's, and its queries name what there is."""

import re
from pathlib import Path

from pylog.broker_lite.log_format import SAME_PER_MINUTE_MAX
from pylog.broker_lite.metrics.families import FAMILIES
from pylog.broker_lite.metrics.lag import LOOKS_MAX

PATH = Path(__file__).parents[1] / "docs" / "operations.md"
_TABLE = re.compile(r"(<!-- metrics: .*? -->\n)(.*?)(<!-- /metrics -->)", re.DOTALL)
_NAME = re.compile(r"\b(?:pylog|process)_[a-z_]+\b")


def table() -> str:
    rows = [f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.help} |" for one in FAMILIES]
    return "\n".join(["| name | kind | labels | |", "|---|---|---|---|", *rows]) + "\n"


def test_the_table_is_that_of_the_code(request):
    page = PATH.read_text()
    if request.config.getoption("--rewrite-transcripts"):
        page = _TABLE.sub(lambda found: found[1] + table() + found[3], page)
        PATH.write_text(page)
    found = _TABLE.search(page)
    assert found
    assert found[2] == table(), "--rewrite-transcripts writes it anew"


def test_every_metric_that_is_spoken_of_is_there():
    told = {family.name for family in FAMILIES}
    for suffix in ("_bucket", "_count", "_sum"):
        told |= {family.name + suffix for family in FAMILIES if family.kind == "histogram"}
    spoken_of = set(_NAME.findall(_TABLE.sub("", PATH.read_text()))) - {"pylog_broker"}
    assert spoken_of <= told


def test_its_numbers_are_those_of_the_code():
    page = PATH.read_text()
    assert f"{SAME_PER_MINUTE_MAX} times a minute" in page
    assert f"for {LOOKS_MAX:,} partitions at most" in page
