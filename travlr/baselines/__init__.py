"""Rules that answer without reasoning: what they see (`arrays`), the rules (`rules`; `blind` of corpora), scores."""

from travlr.baselines.scores import RuleScore, best_unbound, format_scores
from travlr.baselines.scoring import dataset_baselines, score_baselines

__all__ = ["RuleScore", "best_unbound", "dataset_baselines", "format_scores", "score_baselines"]
