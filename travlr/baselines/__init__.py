"""Rules that answer without reasoning: what they see (`arrays`), the rules themselves (`rules`), their scores."""

from travlr.baselines.scoring import RuleScore, best_unbound, dataset_baselines, score_baselines, table

__all__ = ["RuleScore", "best_unbound", "dataset_baselines", "score_baselines", "table"]
