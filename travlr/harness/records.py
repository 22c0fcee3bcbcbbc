"""Replies as harnesses keep them (plain dictionaries, as they write JSON), and the scores of many.

Scores are fractions, as is usual there; those of `travlr.questions` are in percent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from travlr.dataset import Example
from travlr.questions import Outcome, Summary, summary
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


def accuracy(records: Sequence[Record]) -> float:
    return _summary(records).accuracy / 100


def macro_f1(records: Sequence[Record]) -> float:
    """Mean F1 of the right answers that occur; for the form `read` the F1 of objects."""
    return _summary(records).macro_f1 / 100


def unparsed(records: Sequence[Record]) -> float:
    """Part of the replies that give no answer."""
    return _summary(records).unparsed / 100


def _summary(records: Sequence[Record]) -> Summary:
    outcomes = [
        Outcome(r["answer"], r["parsed"], r["right"], r["objects"] and ObjectErrors(**r["objects"])) for r in records
    ]
    return summary(outcomes)


def couples_right(records: Sequence[Record]) -> float:
    """Part of the couples with both answers right, over couples of which both were asked; NaN without such."""
    couples: dict[str, list[Record]] = {}
    for record in records:
        if record["couple"] is None:
            return math.nan
        couples.setdefault(record["couple"], []).append(record)
    whole = [couple for couple in couples.values() if len(couple) == 2]
    if not whole or any(first["truth"] == second["truth"] for first, second in whole):
        return math.nan
    return sum(first["right"] and second["right"] for first, second in whole) / len(whole)


def object_counts(records: Sequence[Record]) -> dict[str, int]:
    """Objects found, missed, invented, misplaced, miscoloured and misshaped, of the form `read`."""
    counts: Counter[str] = Counter(dict.fromkeys(ObjectErrors.__dataclass_fields__, 0))
    for record in records:
        counts.update(record["objects"] or {})
    return dict(counts)
