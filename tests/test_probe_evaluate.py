"""The toolbox's interface: both sets of rules against naive ones, and models that fail."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.probe.corpora.items import STATUSES
from analysis.probe.evaluate import Evaluate
from tests.test_probe_checklist import draw, publish, run_file


class Told:
    """A model whose probability of a sentence is told; it fails for some pictures, and counts its calls."""

    def __init__(self, told: Mapping[str, float], failing: Sequence[str] = (), rows: int | None = None) -> None:
        self.told, self.failing, self.rows, self.calls = told, failing, rows, 0

    def model_name(self) -> str:
        return "told"

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> dict[str, Any]:
        self.calls += 1
        assert src_type == "local" and len(image_paths) == len(texts)
        if any(Path(path).name in self.failing for path in image_paths):
            raise RuntimeError("out of\nmemory")
        probabilities = [self.told.get(text, 0.5) for text in texts]
        return {"probs": [[1 - p, p] for p in probabilities][: self.rows]}


@pytest.fixture
def checklist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with six pictures of eight, and the folder that a run writes to."""
    monkeypatch.chdir(tmp_path)
    records = [[f"{n}.jpg", {"POS": [f"p{n}", "x"], "NEG": [f"n{n}", "y"]}] for n in range(8)]
    publish(tmp_path, {"Attribute/color/vg": records})
    draw(tmp_path / "vg", *(f"{n}.jpg" for n in range(8) if n not in (1, 4)))
    return tmp_path


TOLD = {
    "p0": 0.9,
    "n0": 0.1,
    "p2": 0.4,
    "n2": 0.2,
    "p3": 0.1,
    "n3": 0.6,
    "p5": 0.7,
    "n5": 0.7,
    "p6": 0.8,
    "x": 0.6,
    "y": 0.3,
}


def evaluate(folder: Path, model: Any, rules: str = "published", **changed: Any) -> dict[str, Any]:
    run = run_file(folder, **({"MAX_NUM": 0, "OUTPUT": {"DIR": "out", "NUM": 1}} | changed))
    lines: list[str] = []
    result = Evaluate(run, model=model, rules=rules, log=lines.append).start()["Attribute_color_vg"]
    assert any(line.startswith("Attribute_color_vg: ") for line in lines)
    return result


