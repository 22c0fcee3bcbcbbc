"""Reads a model's reply: the answer that it gives, or None where it gives none or more than one.

A reply is read strictly, so that a wrong answer never counts as a right one, and kindly: thoughts, Markdown, LaTeX
boxes, whole sentences, and yes and no for true and false are accepted. Where a reply marks its answer (`Answer: ...`,
`\\boxed{...}`), the marked part alone is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from travlr.questions.forms import Question
from travlr.questions.objects import parse_objects
from travlr.scene import Scene

LONGEST = 100_000  # characters; a longer reply is endless
NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


def _words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


_HEDGE = _words(
    *("cannot", "can't", "can not", "unable", "impossible", "not possible", "don't know", "do not know", "not sure"),
    *("unsure", "uncertain", "unclear", "not clear", "not enough", "insufficient", "sorry", "either", "neither"),
    *("depends", "if", "whether", "unless", "might", "may", "perhaps", "maybe", "possibly", "but", "however"),
    *("although", "though", "while"),
)
_NOT = _words("not", "never", "nor", r"\w+n't")
_ROUGHLY = _words("about", "around", "approximately", "roughly", "at least", "at most", "between", "than", "over", "or")


def parse(reply: str, question: Question) -> str | Scene | None:
    """The answer of a reply in the words of `Question.answer`; for the form `read` the objects that it lists.

    None where the reply gives no answer, several that differ, or does not end.
    """
    text = final_text(reply)
    if text is None:
        return None
    if question.form == "read":
        return parse_objects(re.split(r"^\W*list\W*$", text, flags=re.MULTILINE | re.IGNORECASE)[-1])
    return _only(_answer(_clean(part), question) for part in _marked(text) or [text])


def final_text(reply: str) -> str | None:
    """A reply without its thoughts and Markdown; None where nothing remains, or where it does not end."""
    if len(reply) > LONGEST:
        return None
    text = re.sub(r"<(think(?:ing)?|reasoning)>.*?</\1>", " ", reply, flags=re.DOTALL | re.IGNORECASE)
    # The template of some models opens the thoughts, so that the reply only closes them.
    text = re.split(r"</(?:think(?:ing)?|reasoning)>", text, flags=re.IGNORECASE)[-1]
    if re.search(r"<(?:think(?:ing)?|reasoning)>", text, re.IGNORECASE):
        return None
    text = re.sub(r"^\s*```\w*\s*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\*\*|__|`", "", text.replace("’", "'")).strip() or None


def _marked(text: str) -> list[str]:
    """The parts of a text that it marks as its answer."""
    boxes = re.findall(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    markers = re.finditer(r"\banswer\s*(?:is\b\s*:?|:|=)\s*([^\n]+)", text, re.IGNORECASE)
    return boxes or [marker[1] for marker in markers if re.search(r"\w", marker[1])]


def _clean(text: str) -> str:
    """One line without LaTeX and quotation marks; line ends become bars."""
    text = re.sub(r"\\(?:text\w*|math\w*)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[()\[\]]|[$*#\"“”]", " ", text)
    text = re.sub(r"\s*\n\s*", " | ", text.strip())
    return re.sub(r"[ \t]+", " ", text).strip(" '")


def _answer(text: str, question: Question) -> str | None:
    if question.form == "true_false":
        return _true_or_false(text)
    if question.form == "choice":
        return _letter(text, question.wordings)
    return _word(text, question.wordings) if question.wordings else _number(text)


def _only(values: Iterable[str | None]) -> str | None:
    """The value, where all are the same."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


# True or false -------------------------------------------------------------------------------------------------------

