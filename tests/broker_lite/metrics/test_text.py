"""The text that scrapers read, by a strict reader of its own."""

import pytest

from pylog.broker_lite.metrics.families import FAMILIES, Family
from pylog.broker_lite.metrics.text import Histogram, head, histogram, labels, samples
from tests.support.prometheus import parse

GROUP = Family("pylog_group_members", "gauge", ("group",), "Members.")
SECONDS = Family("pylog_request_duration_seconds", "histogram", ("api",), "Times.")


@pytest.mark.parametrize(
    "name",
    ["orders", "", 'said "so"', "back\\slash", "two\nlines", "\\n is not a line", "Gruppe-ä-組", "a,b={}", " "],
)
def test_a_name_comes_through_as_it_is(name):
    metrics = parse(head(GROUP) + samples(GROUP, [(labels(GROUP, name), 2)]))
    assert metrics["pylog_group_members"].value(group=name) == 2


@pytest.mark.parametrize("value", [0, 1, -1, 2**62, 0.25, 1e-7, 1234567890.123])
def test_a_number_comes_through_as_it_is(value):
    assert parse(head(GROUP) + samples(GROUP, [(labels(GROUP, "g"), value)]))[GROUP.name].value(group="g") == value


def test_what_is_not_known_is_left_out():
    text = head(GROUP) + samples(GROUP, [(labels(GROUP, "a"), None), (labels(GROUP, "b"), 0)])
    assert list(parse(text)[GROUP.name].samples) == [(GROUP.name, (("group", "b"),))]


def test_buckets_count_all_that_is_below_them():
    text = head(SECONDS) + histogram(SECONDS, labels(SECONDS, "Fetch"), Histogram((0.1, 1.0), [3, 2, 1], 4.5))
    assert {name: value for (name, _), value in parse(text)[SECONDS.name].samples.items() if "bucket" not in name} == {
        "pylog_request_duration_seconds_sum": 4.5,
        "pylog_request_duration_seconds_count": 6,
    }
    metric = parse(text)[SECONDS.name]
    assert [metric.value(api="Fetch", le=bound) for bound in ("0.1", "1.0", "+Inf")] == [3, 5, 6]


def test_every_name_says_its_kind_and_unit():
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert family.name.startswith(("pylog_", "process_"))
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert family.help.endswith(".")
        assert family.kind != "histogram" or family.name.endswith(("_seconds", "_bytes"))
