"""Rules that answer without reasoning: what they see (`arrays`), the rules themselves (`rules`), their scores."""

from travlr.baselines.scoring import RuleScore, best_unbound, dataset_baselines, format_scores, score_baselines

__all__ = ["RuleScore", "best_unbound", "dataset_baselines", "format_scores", "score_baselines"]
