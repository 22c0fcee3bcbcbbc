"""The paper's tables from saved runs, its numbers beside ours: `TABLES["table2"](runs).markdown()`.

All tables follow one rule. A cell averages runs that differ in their seed alone: the converged ones (above random on
test_ind in their own setting), or all where none has converged, as in Table 2. Tables choose runs by their settings and
not by their experiment, as a run of two experiments is trained once. Where runs of a cell differ in another setting
(size, steps, dataset, ...), the cell says so and a note names the difference; `select` chooses among them beforehand. A
cell without runs is blank and counted in `Table.missing`.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.layout import Table
from analysis.runs import Runs
from analysis.tables.ablations import table10, table11, table12, table13, table14
from analysis.tables.facts import table3, table6, table8
from analysis.tables.overview import couples, overview
from analysis.tables.scores import few_shot, frozen, subsets, table2, text_only, transfer
from analysis.tables.two_runs import compare_runs

__all__ = ["TABLES", "compare_runs", "couples", "overview"]

TABLES: dict[str, Callable[[Runs], Table]] = {
    "table2": table2,
    "table3": table3,
    "table6": table6,
    "table8": table8,
    "few_shot": few_shot,
    "table10": table10,
    "table11": table11,
    "table12": table12,
    "table13": table13,
    "table14": table14,
    "subsets": subsets,
    "frozen": frozen,
    "text_only": text_only,
    "transfer": transfer,
}
