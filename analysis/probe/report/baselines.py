"""Baselines: rules that need no model, and models that see another picture.

Blind rules read the sentences alone. Salience rules see the picture and prefer large or central objects. The other
rules know the scene; `scene_oracle` knows all of it and is the ceiling. On corpora from
scenes, where each item has its partner, a blind rule has exactly half of the items and no pair right, and so does a
salience rule if all words are shown. On published corpora they may have more.

Ties are broken by a hash of the sentence. Fitted rules (ngrams, classifier) are fitted on other items by
cross-validation: never on the partner, which has the answer (`_folds`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count, islice

import numpy as np
import pandas as pd
from PIL import Image

from analysis.probe.corpora.items import Answer, Corpus, Item, Missing, Scorer, Unreadable, open_picture
from analysis.probe.scenes import corpus as scenes
from analysis.probe.scenes.salience import WORDS, VisibleObject, from_pixels, preferred
from analysis.probe.scenes.statements import content_words, visible_words
from travlr.sampling.streams import stream_key

FOLDS = 5
RULES = {
    "shorter": "the sentence with fewer characters",
    "ngrams": "the likelier sentence, by pairs of words in true sentences of other items",
    "classifier": "the sentence whose words are more often true, by words and pairs of words of other items",
    "most_ink": "of the words in only one sentence, that of the object with most ink, read from the pixels",
    "most_central": "of these words, that of the object nearest to the centre, read from the pixels",
    "visible_words": "the sentence with more words that are visible in the scene, in any order",
    "scene_oracle": "the sentence that is true of the scene: the ceiling",
}
SALIENT = ("most_ink", "most_central")
OF_SCENES = (*SALIENT, "visible_words", "scene_oracle")
"""Rules that need to know the scene, or read it from pictures of our scenes."""
BLIND = ("shorter", "ngrams", "classifier")


def baselines(corpus: Corpus, seed: int = 0, rules: Sequence[str] = tuple(RULES)) -> dict[str, list[Answer]]:
    """The answers of each rule, in the corpus's order; without `OF_SCENES` if the corpus is not from scenes."""
    texts = sentence_table(corpus, seed)
    answers = {rule: _answers(corpus, TEXT_RULES[rule](texts)) for rule in rules if rule in TEXT_RULES}
    if not set(rules) <= set(TEXT_RULES):
        answers |= _of_scenes(corpus, seed)
    return {rule: answers[rule] for rule in rules if rule in answers}


def noise(seed: int, *names: str) -> float:
    """A pseudorandom number in 0 <= x < 1, a function of seed and names."""
    salt = stream_key("floor", seed).to_bytes(16, "little")
    key = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8, salt=salt)
    return int.from_bytes(key.digest(), "little") / 2**64


# Rules that read text ------------------------------------------------------------------------------------------------


def sentence_table(corpus: Corpus, seed: int) -> pd.DataFrame:
    """A row for each sentence of a corpus, an item's true ones before its false ones.

    item: its index. group: number of its axis and source; rules are fitted on each separately. fold: see `_folds`.
    true, false: 1 or 0. hash: 0 <= x < 1, equal for equal sentences.
    """
    rows = [
        (n, text, place, int(place < len(item.positives)), noise(seed, text))
        for n, item in enumerate(corpus.items)
        for place, text in enumerate((*item.positives, *item.negatives))
    ]
    texts = pd.DataFrame(rows, columns=["item", "sentence", "place", "true", "hash"], dtype=object)
    texts = texts.astype({"item": int, "place": int, "true": int, "hash": float})
    places = pd.DataFrame([(item.axis, item.source) for item in corpus.items], columns=["axis", "source"])
    groups = places.groupby(["axis", "source"]).ngroup().to_numpy()
    folds = _folds(corpus.items, seed)
    return texts.assign(false=1 - texts["true"], group=groups[texts["item"]], fold=folds[texts["item"]])


def _folds(items: Sequence[Item], seed: int) -> np.ndarray:
    """(N,) fold of cross-validation, 0 to FOLDS - 1: equal for an item and its partner, and for items without a partner
    that share a picture. Folds have the same number of these, in the order of a hash."""
    names = [item.pair or item.image for item in items]
    order = sorted(set(names), key=lambda name: noise(seed, "fold", name))
    fold = {name: place % FOLDS for place, name in enumerate(order)}
    return np.array([fold[name] for name in names], int)


def _tokens(texts: pd.DataFrame) -> pd.DataFrame:
    """The sentence's row for its start and for each of its words. word, after: numbers of the word and the next one; 0
    where the sentence starts or ends. Words are separated by blanks and keep their case, which may depend on the
    answer."""
    numbers: dict[str, int] = defaultdict(count(1).__next__)
    split = [[numbers[word] for word in text.split()] for text in texts["sentence"]]
    table = texts.assign(word=[[0, *words] for words in split], after=[[*words, 0] for words in split])
    return table.explode(["word", "after"])


def _elsewhere(tokens: pd.DataFrame, label: str, *columns: str) -> pd.Series:
    """How often each row's values of these columns occur in its group in other folds. label: `true` or `false`, the
    sentences that count."""
    everywhere = tokens.groupby(["group", *columns])[label].transform("sum")
    return everywhere - tokens.groupby(["group", "fold", *columns])[label].transform("sum")


