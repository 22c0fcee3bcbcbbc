"""Replies as harnesses keep them (plain dictionaries, as they write JSON), and the scores of many.

Scores are fractions, as is usual there; those of `travlr.questions` are in percent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from travlr.dataset import Example
from travlr.metrics import Scores, couples_right
from travlr.questions import Outcome, measure_replies
from travlr.questions.objects import ObjectErrors
from travlr.scene import Scene

Record = Mapping[str, Any]  # `example_facts`, and an `Outcome` as dictionary

_NUMBERED = re.compile(r"(.*-)([0-9]{8})")


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


def measure_records(records: Sequence[Record]) -> Scores:
    """The scores of replies, in percent."""
    outcomes = [
        Outcome(r["answer"], r["parsed"], r["right"], r["objects"] and ObjectErrors(**r["objects"])) for r in records
    ]
    return measure_replies(outcomes)


def _part_of_couples(records: Sequence[Record]) -> float:
    """Part of the couples with both answers right, over couples of which both were asked; NaN without such."""
    truth, right, couples = ([record[name] for record in records] for name in ("truth", "right", "couple"))
    _, both = couples_right(truth, right, [couple or "" for couple in couples])
    return float(both.mean()) if len(both) else math.nan


METRICS: dict[str, Callable[[Sequence[Record]], float]] = {
    "accuracy": lambda records: measure_records(records).accuracy / 100,
    "macro_f1": lambda records: measure_records(records).macro_f1 / 100,
    "unparsed": lambda records: measure_records(records).unparsed / 100,
    "couples_right": _part_of_couples,
}


def object_counts(records: Sequence[Record]) -> dict[str, int]:
    """Objects found, missed, invented, misplaced, miscoloured and misshaped, of the form `read`."""
    counts: Counter[str] = Counter(dict.fromkeys(ObjectErrors.__dataclass_fields__, 0))
    for record in records:
        counts.update(record["objects"] or {})
    return dict(counts)
