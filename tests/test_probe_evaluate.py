"""The toolbox's interface: accuracies against naive ones, and models that fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.probe.evaluate import Evaluate
from tests.test_probe_checklist import draw, publish, run_file

TOLD = {"p0": 0.9, "n0": 0.1, "p2": 0.4, "n2": 0.2, "p3": 0.1, "n3": 0.6, "p5": 0.7, "n5": 0.7, "p6": 0.8, "x": 0.6}


class Told:
    """A model with a probability for each sentence, 0.5 by default. It counts its calls."""

    def __init__(self, probabilities: Mapping[str, float], failing: str = "") -> None:
        self.probabilities, self.failing, self.calls = probabilities, failing, 0

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> dict[str, Any]:
        self.calls += 1
        assert src_type == "local" and all(Path(path).is_file() for path in image_paths)
        if any(Path(path).name == self.failing for path in image_paths):
            raise RuntimeError("no")
        return {"probs": [[1 - p, p] for p in (self.probabilities.get(text, 0.5) for text in texts)]}


@pytest.fixture
def checklist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with six pictures of eight, in the current folder."""
    monkeypatch.chdir(tmp_path)
    records = [[f"{n}.jpg", {"POS": [f"p{n}", "x"], "NEG": [f"n{n}", "y"]}] for n in range(8)]
    publish(tmp_path, {"Attribute/color/vg": records})
    draw(tmp_path / "vg", *(f"{n}.jpg" for n in range(8) if n not in (1, 4)))
    return tmp_path


def evaluate(folder: Path, model: Any, rules: str = "published", **changed: Any) -> float | None:
    run = run_file(folder, **({"MAX_NUM": 0, "OUTPUT": {"DIR": "out"}} | changed))
    return Evaluate(run, model=model, rules=rules, log=lambda _: None).start()["Attribute/color"]


def test_evaluate_gives_the_accuracy_of_itc_and_itm(checklist: Path) -> None:
    assert evaluate(checklist, Told(TOLD)) == 50  # 0, 2 and 6 of six; 5 and 7 tie
    assert evaluate(checklist, Told(TOLD), MAX_NUM=7) == pytest.approx(200 / 3)  # of the first three that are there
    assert evaluate(checklist, Told(TOLD), TASK="ITM") == pytest.approx(700 / 12)
    assert (checklist / "out/report.html").is_file()


def test_evaluate_asks_in_batches_and_again_only_what_failed(checklist: Path) -> None:
    model = Told(TOLD, failing="3.jpg")
    assert evaluate(checklist, model, BATCH_SIZE=2) == 60
    again = Told(TOLD)
    assert evaluate(checklist, again, BATCH_SIZE=2) == 50 and again.calls == 1


@pytest.mark.parametrize("shape", [lambda p: {"probs": p}, lambda p: ([[1 - x, x] for x in p],)])
def test_evaluate_takes_matches_alone_and_lists(shape: Any, checklist: Path) -> None:
    class Other(Told):
        def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> Any:
            return shape([self.probabilities.get(text, 0.5) for text in texts])

    assert evaluate(checklist, Other(TOLD)) == 50


def test_evaluate_gives_a_model_no_picture_outside_of_its_folder(checklist: Path) -> None:
    draw(checklist.parent, "secret.jpg")
    names = ["../../secret.jpg", "/etc/hostname", "a\0b.jpg", "x" * 300]
    publish(checklist, {"Attribute/color/vg": [["0.jpg", {"POS": ["p0"], "NEG": ["n0"]}]] + [
        [name, {"POS": ["p"], "NEG": ["n"]}] for name in names
    ]})  # fmt: skip
    model = Told(TOLD)
    assert evaluate(checklist, model) == 100 and model.calls == 1


probabilities = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=3)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.booleans(), probabilities, probabilities), min_size=1, max_size=9), st.integers(0, 12))
def test_evaluate_follows_the_released_code_under_published_rules(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bool, list[float], list[float]]], most: int
) -> None:
    """Of what is there the first `most // 2`, by their first sentences, strictly above."""
    folder, says, records = tmp_path_factory.mktemp("published"), dict[str, float](), []
    for n, (there, true, false) in enumerate(rows):
        texts = {side: [f"{side}{n} {k}" for k in range(len(p))] for side, p in (("POS", true), ("NEG", false))}
        says |= dict(zip((*texts["POS"], *texts["NEG"]), (*true, *false), strict=True))
        records.append([f"{n}.jpg", texts])
        if there:
            draw(folder / "vg", f"{n}.jpg")
    publish(folder, {"Attribute/color/vg": records})
    asked = [true[0] > false[0] for there, true, false in rows if there][: int(most / 2) if most else None]
    run = run_file(folder, MAX_NUM=most, OUTPUT={"DIR": str(folder / "out")})
    if asked:
        (found,) = Evaluate(run, Told(says), rules="published", log=lambda _: None).start().values()
        assert found == pytest.approx(100 * sum(asked) / len(asked))
