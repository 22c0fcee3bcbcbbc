"""What both harnesses share: which questions they ask, what they keep of a reply, and the scores of many replies.

Records are plain dictionaries, as harnesses write JSON. Scores are fractions, as is usual there; those of
`travlr.questions` are in percent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import BeforeValidator

from travlr.config import one_of
from travlr.corpora import is_corpus
from travlr.dataset import Dataset, Example
from travlr.metrics import couples_right
from travlr.questions import FORMS, PROMPTS, Outcome, measure_replies
from travlr.questions.forms import SETTINGS
from travlr.questions.objects import ObjectErrors
from travlr.scene import SPLITS, Scene
from travlr.settings import Settings, as_texts

Record = Mapping[str, Any]  # `example_facts`, and an `Outcome` as dictionary

METRICS = ("accuracy", "macro_f1", "unparsed", "couples_right")
OBJECTS = tuple(ObjectErrors.__dataclass_fields__)  # further metrics of the form `read`

_NUMBERED = re.compile(r"(.*-)([0-9]{8})")


class QuestionSettings(Settings):
    """Which questions are asked: of one or several settings and splits, in one form and with one prompt."""

    setting: Annotated[tuple[Annotated[str, one_of("setting", SETTINGS)], ...], BeforeValidator(as_texts)] = SETTINGS
    split: Annotated[tuple[Annotated[str, one_of("split", SPLITS)], ...], BeforeValidator(as_texts)] = (
        "test_ind",
        "test_ood",
    )
    form: Annotated[str, one_of("form", FORMS)] = "true_false"
    prompt: Annotated[str, one_of("prompt", PROMPTS)] = "direct"

    def of_dataset(self, dataset: Dataset) -> Self:
        """These settings; for a corpus, which has pictures and one split, with its own defaults. Raises `ValueError`
        for a split that the dataset lacks."""
        usual = {"setting": "image", "split": tuple(dataset.splits)} if is_corpus(dataset) else {}
        chosen = type(self).model_validate(usual | self.model_dump(exclude_unset=True))
        dataset.check_splits(chosen.split)
        return chosen


def example_facts(example: Example) -> dict[str, Any]:
    """What scores need of an example. scene: the same for examples that share a scene. couple: the same for the two
    examples of a couple, None where ids are not ours. truth: whether the query is true."""
    if item := json.loads(example.query_form).get("item"):  # of a corpus: its sentences are about one picture
        return {"scene": item, "couple": item, "truth": example.answer}
    numbered = _NUMBERED.fullmatch(example.id)
    couple = f"{numbered[1]}{int(numbered[2]) // 2:08d}" if numbered else None
    return {"scene": scene_key(example.scene), "couple": couple, "truth": example.answer}


def scene_key(scene: Scene) -> str:
    """Digest of a scene: of its objects, without their order and without what the query names."""
    places = sorted([o.row, o.column, o.colour, o.shape, o.size] for o in scene)
    return hashlib.sha256(json.dumps(places).encode()).hexdigest()[:16]


def measure_records(records: Sequence[Record]) -> dict[str, float]:
    """The scores of replies by the names of `METRICS`, and of `OBJECTS` for the form `read`. couples_right is of the
    couples of which both examples were asked; NaN without such."""
    outcomes = [
        Outcome(r["answer"], r["parsed"], r["right"], r["objects"] and ObjectErrors(**r["objects"])) for r in records
    ]
    scores = measure_replies(outcomes)
    truth, right, couples = ([record[name] for record in records] for name in ("truth", "right", "couple"))
    _, both = couples_right(truth, right, [couple or "" for couple in couples])
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(asdict(outcome.objects) if outcome.objects else {})
    return {
        **{name: getattr(scores, name) / 100 for name in METRICS[:3]},
        "couples_right": float(both.mean()) if len(both) else math.nan,
        **counts,
    }
