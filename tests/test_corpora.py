"""What holds for every kind of corpus."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.corpus_files import convert, facts
from tests.helpers import generated
from tests.test_corpora_checklist import publish as publish_checklist
from tests.test_corpora_pairs import publish_sugarcrepe
from tests.test_corpora_predicate_noun import publish as publish_triplets
from tests.test_corpora_predicate_noun import triplets
from travlr import Cardinality, Count
from travlr.audit.checks import audit
from travlr.browse import make_page
from travlr.convert import kind_of, main
from travlr.corpora import KINDS, is_corpus, item_columns
from travlr.dataset import Dataset, open_dataset
from travlr.formats.columns import SCHEMA
from travlr.harness.lmms import Export, export_dataset

PUBLISH: dict[str, Callable[[Path], Path]] = {
    "checklist": publish_checklist,
    "predicate_noun": lambda folder: publish_triplets(folder, triplets(6)),
    "pairs": publish_sugarcrepe,
}


@pytest.fixture(scope="module", params=KINDS)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp(request.param)
    source = PUBLISH[request.param](folder / "source")
    assert kind_of(source) == request.param
    return convert(source, folder / "out")


def test_rows_have_the_columns_of_every_dataset(corpus: Dataset) -> None:
    (path,) = corpus.folder.glob("*.parquet")
    assert pq.read_schema(path).equals(SCHEMA)
    rows = corpus["test_ind"].columns("id", "task", "caption", "objects").to_pylist()
    assert len({row.pop("id") for row in rows}) == len(rows)
    assert all(row == {"task": "match", "caption": "", "objects": []} for row in rows)
    assert corpus.task == "match" and is_corpus(corpus) and list(corpus.splits) == ["test_ind"]


def test_items_and_couples_are_whole_and_true_sentences_come_first(corpus: Dataset) -> None:
    columns, answers = item_columns(corpus, "test_ind"), [answer for *_, answer in facts(corpus)]
    for name in ("item", "couple"):
        runs = [value for value, _ in itertools.groupby(columns[name]) if value]
        assert len(runs) == len(set(runs))
    for _, rows in itertools.groupby(range(len(answers)), lambda row: columns["item"][row]):
        of_item = [answers[row] for row in rows]
        assert of_item == sorted(of_item, reverse=True) and len(set(of_item)) == 2


def test_the_first_rows_have_every_axis(corpus: Dataset) -> None:
    columns = item_columns(corpus, "test_ind")
    units = [couple or item for item, couple in zip(columns["item"], columns["couple"], strict=True)]
    places = list(zip(columns["axis"], columns["source"], strict=True))
    first = list(dict.fromkeys(units))[: len(set(places))]
    assert {place for place, unit in zip(places, units, strict=True) if unit in first} == set(places)


def test_convert_again_gives_the_same_rows(corpus: Dataset, tmp_path: Path) -> None:
    source = corpus.folder.parent / "source"
    assert convert(source, corpus.folder).manifest == corpus.manifest
    assert convert(source, tmp_path / "again").manifest["files"] == corpus.manifest["files"]


def test_the_audit_checks_what_a_corpus_shows(corpus: Dataset) -> None:
    assert {check.status for check in audit(corpus.folder)} == {"ok", "note"}
    table = corpus["test_ind"].columns()
    other = table.set_column(4, "answer", [[True] * table.num_rows])
    (path,) = corpus.folder.glob("*.parquet")
    whole = path.read_bytes()
    try:
        pq.write_table(other, path)
        failed = [check.name for check in audit(corpus.folder) if check.status == "FAIL"]
    finally:
        path.write_bytes(whole)
    assert failed == ["files", "items"]


def test_a_corpus_is_browsed_and_exported(corpus: Dataset, tmp_path: Path) -> None:
    query = corpus["test_ind"][0].query
    assert query in make_page(corpus.folder)
    names = export_dataset(corpus.folder, tmp_path / "lmms", Export())
    assert "travlr_match_image_test_ind.yaml" in names and not any("caption" in name for name in names)
    assert corpus.manifest["corpus"]["name"] in (corpus.folder / "README.md").read_text()


def test_the_published_layout_holds_no_corpus(corpus: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format=original"):
        main([str(corpus.folder), str(tmp_path / "out"), "format=original"])


def test_item_columns_of_scenes_are_couples(tmp_path: Path) -> None:
    dataset = open_dataset(
        generated(tmp_path / "out", Cardinality(count=Count(train=8, validation=0, test_ind=0, test_ood=8)))
    )
    columns = item_columns(dataset, "test_ood", 5)
    assert not is_corpus(dataset)
    assert list(columns["item"]) == list(columns["couple"]) == [f"test_ood/{n // 2}" for n in range(5)]
    pairs = dataset["test_ood"].columns("pair")["pair"].to_pylist()[:5]
    assert np.array_equal(columns["axis"], [pair[0] for pair in pairs]) and set(columns["source"]) == {""}
