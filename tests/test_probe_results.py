"""Results of probes: back as they were, and beside each other only where they can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.probe.report.results import Result, groups, load_results, save_result
from tests.probe_runs import MEASURING, answers_of, corpus_of, put


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    result = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {"hash": answers_of(corpus, [False] * 26)})
    assert load_results(tmp_path) == ([result], [])
    save_result(tmp_path / result.name, result)  # again, in its place
    assert load_results(tmp_path) == ([result], [])


def test_models_have_the_name_of_their_file_if_no_other_has_it(tmp_path: Path) -> None:
    corpus = corpus_of(13)

    def labels(*models: str) -> list[str]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        results = [put(out, corpus, model, answers_of(corpus, [True] * 26), {}) for model in models]
        return list(groups(results)[0].models)

    assert labels("/a/models/clip", "uniter:/b/base.pt", "org/clip-large", "module:function") == [
        "clip", "uniter:base.pt", "org/clip-large", "module:function"
    ]  # fmt: skip
    assert labels("/a/clip/", "/b/clip", "~/blip") == ["/a/clip/", "/b/clip", "blip"]


def test_a_run_has_the_name_of_its_folder(tmp_path: Path) -> None:
    """Also where a person has renamed it, or its file names another folder."""
    corpus = corpus_of(13)
    for model in ("m", "n"):
        put(tmp_path, corpus, model, answers_of(corpus, [True] * 26), {})
    (tmp_path / "made-up-n").rename(tmp_path / "mine")
    file = tmp_path / "made-up-m" / "result-corrected-mean.json"
    file.write_text(file.read_text().replace('"name": "made-up-m"', '"name": "../elsewhere"'))
    results, skipped = load_results(tmp_path)
    assert [result.name for result in results] == ["made-up-m", "mine"] and not skipped
    assert len(groups(results, tmp_path)[0].comparisons) == 1


@pytest.mark.parametrize("change", [{"averages": [{}]}, {"lines": [{}]}, {"version": 2}], ids=str)
def test_load_results_leaves_out_what_it_cannot_read(change: dict[str, Any], tmp_path: Path) -> None:
    corpus = corpus_of(13)
    result = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    file = tmp_path / result.name / "result-corrected-mean.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    results, (why,) = load_results(tmp_path)
    assert results == [] and result.name in why and "\n" not in why


def test_other_rules_and_other_items_are_never_side_by_side(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    lines = answers_of(corpus, [True] * 26)
    one = put(tmp_path, corpus, "m", lines, {})
    other = Result(**{**vars(one), "name": "n", "measuring": {**MEASURING, "sentences": "first"}})
    less = Result(**{**vars(one), "name": "o", "corpus": {**one.corpus, "digest": "f" * 64}})
    made = groups([one, other, less])
    assert len(made) == 3 and len({group.slug for group in made}) == 3
    digest = one.corpus["digest"][:8]
    assert [group.title for group in made] == [
        f"made up, 26 items ({digest}), sentences=mean",
        f"made up, 26 items ({digest}), sentences=first",
        "made up, 26 items (ffffffff), sentences=mean",
    ]


def test_runs_of_one_model_are_told_apart(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    one = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    other = Result(**{**vars(one), "name": "made-up-m-again"})
    assert set(groups([one, other])[0].models) == {"made-up-m", "made-up-m-again"}


def test_each_model_is_compared_with_itself_on_crops(tmp_path: Path) -> None:
    """Of three models one has no crops, and the p-values of the others are adjusted for two comparisons."""
    whole, cropped = corpus_of(26), corpus_of(26, "made up, cropped")
    everything = [True] * 52
    for model, wrong in (("a", 12), ("b", 10), ("c", 0)):
        put(tmp_path, whole, model, answers_of(whole, [n >= wrong for n in range(52)]), {})
        if wrong:
            put(tmp_path, cropped, model, answers_of(cropped, everything), {})
    found = {group.title: group.cropped for group in groups(load_results(tmp_path)[0], tmp_path)}
    assert [(one.first, one.second, one.difference > 0) for one in found["made up"]] == [
        ("a, cropped", "a", True),
        ("b, cropped", "b", True),
    ]
    first, second = found["made up"]
    assert (first.second_accuracy, second.second_accuracy) == pytest.approx((100 * 20 / 26, 100 * 21 / 26))
    assert [first.p_value, second.p_value] == pytest.approx([2 / 2**6, 2 / 2**5])
    assert [first.adjusted, second.adjusted] == pytest.approx([4 / 2**6, 2 / 2**5])
    assert found["made up, cropped"] == ()
