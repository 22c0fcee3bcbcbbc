"""The score of a rule, the best of them, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from travlr.baselines.rules import RULES


@dataclass(frozen=True)
class RuleScore:
    """The score of a rule on a split, in percent.

    interval: 95 % of the accuracy, over couples. couples: percent of couples with both answers right; None where the
    examples are not in couples. Of corpora, accuracy and macro_f1 are the percent of items that are ranked right (see
    `travlr.metrics.ranked`), couples have two items, and `axis` is what is tested; empty for the whole corpus.
    """

    baseline: str
    blind: str
    split: str
    accuracy: float
    interval: tuple[float, float]
    macro_f1: float
    couples: float | None
    examples: int
    axis: str = ""


def best_unbound(results: Sequence[RuleScore]) -> dict[str, RuleScore]:
    """split -> the rule with the highest accuracy there, of those that do not count."""
    counting = {rule.name for rule in RULES if rule.counts}
    results = [result for result in results if result.baseline not in counting and not result.axis]
    splits = dict.fromkeys(result.split for result in results)
    return {split: max((r for r in results if r.split == split), key=lambda r: r.accuracy) for split in splits}


def format_scores(results: Sequence[RuleScore]) -> str:
    """The accuracy of each rule on each split with half its 95 % interval, in percent, and what the rule cannot see."""
    if any(result.axis for result in results):
        return format_axes(results)
    splits = list(dict.fromkeys(result.split for result in results))
    texts = {
        (score.baseline, score.split): f"{score.accuracy:.1f} ± {(score.interval[1] - score.interval[0]) / 2:.1f}"
        for score in results
    }
    width = max(len(result.baseline) for result in results) + 1
    lines = [f"{'rule':<{width}}{''.join(f'{split:>14}' for split in splits)}  cannot see"]
    for name, blind in dict.fromkeys((result.baseline, result.blind) for result in results):
        scores = "".join(f"{texts[name, split]:>14}" for split in splits)
        lines.append(f"{name:<{width}}{scores}  {blind}")
    return "\n".join(lines)


def format_axes(results: Sequence[RuleScore]) -> str:
    """A line for each axis of a corpus, with the percent of items that each blind rule ranks right."""
    rules = list(dict.fromkeys(result.baseline for result in results))
    lines = [f"{'axis':<32}{'items':>9}" + "".join(f"{rule:>27}" for rule in rules)]
    for axis in dict.fromkeys(result.axis for result in results):
        here = [result for result in results if result.axis == axis]
        texts = [f"{score.accuracy:.1f} ± {(score.interval[1] - score.interval[0]) / 2:.1f}" for score in here]
        lines.append(f"{axis or 'all':<32}{here[0].examples:>9,}" + "".join(f"{text:>27}" for text in texts))
    return "\n".join(lines)