_TRUTH = {"true": True, "yes": True, "correct": True, "false": False, "no": False, "incorrect": False}
_SENTENCE = re.compile(  # an answer that is a sentence, or begins one
    r"(?:^|[.,!:;|(\[—–]\s*)(not )?(true|false|yes|no|correct|incorrect)\b(?=\s*(?:$|[.,!:;|)\]—–]|- ))", re.IGNORECASE
)
_VERDICT = re.compile(
    r"\b(?:statement|claim|sentence|query|it|this|that)(?: above| given)? (?:is|was) "
    r"(?:(?:therefore|thus|hence|indeed|clearly|definitely) )?(not )?(true|false|correct|incorrect)\b(?! that)",
    re.IGNORECASE,
)
_MENTION = re.compile(r"\b(not )?(true|false|yes)\b(?! that)", re.IGNORECASE)


def _true_or_false(text: str) -> str | None:
    """The sentences and verdicts of a text, which must agree; without them its only mention of an answer.

    Where the text does not begin with its answer, no word may weaken it.
    """
    sentences = list(_SENTENCE.finditer(text))
    found = [*sentences, *_VERDICT.finditer(text)]
    begins = bool(sentences) and sentences[0].start() == 0
    if not begins and (
        _HEDGE.search(text) or re.search(r"\b(?:true|yes) (?:or|and) (?:false|no)\b", text, re.IGNORECASE)
    ):
        return None
    if begins and re.match(r"\W*(?:or|and)\b", text[sentences[0].end() :]):
        return None
    return _only(_truth(match) for match in found or _MENTION.finditer(text))


def _truth(match: re.Match[str]) -> str:
    return str(_TRUTH[match[2].lower()] is not bool(match[1])).lower()


# Letters, words and numbers ------------------------------------------------------------------------------------------


def _phrases(text: str, wordings: Mapping[str, tuple[str, ...]]) -> tuple[set[str], str]:
    """The answers whose phrases occur in a text, longer phrases first, and the text without them."""
    found = set()
    for phrase, answer in sorted(((p, a) for a, listed in wordings.items() for p in listed), key=lambda x: -len(x[0])):
        text, times = re.subn(rf"\b{re.escape(phrase)}\b", " ", text, flags=re.IGNORECASE)
        if times:
            found.add(answer)
    return found, text


def _letter(text: str, wordings: Mapping[str, tuple[str, ...]]) -> str | None:
    """The letters that stand alone, and the letters of statements that the text repeats: all must be the same."""
    found, rest = _phrases(text, wordings)
    letters = "".join(wordings)
    if alone := re.fullmatch(rf"\W*([{letters.lower()}])\W*", rest):
        return _only({*found, alone[1].upper()})
    found |= set(re.findall(rf"\b([{letters}])\b(?! ?[0-9])(?!(?<=A) (?!or\b|and\b|is\b)[a-z])(?!')", rest))
    return None if _HEDGE.search(rest) or _NOT.search(rest) else _only(found)


def _word(text: str, wordings: Mapping[str, tuple[str, ...]]) -> str | None:
    found, rest = _phrases(text, wordings)
    return None if _HEDGE.search(rest) or _NOT.search(rest) else _only(found)


_NUMBER = re.compile(
    rf"(?<![\w.,/+−-])(?<!(?-i:[A-Z]) )(?<!row )(?:[0-9]+|{'|'.join(NUMBERS)})(?![\w/+%]|[.,:][0-9]|\s*[-–—−]\s*[0-9])",
    re.IGNORECASE,
)
_NONE = re.compile(r"(?:none|no [\w ]+|(?:there are|i see) no(?:ne| [\w ]+)|none of [\w ]+)[.!]?", re.IGNORECASE)


def _number(text: str) -> str | None:
    """The only number of a text. Ranges, fractions and rough numbers are none."""
    if _HEDGE.search(text) or _ROUGHLY.search(text) or re.search(r"[0-9]\s*[-–—−/]\s*[0-9]|\bnot \w*\s?[0-9]", text):
        return None
    numbers = [found.lower() for found in _NUMBER.findall(text)]
    if not numbers:
        return "0" if _NONE.fullmatch(text) and not re.search(r"[0-9]", text) else None
    if re.search(r"[−-][0-9]|[0-9][.,][0-9]", text):
        return None
    return _only(str(NUMBERS.index(n) if n in NUMBERS else int(n)) for n in numbers)
