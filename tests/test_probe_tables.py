"""Tables of made-up results, and what a terminal shows of them."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.layout import Table
from analysis.probe.report.metrics import MACRO, MICRO
from analysis.probe.report.results import groups, load_results
from analysis.probe.report.tables import interval_text, tables, terminal_summary
from tests.probe_runs import AXES, answers_of, by_axis, corpus_of, group_of, made, put
from travlr.corpora.taxonomy import PaperAverage


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("probes"))


def test_tables_hold_every_number_and_the_coverage(out: Path) -> None:
    found = {table.name: table for group in groups(load_results(out)[0], out) for table in tables(group)}
    rows = list(csv.DictReader(io.StringIO(found["made-up-accuracy"].csv())))
    assert {row["answered_by"] for row in rows} == {"first", "second"}
    assert [row["value"] for row in rows if row["answered_by"] == "first"] == [MICRO, MACRO, *AXES]
    corpus = corpus_of()
    right = dict(zip((i.id for i in corpus.items), by_axis(corpus), strict=True))
    for axis in AXES:
        row = next(row for row in rows if (row["answered_by"], row["value"]) == ("first", axis))
        here = [right[item.id] for item in corpus.items if item.axis == axis]
        assert float(row["single"]) == pytest.approx(100 * np.mean(here))
    name = next(name for name in found if "script" in name and name.endswith("accuracy"))
    other = list(csv.DictReader(io.StringIO(found[name].csv())))
    for row in [*rows, *other]:
        parts = [int(row[name]) for name in ("scored", "missing", "unreadable", "failed")]
        assert int(row["total"]) == sum(parts)
    assert other[0]["missing"] == "4" and other[0]["mixed"] == "N1 and N2"
    assert found[name].rows[0][0].text == f"{MICRO} (mixes N1, N2)"
    assert "total = scored + missing + unreadable + failed" in found[name].markdown()
    assert found[name].rows[0][2].text == "52 = 48 + 4 + 0 + 0"
    baselines = list(csv.DictReader(io.StringIO(found["made-up-baselines"].csv())))
    assert {row["answered_by"] for row in baselines} == {"shorter", "hash", "blank picture (first)"}


def test_models_are_compared_from_their_answers(out: Path) -> None:
    table = next(table for table in tables(group_of(out)) if table.name == "made-up-compared")
    (row,) = csv.DictReader(io.StringIO(table.csv()))
    assert (row["first"], row["second"], row["of"], row["number"]) == ("first", "second", "pairs", "130")
    assert float(row["second_accuracy"]) == 100 and row["differs"] == "True"
    right = np.array(by_axis(corpus_of())).reshape(-1, 2).all(axis=1)
    assert float(row["first_accuracy"]) == pytest.approx(100 * right.mean())


def test_bold_is_above_what_every_blind_rule_reaches(out: Path) -> None:
    found = {table.name: table for table in tables(group_of(out))}
    table = found["made-up-accuracy"]
    bold = {(row[0].text, row[1].text) for row in table.rows if row[3].bold}
    assert (AXES[12], "second") in bold and (AXES[2], "second") not in bold  # there `shorter` has all right, too
    assert (AXES[0], "first") not in bold
    baselines = found["made-up-baselines"]
    assert {row[1].text for row in baselines.rows} == {"shorter", "hash", "blank picture (first)"}
    assert not any(cell.bold for row in baselines.rows for cell in row)


def test_bold_is_above_coins_and_the_best(tmp_path: Path) -> None:
    """Above a blind rule that is nearly always wrong is not yet good, and of good models the best alone is bold."""
    corpus = corpus_of(130)
    share = [n // 2 % 10 for n in range(260)]  # of pairs
    put(tmp_path, corpus, "", [], {"shorter": answers_of(corpus, [part < 1 for part in share])})
    for model, most in (("poor", 4), ("good", 8), ("best", 9)):
        put(tmp_path, corpus, model, answers_of(corpus, [part < most for part in share]), {})
    (group,) = groups(load_results(tmp_path)[0], tmp_path)
    (table,) = [table for table in tables(group) if table.name == "made-up-accuracy"]
    rows = {row[1].text: row[3] for row in table.rows if row[0].text == MICRO}
    assert {model: cell.text[:4] for model, cell in rows.items()} == {"poor": "40.0", "good": "80.0", "best": "90.0"}
    assert [model for model, cell in rows.items() if cell.bold] == ["best"]


def column(table: Table, name: str) -> list[str]:
    place = [what for _, what in table.columns].index(name)
    return [row[place].text for row in table.rows]


def test_baselines_stand_beside_every_number(out: Path) -> None:
    table = next(table for table in tables(group_of(out)) if table.name == "made-up-accuracy")
    found = dict(zip(zip(column(table, "items"), column(table, "answered by"), strict=True), table.rows, strict=True))
    names = [what for _, what in table.columns]
    rule, blank = names.index("blind rule"), names.index("blank picture")
    assert found[AXES[2], "first"][rule].text == "100.0 shorter"
    assert found[AXES[3], "first"][rule].text == "50.0"  # both rules have as much
    assert found[AXES[3], "first"][blank].text == "0.0" and found[AXES[3], "second"][blank].text == ""
    assert names.count("blind rule") == 2 and "other pictures" not in names  # nobody was shown those
    assert "read the sentences alone" not in "".join(table.all_notes) and "reads the sentences alone" not in names
    assert any("Blind rule:" in note for note in table.all_notes)


def test_itm_is_told_with_an_interval_where_it_was_asked(tmp_path: Path) -> None:
    corpus = corpus_of(26)
    put(tmp_path, corpus, "m", answers_of(corpus, by_axis(corpus)), {}, task="itm", threshold=0.5)
    put(tmp_path, corpus, "n", answers_of(corpus, by_axis(corpus)), {}, threshold=0.5)
    (group,) = groups(load_results(tmp_path)[0])
    line = group.models["m"][0]
    text = interval_text(line.itm_accuracy, line.itm_low, line.itm_high)
    assert "[" in text
    table = next(table for table in tables(group) if table.name == "made-up-matching")
    assert column(table, "right % [95 %]")[0] == text
    names = next(csv.reader(io.StringIO(table.csv())))
    assert "itm_low" in names and "published" in names and "pair_accuracy" not in names
    assert "sentences right % [95 %]" in terminal_summary(group) and text in terminal_summary(group)
    alone = replace(group, results=tuple(one for one in group.results if one.model == "n"), models={"n": (line,)})
    assert "sentences right" not in terminal_summary(alone)


def test_averages_without_a_number_are_named_in_a_note(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    result = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    averages = (
        PaperAverage("Object", "mean of its six axes", 61.5),
        PaperAverage("Relation", "mean of both", None, ("Relation/action",)),
    )
    (group,) = groups([replace(result, averages=averages)])
    table = next(table for table in tables(group) if table.name == "made-up-averages")
    assert column(table, "average") == ["Object"] and column(table, "right %") == ["61.50"]
    assert any("Relation" in note for note in table.all_notes) and "Relation/action" in table.csv()


def test_a_group_is_printed_with_its_baselines(out: Path) -> None:
    text = terminal_summary(group_of(out))
    line = next(line for line in group_of(out).models["first"] if line.value == MICRO)
    assert interval_text(line.single, line.single_low, line.single_high) in text
    row = next(row for row in text.splitlines() if row.startswith(AXES[2]))
    assert "100.0 shorter" in row and " 50.0 " not in row and max(map(len, text.splitlines())) < 160
    assert text.count(AXES[2]) == 2  # in the flag, and on the first of its two lines
    assert text.count("blind rule") == 3  # above the numbers of items and of pairs, and where flags are explained