def _ngrams(texts: pd.DataFrame) -> np.ndarray:
    """Log-likelihood of a sentence under a bigram model.

    Bigrams are interpolated with unigrams, and these with the uniform distribution, each with the weight of one count.
    """
    tokens = _tokens(texts)
    vocabulary = max(1, tokens["word"].nunique())
    chance = (_elsewhere(tokens, "true", "after") + 1 / vocabulary) / (_elsewhere(tokens, "true") + 1)
    both, before = _elsewhere(tokens, "true", "word", "after"), _elsewhere(tokens, "true", "word")
    return np.bincount(tokens.index, np.log((both + chance) / (before + 1)), minlength=len(texts))


def _classifier(texts: pd.DataFrame) -> np.ndarray:
    """Naive Bayes: log-odds of unigrams and bigrams in true sentences against false ones."""
    tokens = _tokens(texts)
    odds = sum(
        np.log((_elsewhere(tokens, "true", *columns) + 1) / (_elsewhere(tokens, "false", *columns) + 1))
        for columns in (["word"], ["word", "after"])
    )
    return np.bincount(tokens.index, odds, minlength=len(texts))


def _ranked(texts: pd.DataFrame, scores: np.ndarray) -> pd.Series:
    """Ranks of scores, with ties broken by the hash."""
    return np.unique(scores, return_inverse=True)[1] + texts["hash"]


TEXT_RULES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "shorter": lambda texts: texts["hash"] - texts["sentence"].map(len),
    "ngrams": lambda texts: _ranked(texts, _ngrams(texts)),
    "classifier": lambda texts: _ranked(texts, _classifier(texts)),
}


def _answers(corpus: Corpus, scores: pd.Series) -> list[Answer]:
    """Scores of all sentences as answers."""
    values, answers = iter(scores.tolist()), []
    for item in corpus.items:
        true, false = (tuple(islice(values, len(texts))) for texts in (item.positives, item.negatives))
        answers.append(Answer(item.id, "scored", true, false))
    return answers


# Rules that see the picture or know the scene ------------------------------------------------------------------------


def _of_scenes(corpus: Corpus, seed: int) -> dict[str, list[Answer]]:
    """The answers of `OF_SCENES`, empty for other corpora. A picture that is missing, or not of our scenes, is not
    scored by salience rules."""
    truths = scenes.truths(corpus)
    if not truths or any(item.id not in truths for item in corpus.items):
        return {}
    answers: dict[str, list[Answer]] = {rule: [] for rule in OF_SCENES}
    for item in corpus.items:
        truth, sentences = truths[item.id], (item.positives[0], item.negatives[0])
        forms, hashes = (truth.positive, truth.negative), [noise(seed, sentence) for sentence in sentences]
        crop = item.labels.get("cropped") == "true"
        visible = visible_words(truth.scene[truth.subject : truth.subject + 1] if crop else truth.scene)
        scores = {
            "scene_oracle": [float(form.holds(truth.scene)) for form in forms],
            "visible_words": [len(content_words(form) & visible) + x for form, x in zip(forms, hashes, strict=True)],
        }
        status, why = "scored", ""
        try:
            objects = from_pixels(open_picture(corpus.pictures, item.image))
            scores |= {rule: _salient(rule, objects, sentences) or hashes for rule in SALIENT}
        except (Missing, Unreadable) as error:
            status, why = "missing" if isinstance(error, Missing) else "unreadable", str(error)
        for rule, of_rule in answers.items():
            if rule in scores:
                true, false = scores[rule]
                of_rule.append(Answer(item.id, "scored", (true,), (false,)))
            else:
                of_rule.append(Answer(item.id, status, why=why))
    return answers


def _salient(rule: str, objects: Sequence[VisibleObject], sentences: Iterable[str]) -> list[float]:
    """The scores of the true and the false sentence: 1 for the preferred one; none if neither is preferred."""
    true, false = (WORDS & set(sentence.split()) for sentence in sentences)
    choice = preferred(rule, objects, true, false)
    return [float(choice > 0), float(choice < 0)] if choice else []


# Models that see another picture -------------------------------------------------------------------------------------


def blank(scorer: Scorer) -> Scorer:
    """A scorer that sees white pictures of the same sizes."""

    def score(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        # One object per size and call, so that each is encoded once; photographs have thousands of sizes.
        white = {size: Image.new("RGB", size, "white") for size in {image.size for image in images}}
        return scorer([white[image.size] for image in images], texts)

    return score


def shuffle_answers(corpus: Corpus, seed: int = 0) -> Corpus:
    """The corpus with the pictures of other items: never the item's own and, if possible, not its pair's.

    Items keep their ids. The corpus needs two pictures or more.
    """
    images = list(dict.fromkeys(item.image for item in corpus.items))
    order = np.random.Generator(np.random.Philox(key=stream_key("shuffled", seed))).permutation(len(images)).tolist()
    pairs: dict[str, set[str]] = {}
    for item in corpus.items:
        pairs.setdefault(item.image, set()).update([item.pair] if item.pair else [])
    new: dict[str, str] = {}
    for step in range(1, min(len(images), 65)):  # the first rotation without pairs, or the last
        new = {images[a]: images[b] for a, b in zip(order, order[step:] + order[:step], strict=True)}
        if all(pairs[a].isdisjoint(pairs[b]) for a, b in new.items()):
            break
    return replace(corpus, items=tuple(replace(item, image=new[item.image]) for item in corpus.items))
