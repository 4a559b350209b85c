"""The notebooks are Databricks' source format, and run from the first cell to the last."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))


def run(notebook: Path, spark) -> dict[str, object]:
    """Cell by cell in one namespace, as a notebook server does it."""
    namespace: dict[str, object] = {"spark": spark, "__name__": "__notebook__"}
    for number, cell in enumerate(notebook.read_text().split("# COMMAND ----------")):
        exec(compile(cell, f"{notebook.name}, cell {number}", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_as_databricks_wants_it(notebook):
    lines = notebook.read_text().splitlines()
    assert lines[0] == "# Databricks notebook source"
    assert lines[1].startswith("# MAGIC %md")


def test_the_quickstart_counts_every_ride(spark):
    ended = run(NOTEBOOKS[0], spark)
    assert ended["rides_read"] == 1000
    assert (ended["first_totals"].rides, ended["second_totals"].rides) == (1000, 2000)
    assert ended["second_totals"].km == 2 * ended["first_totals"].km
    assert ended["lag"] == 0
    assert sum(ended["committed"].values()) == 2000
