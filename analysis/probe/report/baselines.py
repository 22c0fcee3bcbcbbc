"""Baselines: rules that need no model, and models that see another picture.

Blind rules read the sentences alone. Salience rules see the picture and prefer large or central objects. The other
rules are random, constant, or know the scene; `scene_oracle` knows all of it and is the ceiling. On corpora from
scenes, where each item has its mirror, a blind rule has exactly half of the items and no pair right, and so does a
salience rule if all words are shown. On published corpora they may have more.

Ties are broken by a hash of the sentence, except for `constant`. Fitted rules (ngrams, classifier) are fitted on other
items by cross-validation: never on the mirror, which has the answer, and on items with the same picture only if there
are too few others (`SentenceTable.fold`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

import numpy as np
from PIL import Image

from analysis.probe.corpora.items import Answer, Corpus, Item, Missing, Scorer, Unreadable, open_picture
from analysis.probe.report import outcomes
from analysis.probe.scenes import corpus as scenes
from analysis.probe.scenes.salience import WORDS, VisibleObject, from_pixels, preferred
from analysis.probe.scenes.scene_pairs import PairMember
from analysis.probe.scenes.statements import content_words, visible_words
from travlr.streams import stream_key

FOLDS = 5
RULES = {
    "shorter": "the sentence with fewer characters",
    "longer": "the sentence with more characters",
    "ngrams": "the likelier sentence, by pairs of words in true sentences of other items",
    "classifier": "the sentence whose words are more often true, by words and pairs of words of other items",
    "hash": "the sentence with the larger hash",
    "random": "either, at random",
    "constant": "the same score for all: only ties",
    "most_ink": "of the words in only one sentence, that of the object with most ink, read from the pixels",
    "most_central": "of these words, that of the object nearest to the centre, read from the pixels",
    "visible_words": "the sentence with more words that are visible in the scene, in any order",
    "scene_oracle": "the sentence that is true of the scene: the ceiling",
}
SALIENT = ("most_ink", "most_central")
OF_SCENES = (*SALIENT, "visible_words", "scene_oracle")
"""Rules that need to know the scene, or read it from pictures of our scenes."""


def baselines(corpus: Corpus, seed: int = 0, rules: Sequence[str] = tuple(RULES)) -> dict[str, list[Answer]]:
    """The answers of each rule, in the corpus's order; without `OF_SCENES` if the corpus is not from scenes.

    Raises `ValueError` for an unknown rule.
    """
    if unknown := [rule for rule in rules if rule not in RULES]:
        raise ValueError(f"baseline {unknown[0]!r}: choose from {', '.join(RULES)}")
    texts = SentenceTable(corpus, seed)
    answers = {rule: texts.answers(TEXT_RULES[rule](texts)) for rule in rules if rule in TEXT_RULES}
    if set(rules) & set(OF_SCENES) and corpus.items:
        truths = scenes.truths(corpus)
        if all(item.id in truths for item in corpus.items):
            answers |= _of_pictures(corpus, [rule for rule in rules if rule in SALIENT], seed)
            of_scenes = [rule for rule in rules if rule in OF_SCENES and rule not in SALIENT]
            answers |= {rule: _of_scenes(corpus, truths, rule, seed) for rule in of_scenes}
    return {rule: answers[rule] for rule in rules if rule in answers}


def noise(seed: int, *names: str) -> float:
    """A pseudorandom number in 0 <= x < 1, a function of seed and names."""
    salt = stream_key("floor", seed).to_bytes(16, "little")
    key = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8, salt=salt)
    return int.from_bytes(key.digest(), "little") / 2**64


# Rules that read text ------------------------------------------------------------------------------------------------


class SentenceTable:
    """All sentences of a corpus, (S,), an item's true ones before its false ones."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.items, self.seed = corpus.items, seed
        self.sentences = [s for item in corpus.items for s in (*item.positives, *item.negatives)]
        self.lengths = np.array(list(map(len, self.sentences)), np.int64)  # in characters
        sizes = np.array([len(i.positives) + len(i.negatives) for i in corpus.items], np.int64)
        self.item = np.repeat(np.arange(len(self.items)), sizes)
        self.place = np.arange(len(self.sentences)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.true = self.place < np.array([len(i.positives) for i in corpus.items], np.int64)[self.item]

    @cached_property
    def hashes(self) -> np.ndarray:
        """(S,) in 0 <= x < 1, equal for equal sentences."""
        values = {sentence: noise(self.seed, sentence) for sentence in set(self.sentences)}
        return np.array([values[sentence] for sentence in self.sentences], float)

    @cached_property
    def fold(self) -> np.ndarray:
        """(S,) fold of cross-validation, 0 to FOLDS - 1, equal for items in one connected cluster of pictures and
        pairs.

        If a cluster has more items of an axis and source than a fold should have, its items are distributed pair by
        pair, as the rules would otherwise be fitted on too few. The mirror is still never used, but other sentences of
        the same picture may be, so the rules may score higher than on new pictures.

        All folds have the same number of clusters, in the order of a hash, so the order of items does not matter.
        """
        units = outcomes.clustering(self.items)
        connected, pairs, groups = units.connected.tolist(), units.clusters[:, 1].tolist(), self._groups.tolist()
        group_sizes, cluster_sizes = Counter(groups), Counter(zip(groups, connected, strict=True))
        numbers: dict[tuple[int, ...], int] = {}
        first: dict[int, str] = {}
        clusters = np.empty(len(self.items), np.int64)
        for n, (item, group, whole, pair) in enumerate(zip(self.items, groups, connected, pairs, strict=True)):
            is_large = FOLDS * cluster_sizes[group, whole] > group_sizes[group]
            cluster = numbers.setdefault((group, pair) if is_large else (whole,), len(numbers))
            name = item.id if is_large else item.image
            first[cluster], clusters[n] = min(first.get(cluster, name), name), cluster
        order = sorted(first, key=lambda cluster: (noise(self.seed, "fold", first[cluster]), first[cluster]))
        folds = np.empty(len(first), np.int64)
        folds[order] = np.arange(len(order)) % FOLDS
        return np.asarray(folds[clusters][self.item])

    @cached_property
    def _groups(self) -> np.ndarray:
        """(N,) number of each item's axis and source."""
        names = {name: n for n, name in enumerate(dict.fromkeys((i.axis, i.source) for i in self.items))}
        return np.array([names[i.axis, i.source] for i in self.items], np.int64)

    @property
    def group(self) -> np.ndarray:
        """(S,) number of the item's axis and source: rules are fitted on each separately."""
        return np.asarray(self._groups[self.item])

    @cached_property
    def words(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Words of all sentences, with 0 as the start of each: word numbers (W,), sentence indices (W,), vocabulary
        size.

        Words are separated by blanks and keep their case, which may depend on the answer.
        """
        split = [sentence.split() for sentence in self.sentences]
        numbers = {word: n for n, word in enumerate(dict.fromkeys(word for words in split for word in words), 1)}
        lengths = np.array([1 + len(words) for words in split], np.int64)
        flat = np.array([n for words in split for n in (0, *(numbers[word] for word in words))], np.int64)
        return flat, np.repeat(np.arange(len(split)), lengths), len(numbers) + 1

    @cached_property
    def bigrams(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
        """Of each word (W,): its sentence's group, the word, the next one, its sentence; and the vocabulary size."""
        words, owner, vocabulary = self.words
        after = np.append(words[1:], 0)  # the 0 that starts the next sentence ends this one
        return self.group[owner], words, after, owner, vocabulary

    def elsewhere(self, keys: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        """How often each word's key (W,) occurs in the other folds: (W,). sentences: (S,) bool, those that count."""
        owner = self.words[1]
        fold, number = self.fold[owner], np.unique(keys, return_inverse=True)[1]
        kinds, mask = int(number.max(initial=-1)) + 1, sentences[owner]
        counts = np.bincount(number[mask] * FOLDS + fold[mask], minlength=kinds * FOLDS).reshape(kinds, FOLDS)
        return np.asarray(counts.sum(axis=1)[number] - counts[number, fold])

    def per_sentence(self, values: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return np.bincount(owner, values, minlength=len(self.sentences))

    def break_ties(self, scores: np.ndarray) -> np.ndarray:
        """Integer scores with ties broken by the hash."""
        return np.asarray(scores + self.hashes)

    def answers(self, scores: np.ndarray) -> list[Answer]:
        values, answers = iter(scores.tolist()), []
        for item in self.items:
            true, false = (tuple(islice(values, len(texts))) for texts in (item.positives, item.negatives))
            answers.append(Answer(item.id, "scored", true, false))
        return answers


def _ngrams(texts: SentenceTable) -> np.ndarray:
    """Log-likelihood of a sentence under a bigram model.

    Bigrams are interpolated with unigrams, and these with the uniform distribution, each with the weight of one count.
    """
    group, words, after, owner, vocabulary = texts.bigrams
    keys = group * vocabulary + after, group * vocabulary + words, (group * vocabulary + words) * vocabulary + after
    single, before, both, total = (texts.elsewhere(key, texts.true) for key in (*keys, group))
    chance = (single + 1 / vocabulary) / (total + 1)
    return texts.per_sentence(np.log((both + chance) / (before + 1)), owner)


def _classifier(texts: SentenceTable) -> np.ndarray:
    """Naive Bayes: log-odds of unigrams and bigrams in true sentences against false ones."""
    group, words, after, owner, vocabulary = texts.bigrams
    one = group * vocabulary + words
    odds = np.zeros(len(words))
    for keys in (one, one * vocabulary + after):
        odds += np.log((texts.elsewhere(keys, texts.true) + 1) / (texts.elsewhere(keys, ~texts.true) + 1))
    return texts.per_sentence(odds, owner)


def _ranked(texts: SentenceTable, scores: np.ndarray) -> np.ndarray:
    """Ranks of scores, with ties broken by the hash."""
    _, rank = np.unique(scores, return_inverse=True)
    return texts.break_ties(rank)


def _random(texts: SentenceTable) -> np.ndarray:
    places = zip(texts.item.tolist(), texts.place.tolist(), strict=True)
    return np.array([noise(texts.seed, texts.items[item].id, str(place)) for item, place in places])


TEXT_RULES: dict[str, Callable[[SentenceTable], np.ndarray]] = {
    "shorter": lambda texts: texts.break_ties(-texts.lengths),
    "longer": lambda texts: texts.break_ties(texts.lengths),
    "ngrams": lambda texts: _ranked(texts, _ngrams(texts)),
    "classifier": lambda texts: _ranked(texts, _classifier(texts)),
    "hash": lambda texts: texts.hashes,
    "random": _random,
    "constant": lambda texts: np.zeros(len(texts.sentences)),
}


# Rules that see the picture ------------------------------------------------------------------------------------------


def _of_pictures(corpus: Corpus, rules: Sequence[str], seed: int) -> dict[str, list[Answer]]:
    """The answers of salience rules. A missing picture, or one that is not of our scenes, is not scored."""
    by_rule: dict[str, list[Answer]] = {rule: [] for rule in rules}
    for item in corpus.items:
        objects: list[VisibleObject] = []
        status, why = "scored", ""
        try:
            objects = from_pixels(open_picture(corpus.pictures, item.image))
        except (Missing, Unreadable) as error:
            status, why = "missing" if isinstance(error, Missing) else "unreadable", str(error)
        for rule, answers in by_rule.items():
            scores = _salient(item, objects, rule, seed) if status == "scored" else ()
            answers.append(Answer(item.id, status, scores[:1], scores[1:], why))
    return by_rule


def _salient(item: Item, objects: Sequence[VisibleObject], rule: str, seed: int) -> tuple[float, float]:
    """The scores of the true and the false sentence: 1 for the preferred one; hashes if neither is preferred."""
    sentences = (item.positives[0], item.negatives[0])
    true, false = (WORDS & set(sentence.split()) for sentence in sentences)
    choice = preferred(rule, objects, true, false)
    if not choice:
        return noise(seed, sentences[0]), noise(seed, sentences[1])
    return float(choice > 0), float(choice < 0)


# Rules that know the scene -------------------------------------------------------------------------------------------


def _of_scenes(corpus: Corpus, truths: dict[str, PairMember], rule: str, seed: int) -> list[Answer]:
    answers = []
    for item in corpus.items:
        truth = truths[item.id]
        forms = (truth.positive, truth.negative)
        if rule == "scene_oracle":
            scores = [float(form.holds(truth.scene)) for form in forms]
        else:
            crop = item.labels.get("cropped") == "true"
            visible = visible_words(truth.scene[truth.subject : truth.subject + 1] if crop else truth.scene)
            shares = [len(content_words(form) & visible) for form in forms]
            sentences = (item.positives[0], item.negatives[0])
            scores = [share + noise(seed, sentence) for share, sentence in zip(shares, sentences, strict=True)]
        answers.append(Answer(item.id, "scored", (scores[0],), (scores[1],)))
    return answers


# Models that see another picture -------------------------------------------------------------------------------------


def blank(scorer: Scorer) -> Scorer:
    """A scorer that sees white pictures of the same sizes."""

    def score(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        # One object per size and call, so that each is encoded once; photographs have thousands of sizes.
        white = {size: Image.new("RGB", size, "white") for size in {image.size for image in images}}
        return scorer([white[image.size] for image in images], texts)

    score.__dict__["name"] = f"{getattr(scorer, 'name', 'scorer')}, blank pictures"
    if hasattr(scorer, "threshold"):
        score.__dict__["threshold"] = scorer.threshold
    return score


def shuffled(corpus: Corpus, seed: int = 0) -> Corpus:
    """The corpus with the pictures of other items: never the item's own and, if possible, not its pair's.

    Items keep their ids. Raises `ValueError` for a single picture.
    """
    images = list(dict.fromkeys(item.image for item in corpus.items))
    if len(images) < 2:
        raise ValueError("shuffled pictures need a corpus of two pictures or more")
    order = np.random.Generator(np.random.Philox(key=stream_key("shuffled", seed))).permutation(len(images)).tolist()
    pairs: dict[str, set[str]] = {}
    for item in corpus.items:
        pairs.setdefault(item.image, set()).update([item.pair] if item.pair else [])
    new: dict[str, str] = {}
    for step in range(1, min(len(images), 65)):  # the first rotation without pairs, or the last
        new = {images[a]: images[b] for a, b in zip(order, order[step:] + order[:step], strict=True)}
        if all(pairs[a].isdisjoint(pairs[b]) for a, b in new.items()):
            break
    items = tuple(replace(item, image=new[item.image]) for item in corpus.items)
    return replace(corpus, name=f"{corpus.name}, shuffled pictures", items=items)
