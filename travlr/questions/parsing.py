"""Reads a model's reply: the answer that it gives, or None where it gives none or more than one.

1. Thoughts, Markdown and LaTeX are removed.
2. Where the reply marks its answer (`Answer: ...`, `\\boxed{...}`, `{"answer": ...}`), only the marked parts are read.
3. A part is read clause by clause. Beside its answer a clause may have only words that change nothing (`FILLER`) and
   words of the question. Any other word may negate or weaken the answer, so that the reply is not parsed.
4. All answers must agree.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from travlr.questions.forms import Question
from travlr.questions.objects import parse_objects, short_cells
from travlr.scene import COLOURS, SHAPES, Scene

LONGEST = 100_000  # characters; a longer reply is endless
_FILLER = """a an the this that these those it its i we my our you there here they them is are was were be has have
see count counted find found think believe say says can so then therefore thus hence and also indeed clearly definitely
exactly only just total in on of at for to from by with based according picture image scene grid description caption
given provided answer final true correct statement option choice choose pick claim sentence query letter number object
objects present visible shown show shows contain contains holds which makes"""
FILLER = frozenset(_FILLER.split())
_WORD = re.compile(r"[^\W_]+(?:'[a-z]+)?")
_HEDGE = re.compile(
    r"\b(?:cannot|can not|can't|could not|couldn't|unable|not able|impossible|not possible|know|not sure|unsure|"
    r"uncertain|unclear|not clear|not enough|insufficient|sorry|guess|perhaps|maybe|possibly|depends|unless|assuming|"
    r"provided that|only if)\b|, (?:but )?if\b",
    re.IGNORECASE,
)

Reading = tuple[set[str], list[str]]  # the answers of a clause, and its words that are neither answers nor filler


def parse(reply: str, question: Question) -> str | Scene | None:
    """The answer of a reply in the words of `Question.answer`; for the form `read` the objects that it lists.

    None where the reply gives no answer, several that differ, or does not end.
    """
    lines = final_lines(reply)
    if question.form == "read":
        starts = [number for number, line in enumerate(lines) if _LIST.search(line)]
        list_lines = lines[starts[-1] + 1 :] if starts else lines
        return parse_objects("\n".join(line for line in list_lines if not _HEDGE.search(line)))
    answers = {_answer(part, question) for part in _marked_parts(lines) or ["\n".join(lines)]}
    return answers.pop() if len(answers) == 1 else None


# From a reply to the parts that give its answer ----------------------------------------------------------------------

_THOUGHTS = re.compile(r"[<\[◁](/?)(?:\w+:)?(?:think(?:ing)?|thoughts?|reasoning)[>\]▷]", re.IGNORECASE)
_TOKEN = re.compile(r"<\|(?!begin_of_box|end_of_box)[^|<>]{1,40}\|>|</?s>|[\u200b\u2060\ufeff]")
_EMPHASIS = re.compile(r"(?<!\w)[*_`#]+(?=\S)|(?<=\S)[*_`]+(?!\w)|^[*#]+ ")
_LATEX_TEXT = re.compile(r"\\(?:text|math)\w* ?\{([^{}]*)\}")
_LIST = re.compile(r"^.{0,60}\blist\W*$", re.IGNORECASE)  # the line before a list
_MARK = re.compile(
    r"(?:^|[^\w\s]) ?(?:(?:so|therefore|thus|hence|and|then|my|our|the|final|correct|right|here is),? ){0,6}"
    r"answer\b[\"']? ?(?:[:=]|(?P<weak>(?:is|would be)\b:?)|$)",
    re.IGNORECASE,
)
_BOX = re.compile(
    r"\\f?boxed ?\{([^{}]*)\}|<answer>([^<>]*)</answer>|<\|begin_of_box\|>([^<>]*)<\|end_of_box\|>", re.IGNORECASE
)


def final_lines(reply: str) -> list[str]:
    """The lines of a reply without thoughts, Markdown and LaTeX commands; none where the reply does not end."""
    if len(reply) > LONGEST:
        return []
    tags = list(_THOUGHTS.finditer(reply))
    if tags and not tags[-1][1]:  # the thoughts do not end
        return []
    text = reply[tags[-1].end() :] if tags else reply
    text = re.sub("[‘’]", "'", _TOKEN.sub("", text))
    lines = [_EMPHASIS.sub("", " ".join(line.split())) for line in text.splitlines()]
    return [_without_latex(line) for line in lines if line and not re.fullmatch(r"`*\w*`*(?<=`)|json", line)]


def _without_latex(line: str) -> str:
    for _ in range(3):  # \boxed{\mathbf{\text{true}}}
        line = _LATEX_TEXT.sub(r"\1", line)
    return re.sub(r"\\[()\[\]]|[$\"“”]|(?<!\w)'|'(?!\w)", "", line).replace("\\boxed", " \\boxed")


def _marked_parts(lines: list[str]) -> list[str]:
    """The parts that a reply marks as its answer: boxes and `Answer: ...`, or else `the answer is ...`."""
    strong = [next(filter(None, groups), "") for groups in _BOX.findall("\n".join(lines))]
    weak: list[str] = []
    for line, after in itertools.pairwise([*lines, ""]):
        for mark in _MARK.finditer(line):
            part = line[mark.end() :]
            if "\\boxed" not in part:
                (weak if mark["weak"] else strong).append(part if _WORD.search(part) else after)
    return strong or [part for part in weak if part]


# From a part to its answer -------------------------------------------------------------------------------------------

_CLAUSE = re.compile(r"(?<![0-9])[.,:]|[.,:](?![0-9])|[;!|()\[\]—–\n]| - |\b(?:because|since)\b", re.IGNORECASE)
_PLACES = re.compile(  # cells, columns, rows, steps, and the size of the grid
    r"\(?\b[A-Z],? ?[1-9][0-9]?\b\)?|\b(?i:columns?) [A-Z]\b(?: (?:to|and) [A-Z]\b)?|\b(?i:rows?|step) [0-9]+\b"
    r"|\b[0-9]+ ?[x×] ?[0-9]+\b"
)


def _answer(part: str, question: Question) -> str | None:
    """The answer on which all clauses of a part agree."""
    if _HEDGE.search(part) or any(c.isalpha() and not c.isascii() for c in part):
        return None
    if question.form == "true_false":
        part = _TRUE_OR_FALSE.sub(" ", part)
        if letter := _T_OR_F.fullmatch(part):
            return {"T": "true", "F": "false"}[letter[1]]
    part = "".join(sentence for sentence in re.split(r"(?<=[.!?\n])", part) if not sentence.endswith("?"))
    part = _PLACES.sub(" ", short_cells(part))
    reader: Callable[[str, Question], Reading]
    if question.form == "true_false":
        part = re.sub(re.escape(question.statement.rstrip(".")), " ", part, flags=re.IGNORECASE)
        reader = _truths
    elif question.form == "choice":
        part, reader = _statements_as_letters(part, question), _letters
    else:
        reader = _phrases if question.wordings else _numbers
        part = part if question.wordings else _without_sums(part, question)
    answers = set[str]()
    for clause in set(_CLAUSE.split(part)):
        clause_answers, other_words = reader(clause, question)
        if clause_answers and other_words:
            return None
        answers |= clause_answers
    return answers.pop() if len(answers) == 1 else None


def _words(text: str) -> list[str]:
    """The words of a text, in lower case, shapes in the singular."""
    words = [word.removesuffix("'s") for word in _WORD.findall(text.lower())]
    return [word[:-1] if word[:-1] in SHAPES else word for word in words]


def _other_words(text: str, *ignored: str) -> list[str]:
    """The words of a text that are neither filler nor ignored."""
    return [word for word in _words(text) if word not in FILLER and word not in ignored]


_TRUE_OR_FALSE = re.compile(r"\btrue ?(?:/|or) ?false ?:", re.IGNORECASE)  # True/False: false
_T_OR_F = re.compile(r"\W*([TF])\W*")
_TRUTH = dict.fromkeys(("true", "yes", "correct", "accurate"), True)
_TRUTH |= dict.fromkeys(("false", "no", "incorrect", "wrong", "untrue", "inaccurate"), False)
_TRUTHS = re.compile(rf"\b(not |isn't )?({'|'.join(_TRUTH)})\b")


def _truths(clause: str, question: Question) -> Reading:
    """`true` and `false`, wherever they stand; `yes`, `no`, `correct` and the like, where a clause is nothing else."""
    clause = " ".join(_words(re.sub(r"\b(?:whether|if)\b.*", "if", clause, flags=re.IGNORECASE)))
    matches = list(_TRUTHS.finditer(clause))
    others = _other_words(_TRUTHS.sub(" ", clause), "above", "not so")
    if not any(match[2] in ("true", "false") for match in matches) and (others or re.search(r"\bno ", clause)):
        return set(), []
    answers = {str(_TRUTH[match[2]] is not bool(match[1])).lower() for match in matches}
    return answers, others if len(matches) < 2 else ["it is false that it is false"]


_SMALL_LETTER = re.compile(r"\W*(?:(?i:the|option|statement|choice|letter|is) )*\(?([a-h])\W*")
_REJECTED = re.compile(r"\b[A-H]\)? (?:is|are) (?:false|incorrect|wrong|not (?:true|correct))\b")


def _statements_as_letters(part: str, question: Question) -> str:
    """A part with the letters of statements that it repeats, without statements that it rejects."""
    if alone := _SMALL_LETTER.fullmatch(part):
        return alone[1].upper()
    for letter, (statement,) in sorted(question.wordings.items(), key=lambda item: -len(item[1][0])):
        part = re.sub(rf"\b{re.escape(statement)}\b", letter, part, flags=re.IGNORECASE)
    return _REJECTED.sub(" ", part)


def _letters(clause: str, question: Question) -> Reading:
    clause = re.sub(r"\b(correct|right|true) one\b", r"\1", clause, flags=re.IGNORECASE)
    letters = "".join(question.wordings)
    letter = rf"(?<![\w'-])([{letters}])(?![\w'-])(?!(?<=A) (?!is\b|and\b|or\b)[a-z])"
    return set(re.findall(letter, clause)), _other_words(re.sub(letter, " ", clause), "right")


def _phrases(clause: str, question: Question) -> Reading:
    """The answer whose phrase is the whole clause, filler left out."""

    def bare(text: str) -> str:
        return " ".join(_other_words(text, "side", "than", "located", "positioned", "placed", "directly"))

    phrases = {bare(phrase): answer for answer, wordings in question.wordings.items() for phrase in wordings}
    words = bare(_COUNTED.sub(" ", clause))
    if words in phrases:
        return {phrases[words]}, []
    answers = {answer for phrase, answer in phrases.items() if f" {phrase} " in f" {words} "}
    return answers, ["other words"] if answers else []


NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_NUMBER = re.compile(rf"(?<![\w.,:+−-])(?:[0-9]+|{'|'.join(NUMBERS)})(?![\w+%]|[.,:−-]\w)", re.IGNORECASE)
_COUNTED = re.compile(rf"{_NUMBER.pattern} (?:\w+ )?(?:{'|'.join(SHAPES)}|object)s?\b", re.IGNORECASE)  # 5 red circles
_NUMBER_OF = re.compile(rf"({_NUMBER.pattern}) (?:out )?of (?:the |all )?{_NUMBER.pattern}", re.IGNORECASE)
_OUT_OF = re.compile(rf"\b(?:out )?of (?:the |all |a total of )?{_NUMBER.pattern}(?: objects?\b)?", re.IGNORECASE)
_SINGLE = re.compile(r"\b(?P<no>not )?(?:a|one) single\b", re.IGNORECASE)
_NEGATION = re.compile(r"\b(are|is)n't\b|\bnon[ -]", re.IGNORECASE)
_ARITHMETIC = re.compile(r"[0-9+*/\\^%~≈<>≤≥±×÷√−]|-(?=\S)")
_MOST_DIGITS = 6  # of a number that counts objects


def _numbers(clause: str, question: Question) -> Reading:
    """Numbers in digits or words, alone or with the phrase of the question; `none`, and `no` before a word of the
    question, are 0."""
    question_words = _words(question.text)
    clause = _SINGLE.sub(lambda match: "zero" if match["no"] else "one", clause)
    clause = _NEGATION.sub(lambda match: f"{match[1] or ''} not ", clause)
    clause = _NUMBER_OF.sub(r"\1 of the", re.sub(r"\b([0-9]+)\.0+\b(?!\.)", r"\1", clause))  # 3 of the 5; 3.0
    if _NUMBER.search(rest := _OUT_OF.sub(" ", clause)):
        clause = rest
    clause = re.sub(rf"\bnone\b|\bno(?= (?:{'|'.join(question_words)})s?\b)", " zero ", clause, flags=re.IGNORECASE)
    texts = [number.lower() for number in _NUMBER.findall(clause)]
    numbers = {str(NUMBERS.index(n)) if n in NUMBERS else n.lstrip("0") or "0" for n in texts}
    rest = _NUMBER.sub(" ", clause)
    others = _other_words(rest, *question_words) + _ARITHMETIC.findall(rest)
    others += [number for number in numbers if len(number) > _MOST_DIGITS]
    return numbers, others if others or _counts_what_is_asked(_NUMBER.sub(" # ", clause), question) else [
        "of other objects"
    ]


def _without_sums(part: str, question: Question) -> str:
    """A part without brackets that say how its number was found: `4 (7 blue minus 3)`."""
    words = {*_words(question.text), *COLOURS, *SHAPES, "minus", "plus", "total", "object", "objects"}

    def explains(match: re.Match[str]) -> str:
        own = [word for word in _words(_NUMBER.sub(" ", match[1])) if word not in FILLER]
        return " " if own and words.issuperset(own) else match[0]

    return re.sub(r"(?<=[\w.]) ?\(([^()\n]*)\)", explains, part)


def _counts_what_is_asked(clause: str, question: Question) -> bool:
    """Whether the number `#` of a clause counts the objects of the question.

    Of `How many of the X are not Y?` it counts them where it stands alone, with all words of the question (`# X are not
    Y`), with one of the two groups where the other one is left out (`# of the X`, `# are not Y`, `# of them are not
    Y`), and never where `not` has another place than in the question.
    """

    def content(text: str) -> set[str]:
        return {word for word in _words(text) if word not in FILLER and word not in ("how", "many", "not")}

    group, _, predicate = question.text.partition(" are ")
    group_words, predicate_words, words = content(group), content(predicate), content(clause)
    clause = f" {' '.join(clause.lower().split())} "
    before, negated, after = clause.partition(" not ")
    if not words:
        return not negated and not (group_words and re.search(r"\bobjects?\b", clause))
    if words == group_words and not negated and re.search("# of ", clause):
        return True
    if bool(negated) != ("not" in _words(predicate)):
        return False
    groups = [group_words]
    if re.search("# (?:(?:of (?:them|these|those) )?(?:are|is|not) )", clause):
        groups.append(set())  # left out
    if negated:
        return content(after) == predicate_words and content(before) in groups
    return any(words == group | predicate_words for group in groups)