def test_evaluate_writes_what_is_published_and_each_item(checklist: Path) -> None:
    found = evaluate(checklist, Told(TOLD))
    written = json.loads((checklist / "out/itc/Attribute_color_vg.json").read_text())
    assert written == json.loads(json.dumps(found))
    assert (found["total_acc"], found["number_of_data"], found["task"], found["model_name"]) == (0.5, 6, "itc", "told")
    assert (found["total"], found["scored"], found["missing"], found["ties"]) == (8, 6, 2, 2)  # 5, and 7 of no words
    (right,), (wrong,) = found["sample_correct_outputs"], found["sample_incorrect_outputs"]
    assert set(right) == {"img_path", "pos_score", "pos_txt", "neg_score", "neg_txt", "result"}
    assert (right["result"], wrong["result"]) == ("correct", "incorrect") and right["pos_score"] > right["neg_score"]
    lines = [json.loads(line) for line in (checklist / "out/itc/Attribute_color_vg.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines] == ["scored", "missing", "scored", "scored", "missing"] + ["scored"] * 3
    assert lines[0]["positive_scores"] == [0.9] and lines[0]["positives"] == ["p0"]
    assert sorted(path.name for path in (checklist / "out/itc").iterdir()) == [
        "Attribute_color_vg.json", "Attribute_color_vg.jsonl",
    ]  # fmt: skip


def test_evaluate_takes_the_head_of_what_is_there_or_a_sample_of_all(checklist: Path) -> None:
    found = evaluate(checklist, Told(TOLD), MAX_NUM=7)
    assert (found["total_acc"], found["number_of_data"], found["total"]) == (round(2 / 3, 4), 3, 4)  # 0, 2, 3 of 0 to 3
    sample = evaluate(checklist, Told(TOLD), "corrected", MAX_NUM=8)
    assert sample["total"] == 4 and sample["rules"] == "corrected"


def test_evaluate_scores_itm(checklist: Path) -> None:
    found = evaluate(checklist, Told(TOLD), TASK="ITM")
    assert (found["tp"], found["fn"], found["fp"], found["tn"]) == (3, 3, 2, 4)
    assert found["total_acc"] == round(7 / 12, 4) and found["number_of_data"] == 12
    assert set(found["sample_correct_outputs"][0]) == {"img_path", "score", "text", "result"}
    every = evaluate(checklist, Told(TOLD), "corrected", TASK="itm")
    assert every["tp"] + every["fn"] + every["fp"] + every["tn"] == 24
    assert (checklist / "out/itm").is_dir()


@pytest.mark.parametrize("told", [1.0, 0.0])
def test_a_model_that_is_always_right_or_wrong_loses_no_result(told: float, checklist: Path) -> None:
    scores = {f"p{n}": told for n in range(8)} | {f"n{n}": 1 - told for n in range(8)} | {"x": told, "y": 1 - told}
    for rules in ("published", "corrected"):
        found = evaluate(checklist, Told(scores), rules, OUTPUT={"DIR": f"out {rules}", "NUM": 5})
        assert found["total_acc"] == told
        counts = [len(found[f"sample_{name}_outputs"]) for name in ("correct", "incorrect")]
        assert counts == ([5, 0] if told else [0, 5])


def test_what_a_model_fails_at_is_counted_and_takes_nothing_with_it(checklist: Path) -> None:
    (checklist / "vg/6.jpg").write_bytes(b"no picture")
    model = Told(TOLD | {"p2": math.nan}, failing=["3.jpg", "6.jpg"])
    found = evaluate(checklist, model, BATCH_SIZE=8)
    assert {name: found[name] for name in STATUSES} == {"scored": 3, "missing": 2, "unreadable": 1, "failed": 2}
    lines = [json.loads(line) for line in (checklist / "out/itc/Attribute_color_vg.jsonl").read_text().splitlines()]
    why = {line["id"].rpartition("/")[2]: line["why"] for line in lines if line["status"] in ("failed", "unreadable")}
    assert why["2"] == "returned nan for 'p2'" and why["3"] == "RuntimeError: out of memory"
    assert why["6"].startswith("vg/6.jpg: cannot identify image file")
    short = evaluate(checklist, Told(TOLD, rows=0), OUTPUT={"DIR": "short"})
    assert (short["failed"], short["unreadable"], short["total_acc"]) == (5, 1, None)
    assert short["first_failure"] == "predict returned 0 rows for 2 pictures and texts"
    nothing = evaluate(checklist, Told(TOLD), MAX_NUM=1, OUTPUT={"DIR": "nothing"})
    assert (nothing["total"], nothing["total_acc"]) == (0, None)


def test_a_stopped_run_goes_on_where_it_stopped(checklist: Path) -> None:
    class Stopped(Told):
        def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> dict[str, Any]:
            if self.calls == 4:
                raise KeyboardInterrupt
            return super().predict(image_paths, texts, src_type)

    with pytest.raises(KeyboardInterrupt):
        evaluate(checklist, Stopped(TOLD), BATCH_SIZE=2)
    (part,) = (checklist / "out/itc").glob("*.unfinished")
    with open(part / "answers.jsonl", "a") as file:
        file.write('{"id": "cut o')
    model = Told(TOLD)
    whole = evaluate(checklist, model, BATCH_SIZE=2)
    assert model.calls == 2 and not part.exists()  # of six
    fresh = evaluate(checklist, Told(TOLD), BATCH_SIZE=3, OUTPUT={"DIR": "fresh", "NUM": 1})
    assert {k: v for k, v in whole.items() if k != "eval_time"} == {k: v for k, v in fresh.items() if k != "eval_time"}


def test_malformed_records_are_counted_in_the_result_of_their_file(checklist: Path) -> None:
    good = ["0.jpg", {"POS": ["p0"], "NEG": ["n0"]}]
    publish(checklist, {"Attribute/color/vg": [good, [], ["0.jpg", {"POS": ["p0"]}]]})
    found = evaluate(checklist, Told(TOLD))
    assert (found["total"], found["scored"], found["refused"]) == (1, 1, 2)


def test_engines_may_give_lists_arrays_or_matches_alone(checklist: Path) -> None:

    shapes: list[Any] = [
        lambda p: {"probs": np.array([[1 - x, x] for x in p])},
        lambda p: {"probs": p},
        lambda p: ([[1 - x, x] for x in p],),
    ]
    for number, shape in enumerate(shapes):

        class Other(Told):
            def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> Any:
                return shape([self.told.get(text, 0.5) for text in texts])  # noqa: B023

        assert evaluate(checklist, Other(TOLD), OUTPUT={"DIR": f"out{number}"})["total_acc"] == 0.5


def test_pictures_outside_of_their_folder_are_not_given_to_a_model(checklist: Path) -> None:
    draw(checklist.parent, "secret.jpg")
    names = ["../../secret.jpg", "/etc/hostname", "a\0b.jpg", "x" * 300, "x/" * 3000, "a\nb.jpg"]
    publish(checklist, {"Attribute/color/vg": [[name, {"POS": ["p"], "NEG": ["n"]}] for name in names]})
    model = Told(TOLD)
    found = evaluate(checklist, model)
    assert (found["unreadable"], found["missing"], model.calls) == (5, 1, 0)
    lines = [json.loads(line) for line in (checklist / "out/itc/Attribute_color_vg.jsonl").read_text().splitlines()]
    assert all(line["why"] and "\n" not in line["why"] for line in lines)
    assert [line["why"].split(" ", 1)[1] for line in lines[:3]] == ["leaves the folder of pictures"] * 2 + [
        "is not a file name"
    ]


def test_a_model_without_a_name_is_called_by_its_class(checklist: Path) -> None:
    class Plain:
        def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> dict[str, Any]:
            return {"probs": [[0.5, 0.5]] * len(texts)}

    assert evaluate(checklist, Plain())["model_name"] == "Plain"


def test_evaluate_needs_records_a_model_and_known_rules(checklist: Path) -> None:
    with pytest.raises(ValueError, match="needs a model with predict"):
        Evaluate(run_file(checklist), model=object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rules=both: choose one of corrected, published"):
        Evaluate(run_file(checklist), Told(TOLD), rules="both")
    with pytest.raises(ValueError, match="needs the path of a run file and a model"):
        Evaluate(config=run_file(checklist))
    publish(checklist, {"Attribute/color/vg": []})
    with pytest.raises(ValueError, match="empty data files: 1 of 1"):
        Evaluate(config=run_file(checklist), model=Told(TOLD))


# Rules ---------------------------------------------------------------------------------------------------------------

Row = tuple[str, list[float], list[float]]
"""A status, and the probabilities of true and of false sentences."""


def naive_itc(rows: list[Row], most: int) -> float | None:
    """As the released code is described: what is there, the first of it, first captions, strictly above."""
    there = [row for row in rows if row[0] != "missing"]
    there = there[: int(most / 2)] if most else there
    results = [true[0] > false[0] for status, true, false in there if status == "scored"]
    return results.count(True) / len(results) if results else None


def naive_itm(rows: list[Row], most: int) -> tuple[int, int, int, int]:
    """True sentences and false ones in turn, the first of them, and what does not come off skipped."""
    turns = [(row, label) for row in rows if row[0] != "missing" for label in (1, 0)]
    tp = tn = fp = fn = 0
    for (status, true, false), label in turns[:most] if most else turns:
        if status != "scored":
            continue
        lines = 1 if (true if label else false)[0] > 0.5 else 0
        tp += lines == 1 and label == 1
        tn += lines == 0 and label == 0
        fp += lines == 1 and label == 0
        fn += lines == 0 and label == 1
    return tp, fn, fp, tn


probabilities = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=3)
a_row = st.tuples(st.sampled_from(("scored", "scored", *STATUSES)), probabilities, probabilities)


def told(folder: Path, rows: list[Row]) -> Told:
    """A model that says what the rows say, of a corpus with their pictures."""
    says: dict[str, float] = {}
    records = []
    for n, (status, true, false) in enumerate(rows):
        texts = {side: [f"{side}{n} {k}" for k in range(len(p))] for side, p in (("POS", true), ("NEG", false))}
        says |= dict(zip((*texts["POS"], *texts["NEG"]), (*true, *false), strict=True))
        says |= {text: math.nan for text in (*texts["POS"], *texts["NEG"]) if status == "failed"}
        records.append([f"{n}.jpg", texts])
        if status != "missing":
            draw(folder / "vg", f"{n}.jpg")
        if status == "unreadable":
            (folder / f"vg/{n}.jpg").write_bytes(b"no picture")
    publish(folder, {"Attribute/color/vg": records})
    return Told(says)


def divided(part: float, whole: float) -> Any:
    return pytest.approx(part / whole) if whole else None


@settings(max_examples=25)
@given(st.lists(a_row, min_size=1, max_size=9), st.integers(0, 12))
def test_the_published_rules_are_those_of_the_released_code(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], most: int
) -> None:
    folder = tmp_path_factory.mktemp("published")
    model = told(folder, rows)
    there = [row for row in rows if row[0] != "missing"]
    for task in ("itc", "itm"):
        run = run_file(folder, TASK=task, MAX_NUM=most, OUTPUT={"DIR": str(folder / "out")})
        lines: list[str] = []
        quiet: Any = {"folder": folder, "rules": "published", "log": lines.append}
        (found,) = Evaluate(run, model, **quiet).start().values()
        assert found["total"] == sum(found[status] for status in STATUSES)
        if task == "itc":
            wanted = naive_itc(rows, most)
            assert found["total_acc"] == (None if wanted is None else round(wanted, 4))
            assert found["number_of_data"] == len(there[: int(most / 2)] if most else there)
            continue
        tp, fn, fp, tn = naive_itm(rows, most)
        assert [found[name] for name in ("tp", "fn", "fp", "tn")] == [tp, fn, fp, tn]
        assert found["precision"] == divided(tp, tp + fp) and found["recall"] == divided(tp, tp + fn)
        assert found["f1"] == (divided(2 * tp, 2 * tp + fp + fn) if tp else None)
        total = tp + tn + fp + fn
        assert found["total_acc"] == (round((tp + tn) / total, 4) if total else None)
        assert found["number_of_data"] == min(2 * len(there), most or 2 * len(there))


@settings(max_examples=25)
@given(st.lists(a_row, min_size=1, max_size=9))
def test_the_corrected_rules_use_all_sentences(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    folder = tmp_path_factory.mktemp("corrected")
    run = run_file(folder, MAX_NUM=0, OUTPUT={"DIR": str(folder / "out")})
    (found,) = Evaluate(run, told(folder, rows), folder=folder, log=list[str]().append).start().values()
    assert found["total"] == len(rows) and found["number_of_data"] == len(rows) - found["missing"]
    for status in STATUSES:
        assert found[status] == sum(row[0] == status for row in rows)
    scored = [(true, false) for status, true, false in rows if status == "scored"]
    means = [[statistics.mean(map(Fraction, side)) for side in row] for row in scored]
    assert found["ties"] == sum(true == false for true, false in means)
    assert found["accuracy_mean"] == divided(sum(true > false for true, false in means), len(scored))
    beaten = [all(x > y for x in true for y in false) for true, false in scored]
    assert found["accuracy_all"] == divided(sum(beaten), len(scored))
    assert found["accuracy_best"] == divided(sum(max(true) > max(false) for true, false in scored), len(scored))
    if scored:
        low, high = found["interval"]
        assert 0 <= low <= found["accuracy_mean"] <= high <= 1
