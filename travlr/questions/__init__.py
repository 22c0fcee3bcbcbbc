"""What a model is asked about an example, and what its reply says. Pure functions, without torch.

`messages` makes the request, `parse` reads the reply, `score` compares it with the scene; `right_reply` is what models
are trained to write. Whatever asks or trains a model goes through them: `evaluate.py`, exports, rewards.

Read `forms` (questions and their right answers) first, then `parsing`, `objects` (scenes in a model's own words) and
`scoring`. All wording is in `wording.toml`.
"""

from travlr.questions.forms import (
    FORMS,
    PROMPTS,
    WORDING_VERSION,
    Question,
    make_question,
    messages,
    most_tokens,
    right_reply,
)
from travlr.questions.parsing import parse
from travlr.questions.scoring import Outcome, measure_replies, score, score_reply

__all__ = [
    "FORMS",
    "PROMPTS",
    "WORDING_VERSION",
    "Outcome",
    "Question",
    "make_question",
    "measure_replies",
    "messages",
    "most_tokens",
    "parse",
    "right_reply",
    "score",
    "score_reply",
]
