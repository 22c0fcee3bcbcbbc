"""The taskset of `travlr.environments.verifiers`, as `verifiers` finds tasksets by the name of a module alone."""

from travlr.environments.verifiers import QuestionTaskset

__all__ = ["QuestionTaskset"]
