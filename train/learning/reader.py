"""A reader: an image model that writes the caption of a picture, so that the model that reasons needs text alone.

No model in the paper transfers from one modality to the other, and section 6 suggests language-like intermediates
between image and reasoning. A reader learns from unlabelled (image, caption) pairs, without queries, answers, scenes or
the places of objects in the picture. Each region (or patch) predicts the words of one phrase of the caption, or none.
The phrases of a caption are a set, so each is assigned to a region such that the loss is lowest (as in DETR, Carion et
al. 2020). Before that, in the first part of training, every phrase trains all regions.

Shapes: B pictures, R regions, P phrases of a caption, W words of a phrase, V words of the vocabulary.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from train.config import Run
from train.data.examples import Examples, RawExamples, VisualSettings
from train.data.inputs import Inputs
from train.data.pixels import Pictures
from train.data.sources import stream_examples
from train.data.text import LIST_START, WordTokenizer, split_caption
from train.models import make_model
from train.regions.recogniser import weights_digest
from travlr.cli import Log
from travlr.config import config_dict
from travlr.files import replacing
from travlr.generate import Generator

VERSION = 1  # of the training procedure; saved readers of another version are not used
NOTHING = 0  # the word that ends a phrase; a phrase that begins with it is empty
UNMATCHED = 0.2  # weight of the loss of regions without a phrase
BATCH = 64
PAIRS = BATCH - 1  # (image, caption) pairs in a batch; its first picture is blank
CHUNK = 50  # batches generated at a time
READ = 512  # pictures in a batch at inference
ALIGNING = 0.3  # part of all steps that use `mixture_loss`; the rest use `set_loss`
RATE, WARMUP, DECAY, CLIP = 1e-3, 0.1, 0.01, 1.0
SAMPLE = 2000  # captions from which the vocabulary is taken


@dataclass(frozen=True)
class ReaderConfig:
    """The architecture of a reader. changes: to the shape of the model. empty: tokens of the empty text.

    preface: the start of every caption, up to the first phrase. words: the vocabulary of phrases; word 0 is empty.
    longest: number of words of the longest phrase.
    """

    model: str
    size: str
    changes: dict[str, Any]
    empty: list[int]
    preface: str
    words: list[str]
    longest: int


class Reader(nn.Module):
    """An image model of `train.models` with a head that predicts W words for each region."""

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = make_model(config.model, config.size, None, **config.changes)
        width = self.model.shape.width
        self.names = nn.Sequential(
            nn.Linear(width, width),
            nn.GELU(),
            nn.LayerNorm(width),
            nn.Linear(width, config.longest * len(config.words)),
        )

    def forward(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of words, (B, R, W, V). The text of the inputs is ignored."""
        count = len(inputs)
        empty = torch.tensor(self.config.empty, device=inputs.tokens.device).expand(count, -1)
        states = self.model.encode(replace(inputs, tokens=empty, token_mask=torch.ones_like(empty, dtype=torch.bool)))
        assert states.image is not None
        logits = self.names(states.image).float()
        return logits.unflatten(-1, (self.config.longest, len(self.config.words))).log_softmax(-1)

    @torch.inference_mode()
    def captions(self, examples: Examples) -> list[str]:
        """Captions of the pictures of N examples, "" for a picture without objects. Equal pictures are read once."""
        first, which = distinct(examples)
        order = (
            first if examples.regions is None else first[np.argsort((examples.regions.index[first] >= 0).sum(axis=1))]
        )
        self.eval()
        captions: dict[int, str] = {}  # by row
        device = next(self.parameters()).device
        for start in range(0, len(order), READ):
            rows = order[start : start + READ]
            inputs = pictures(examples, rows, np.ones(len(rows), bool))
            words = self(inputs.to(device)).argmax(-1).cpu().numpy()  # (B, R, W)
            if inputs.region_mask is not None:
                words[~inputs.region_mask.numpy()] = NOTHING
            for row, phrases in zip(rows.tolist(), words, strict=True):
                captions[row] = self._caption(phrases[phrases[:, 0] != NOTHING])
        return [captions[row] for row in first[which].tolist()]

    def _caption(self, phrases: np.ndarray) -> str:
        """The caption of predicted words (R', W). If several phrases name the same cell, the first counts."""
        places: dict[str, str] = {}
        for row in phrases.tolist():
            words = itertools.takewhile(lambda word: word != NOTHING, row)
            phrase = " ".join(self.config.words[word] for word in words)
            places.setdefault(phrase.rpartition(" at ")[2], phrase)
        *most, last = places.values() or [""]
        return f"{self.config.preface}{', '.join(most)}{' and ' if most else ''}{last}." if last else ""


def pictures(examples: Examples, rows: np.ndarray, visible: np.ndarray) -> Inputs:
    """Examples `rows` without caption and answer. visible: (B,) bool; the other pictures are blank."""
    return replace(examples.inputs(rows, visible, np.zeros(len(rows), bool)), answer=None)


