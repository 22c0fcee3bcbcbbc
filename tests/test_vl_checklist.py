"""VL-CheckList's toolbox interface, `Evaluate("run.yaml", model=...)`: accuracies against numbers counted by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.corpus_files import draw
from tests.test_corpora_checklist import publish
from train.ask.vl_checklist import Evaluate

PROBABILITIES = {"p0": 0.9, "n0": 0.1, "p2": 0.4, "n2": 0.2, "p3": 0.1, "n3": 0.3, "p5": 0.7, "n5": 0.7}


class Predictor:
    """A model with a probability for each sentence. calls: numbers of sentences."""

    def __init__(self, probabilities: Mapping[str, float]) -> None:
        self.probabilities = probabilities
        self.calls: list[int] = []

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> dict[str, Any]:
        self.calls.append(len(texts))
        assert src_type == "local" and all(Path(path).is_file() for path in image_paths)
        return {"probs": [[1 - p, p] for p in (self.probabilities[text] for text in texts)]}


@pytest.mark.parametrize(("task", "accuracy"), [("ITC", 50), ("ITM", 62.5)])
def test_evaluate_gives_the_accuracy_of_each_axis(
    task: str, accuracy: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four items two are ranked right, one is not, one ties; of eight sentences five are on their side of 0.5."""
    monkeypatch.chdir(tmp_path)
    records = [[f"{n}.jpg", {"POS": [f"p{n}"], "NEG": [f"n{n}"]}] for n in (0, 2, 3, 5)]
    corpus = publish(tmp_path / "corpus", {"Attribute/color/vg": records, "Attribute/size/vg": records[:1]})
    draw(corpus / "vg", *(f"{n}.jpg" for n in (0, 2, 3, 5)))
    run = {
        "MAX_NUM": 0, "TASK": task, "BATCH_SIZE": 2, "OUTPUT": {"DIR": "out"},
        "DATA": {"TYPES": ["Attribute/color", "Attribute/size"], "TEST_DATA": ["vg"]},
    }  # fmt: skip
    (corpus / "run.yaml").write_text(yaml.safe_dump(run))
    model = Predictor(PROBABILITIES)
    result = Evaluate(corpus / "run.yaml", model=model, log=lambda _: None).start()
    assert result == {"Attribute/color": accuracy, "Attribute/size": 100}
    assert model.calls == [2] * 5
    Evaluate(corpus / "run.yaml", model=model, log=lambda _: None).start()
    assert len(model.calls) == 5  # nothing is asked twice