def distinct(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each distinct picture, and for each of N rows the number of its picture."""
    if examples.regions is not None:
        keys = zip(examples.regions.index[:-1], examples.regions.boxes[:-1], strict=True)
        contents = [index.tobytes() + boxes.tobytes() for index, boxes in keys]
    elif isinstance(examples.pixels, Pictures):
        contents = [row.tobytes() for row in examples.grid]
    else:  # two files may show the same scene in different pixels
        return np.arange(len(examples)), np.arange(len(examples))
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(content, len(numbers)) for content in contents], np.int64)
    return np.unique(which, return_index=True)[1], which


# Phrases ---------------------------------------------------------------------------------------------------------


def phrase_words(captions: Sequence[str]) -> tuple[str, list[str], int]:
    """The common start of captions, the vocabulary of their phrases, and the length of the longest phrase in words.

    Raises `ValueError` if the captions do not start alike.
    """
    prefaces = {split_caption(caption)[0] for caption in captions}
    if len(prefaces) != 1 or LIST_START not in min(prefaces):
        raise ValueError(f"reader: captions must all start alike up to {LIST_START!r}, not {sorted(prefaces)[:2]}")
    phrases = [phrase.split(" ") for caption in captions for phrase in split_caption(caption)[1]]
    return prefaces.pop(), ["", *sorted({word for words in phrases for word in words})], max(map(len, phrases))


def phrase_targets(captions: Sequence[str], config: ReaderConfig) -> tuple[np.ndarray, np.ndarray]:
    """Words of the phrases of B captions, (B, P, W) int64, padded with `NOTHING`, and numbers of phrases, (B,)."""
    number = {word: i for i, word in enumerate(config.words)}
    phrase_lists = [split_caption(caption)[1] for caption in captions]
    counts = np.array([len(phrases) for phrases in phrase_lists])
    targets = np.full((len(captions), counts.max(initial=0), config.longest), NOTHING, np.int64)
    for row, phrases in enumerate(phrase_lists):
        for column, phrase in enumerate(phrases):
            words = [number[word] for word in phrase.split(" ")]
            targets[row, column, : len(words)] = words
    return targets, counts


# Loss ------------------------------------------------------------------------------------------------------------


def costs(log_probs: Tensor, targets: Tensor) -> Tensor:
    """-log P(phrase) for each region, (B, R, P). log_probs: (B, R, W, V). targets: (B, P, W), words of phrases."""
    words = nn.functional.one_hot(targets, log_probs.shape[-1]).to(log_probs.dtype)  # (B, P, W, V)
    return -torch.bmm(log_probs.flatten(2), words.flatten(2).transpose(1, 2))


def mixture_loss(log_probs: Tensor, mask: Tensor | None, targets: Tensor, counts: np.ndarray) -> Tensor:
    """Mean over phrases of -log P(phrase) under a uniform mixture of all regions.

    Arguments as in `set_loss`. At the start of training the best assignment is random, and `set_loss` would reinforce
    it. Here each phrase trains every region, in proportion to the probability that the region gives it (Model 1 of
    Brown et al. 1993 aligns words of two languages in this way).
    """
    likely = -costs(log_probs, targets)
    if mask is not None:
        likely = likely.masked_fill(~mask[..., None], torch.finfo(likely.dtype).min)
        number = mask.sum(1, keepdim=True)
    else:
        number = torch.full((len(likely), 1), likely.shape[1], device=likely.device)
    is_phrase = torch.arange(likely.shape[2]) < torch.from_numpy(counts)[:, None]  # (B, P), False for padding
    return (number.to(likely.dtype).log() - likely.logsumexp(1))[is_phrase.to(likely.device)].mean()


def set_loss(log_probs: Tensor, mask: Tensor | None, targets: Tensor, counts: np.ndarray) -> Tensor:
    """Mean over phrases of -log P(phrase), at the assignment of phrases to regions with the lowest loss.

    log_probs: (B, R, W, V). mask: (B, R), False for padding, or None. targets: (B, P, W), words of phrases; the first
    `counts` (B,) of them are used. Regions without a phrase should predict `NOTHING`; their loss has the weight
    `UNMATCHED`. Phrases without a region do not count.
    """
    cost = costs(log_probs, targets)
    empty = -UNMATCHED * log_probs[..., NOTHING].sum(-1)  # (B, R)
    if mask is not None:
        empty = empty.masked_fill(~mask, 0.0)
    gains = (cost - empty[..., None]).detach().cpu().numpy()
    is_region = np.ones(gains.shape[:2], bool) if mask is None else mask.cpu().numpy()
    pairs: list[tuple[int, int, int]] = []  # example, region, phrase
    for example, count in enumerate(counts.tolist()):
        regions = np.flatnonzero(is_region[example])
        rows, columns = linear_sum_assignment(gains[example][regions, :count])
        pairs += [(example, row, column) for row, column in zip(regions[rows].tolist(), columns.tolist(), strict=True)]
    index = torch.tensor(pairs, device=log_probs.device).reshape(-1, 3).unbind(1)
    change = cost[index].sum() - empty[index[:2]].sum()  # by the regions with a phrase
    return (change + empty.sum()) / max(1, int(counts.sum()))


# Training --------------------------------------------------------------------------------------------------------


def train_reader(
    run: Run, maker: Generator, words: WordTokenizer, visual: VisualSettings, device: str, log: Log
) -> Reader:
    """The reader of a run, trained on `reader.steps` batches of (image, caption) pairs of a generator.

    The pairs are streamed past the training split, so none of them is in the dataset. The same arguments give the same
    weights. Raises `ValueError` for more steps than the world has scenes for, and if the loss is not finite.
    """
    steps = run.reader.steps
    first, last = maker.config.count.train, maker.sampler.limits["train"]
    if first + steps * BATCH > last:
        raise ValueError(
            f"reader.steps={steps}: must be from 1 to {(last - first) // BATCH}; the world has no more scenes"
        )
    sample = _unlabelled(stream_examples(maker, first, min(first + SAMPLE, last)))
    preface, settings, longest = phrase_words(sample.captions)
    changes: dict[str, Any] = {} if run.size == "base" else {"vocabulary": words.size}
    regions = Examples(sample.take(np.arange(1)), words, visual).regions
    if regions is not None:
        changes["feature_width"] = regions.dimension
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        config = ReaderConfig(run.model, run.size, changes, [words.cls, words.sep], preface, settings, longest)
        reader = Reader(config).to(device)
        optimiser = torch.optim.AdamW(reader.parameters(), RATE, (0.9, 0.98), weight_decay=DECAY, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _factor(step, steps))
        for step, (inputs, captions) in enumerate(_batches(maker, words, visual, steps), 1):
            reader.train()
            targets, counts = phrase_targets(captions, reader.config)
            inputs = inputs.to(device)
            loss_of = mixture_loss if step <= ALIGNING * steps else set_loss
            loss = loss_of(reader(inputs), inputs.region_mask, torch.from_numpy(targets).to(device), counts)
            if not torch.isfinite(loss):
                raise ValueError(f"reader.steps={steps}: the loss is not a number at step {step}; try another seed")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(reader.parameters(), CLIP)
            optimiser.step()
            schedule.step()
            if step % 250 == 0 or step == steps:
                log(f"reader: step {step} of {steps}  loss {loss.item():.4f}")
    return reader.eval()


def _factor(step: int, steps: int) -> float:
    """The factor of the learning rate: linear warm-up, then linear decay to 0."""
    rise = max(1, round(WARMUP * steps))
    return min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def _unlabelled(raw: RawExamples) -> RawExamples:
    """The examples without queries and answers."""
    return replace(raw, queries=[""] * len(raw.ids), answers=np.zeros(len(raw.ids), bool))


def _batches(
    maker: Generator, words: WordTokenizer, visual: VisualSettings, steps: int
) -> Iterator[tuple[Inputs, Sequence[str]]]:
    """Pictures and their captions. The first picture of each batch is blank, and its caption empty."""
    visible = np.arange(BATCH) > 0
    for step in range(0, steps, CHUNK):
        first = maker.config.count.train + step * BATCH
        raw = _unlabelled(stream_examples(maker, first, first + min(CHUNK, steps - step) * BATCH))
        examples = Examples(replace(raw, captions=raw.queries), words, visual)
        for start in range(0, len(examples), BATCH):
            rows = np.arange(start, start + BATCH)
            yield pictures(examples, rows, visible), ["", *raw.captions[start + 1 : start + BATCH]]


# Files -----------------------------------------------------------------------------------------------------------


def save(reader: Reader, path: Path) -> None:
    """Write a reader as one safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in reader.state_dict().items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, {"reader": json.dumps(asdict(reader.config))})


def load(path: Path) -> Reader:
    """A saved reader. Raises `ValueError` if the file is not one."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            reader = Reader(ReaderConfig(**json.loads((file.metadata() or {})["reader"])))
            reader.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a reader ({str(error).splitlines()[0]}); delete it to train it anew") from None
    return reader.eval()


def cached_reader(
    folder: Path, run: Run, maker: Generator, words: WordTokenizer, visual: VisualSettings, device: str, log: Log
) -> Reader:
    """`train_reader` with a cache: a reader with the same arguments is trained once and saved in `folder`."""
    pixels = visual.statistics if visual.side else ()
    settings = {
        "version": VERSION,
        "config": config_dict(maker.config),
        "sight": [asdict(visual.regions), visual.side, weights_digest().hex(), *pixels],
        "model": [run.model, run.size, words.size, run.reader.steps, run.seed],
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"reader-{digest}.safetensors"
    if path.is_file():
        return load(path).to(device)
    reader = train_reader(run, maker, words, visual, device, log)
    save(reader, path)
    return reader
