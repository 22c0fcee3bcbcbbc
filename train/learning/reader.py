"""A reader: an image model that writes a picture's caption, so that a model that reasons need only know text.

The paper finds no model that carries what it learned over to the other modality, and suggests language-like
intermediates between image and reasoning (section 6). A reader learns from unlabelled (image, caption) pairs alone: no
query, no answer, no symbolic scene, and nothing says which object of the caption is where in the picture. Every region
(or patch) names the words of one phrase of the caption, or nothing; as the phrases of a caption are a set, they are
assigned to the regions at the least loss (as in DETR, Carion et al. 2020), once a first part of the training has found
out by co-occurrence what region goes with what words.

Shapes: B pictures, R regions, P phrases of a caption, W words of a phrase, V words known.
"""

from __future__ import annotations

import hashlib
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

from train.config import ARCHITECTURES, architecture_of
from train.data.examples import Examples, RawExamples, VisualSettings, streamed
from train.data.inputs import Inputs
from train.data.pixels import Pictures
from train.data.text import LIST_START, WordTokenizer, phrases_of
from train.models import make_model
from train.regions.recogniser import weights_digest
from travlr.cli import Log
from travlr.files import replacing
from travlr.formats.manifest import config_dict
from travlr.generate import Generator

VERSION = 1  # of how readers are trained: kept ones of another are trained anew
NOTHING = 0  # the word that ends a phrase: a phrase that begins with it is empty
UNMATCHED = 0.2  # weight of the loss of regions that no phrase is left for
BATCH = 64
PAIRS = BATCH - 1  # of image and caption in a batch; its first picture is blank
CHUNK = 50  # batches that are made at once
READ = 512  # pictures read at once
ALIGNING = 0.3  # the part of all steps before phrases are assigned
RATE, WARMUP, DECAY, CLIP = 1e-3, 0.1, 0.01, 1.0
SAMPLE = 2000  # captions in which words are looked for


@dataclass(frozen=True)
class ReaderConfig:
    """What a reader's weights are the weights of. changes: of the model's shape. empty: tokens of the empty text.

    preface: what captions begin with, up to the first phrase. words: all that phrases hold, the first the empty one.
    longest: words of the longest phrase.
    """

    model: str
    size: str
    changes: dict[str, Any]
    empty: list[int]
    preface: str
    words: list[str]
    longest: int


class Reader(nn.Module):
    """An image model of `train.models` and a head that names W words for each of its regions."""

    def __init__(self, about: ReaderConfig) -> None:
        super().__init__()
        if architecture_of(about.model).sees == "nothing":
            seeing = ", ".join(name for name, model in ARCHITECTURES.items() if model.sees != "nothing")
            raise ValueError(f"model={about.model}: sees no images that could be read; choose one of {seeing}")
        self.about = about
        self.model = make_model(about.model, about.size, None, **about.changes)
        width = self.model.shape.width
        self.names = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, about.longest * len(about.words))
        )

    def forward(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of words, (B, R, W, V). The text of the inputs is not looked at."""
        count = len(inputs)
        empty = torch.tensor(self.about.empty, device=inputs.tokens.device).expand(count, -1)
        states = self.model.encode(replace(inputs, tokens=empty, token_mask=torch.ones_like(empty, dtype=torch.bool)))
        assert states.image is not None
        logits = self.names(states.image).float()
        return logits.unflatten(-1, (self.about.longest, len(self.about.words))).log_softmax(-1)

    @torch.inference_mode()
    def captions(self, examples: Examples) -> list[str]:
        """What is read off the pictures of N examples, "" where nothing is seen. Equal pictures are read once."""
        first, which = distinct(examples)
        order = (
            first if examples.regions is None else first[np.argsort((examples.regions.index[first] >= 0).sum(axis=1))]
        )
        self.eval()
        read: dict[int, str] = {}
        device = next(self.parameters()).device
        for start in range(0, len(order), READ):
            rows = order[start : start + READ]
            inputs = pictures(examples, rows, np.ones(len(rows), bool))
            words = self(inputs.to(device)).argmax(-1).cpu().numpy()  # (B, R, W)
            if inputs.region_mask is not None:
                words[~inputs.region_mask.numpy()] = NOTHING
            for row, named in zip(rows.tolist(), words, strict=True):
                read[row] = self._caption(named[named[:, 0] != NOTHING])
        return [read[row] for row in first[which].tolist()]

    def _caption(self, named: np.ndarray) -> str:
        """The caption of words (R', W). Of several phrases about one place the first is kept."""
        places: dict[str, str] = {}
        for row in named.tolist():
            phrase = " ".join(self.about.words[word] for word in (row[: row.index(NOTHING)] if NOTHING in row else row))
            places.setdefault(phrase.rpartition(" at ")[2], phrase)
        *most, last = places.values() or [""]
        return f"{self.about.preface}{', '.join(most)}{' and ' if most else ''}{last}." if last else ""


def pictures(examples: Examples, rows: np.ndarray, shown: np.ndarray) -> Inputs:
    """Examples `rows` without caption and answer, blank where not `shown`; a reader ignores the query in `tokens`."""
    return replace(examples.inputs(rows, shown, np.zeros(len(rows), bool)), answer=None)


def distinct(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """First row of each distinct picture, and which of them each of N rows shows."""
    if examples.regions is not None:
        keys = zip(examples.regions.index[:-1], examples.regions.boxes[:-1], strict=True)
        contents = [index.tobytes() + boxes.tobytes() for index, boxes in keys]
    elif isinstance(examples.pixels, Pictures):
        contents = [row.tobytes() for row in examples.grid]
    else:  # files may show the same scene in other pixels
        return np.arange(len(examples)), np.arange(len(examples))
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(content, len(numbers)) for content in contents], np.int64)
    return np.unique(which, return_index=True)[1], which


# Phrases ---------------------------------------------------------------------------------------------------------


def phrase_words(captions: Sequence[str]) -> tuple[str, list[str], int]:
    """Preface of captions, words of their phrases after the empty one, and words of the longest phrase.

    Raises `ValueError` where the captions do not begin alike.
    """
    prefaces = {phrases_of(caption)[0] for caption in captions}
    if len(prefaces) != 1 or LIST_START not in min(prefaces):
        raise ValueError(
            f"reader: needs captions that all begin alike up to {LIST_START!r}, not {sorted(prefaces)[:2]}"
        )
    split = [phrase.split(" ") for caption in captions for phrase in phrases_of(caption)[1]]
    return prefaces.pop(), ["", *sorted({word for words in split for word in words})], max(map(len, split))


def phrase_targets(captions: Sequence[str], about: ReaderConfig) -> tuple[np.ndarray, np.ndarray]:
    """Words of the phrases of B captions, (B, P, W) int64, `NOTHING` after the last; numbers of phrases, (B,)."""
    number = {word: i for i, word in enumerate(about.words)}
    listed = [phrases_of(caption)[1] for caption in captions]
    counts = np.array([len(phrases) for phrases in listed])
    targets = np.full((len(captions), counts.max(initial=0), about.longest), NOTHING, np.int64)
    for row, phrases in enumerate(listed):
        for column, phrase in enumerate(phrases):
            words = [number[word] for word in phrase.split(" ")]
            targets[row, column, : len(words)] = words
    return targets, counts


# Loss ------------------------------------------------------------------------------------------------------------


def assignment(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, each once, whose costs have the least sum: as many as the shorter side of (R, P)."""
    rows, columns = linear_sum_assignment(cost)
    return rows, columns


def costs(named: Tensor, targets: Tensor) -> Tensor:
    """-log P(phrase) by each region, (B, R, P), of log-probabilities (B, R, W, V) and words of phrases (B, P, W)."""
    words = nn.functional.one_hot(targets, named.shape[-1]).to(named.dtype)  # (B, P, W, V)
    return -torch.bmm(named.flatten(2), words.flatten(2).transpose(1, 2))


def mixture_loss(named: Tensor, seen: Tensor | None, targets: Tensor, counts: np.ndarray) -> Tensor:
    """Mean over phrases of -log P(phrase) where any region, all as likely, may be the one that is spoken of.

    Arguments as of `set_loss`. Before a reader knows anything, the best assignment is chance, and learning from it
    makes it permanent; here each phrase still teaches every region, by how well that region names it. (This is how
    words of two languages were first aligned: Model 1 of Brown et al. 1993.)
    """
    likely = -costs(named, targets)
    if seen is not None:
        likely = likely.masked_fill(~seen[..., None], torch.finfo(likely.dtype).min)
        number = seen.sum(1, keepdim=True)
    else:
        number = torch.full((len(likely), 1), likely.shape[1], device=likely.device)
    used = torch.arange(likely.shape[2]) < torch.from_numpy(counts)[:, None]  # (B, P)
    return (number.to(likely.dtype).log() - likely.logsumexp(1))[used.to(likely.device)].mean()


def set_loss(named: Tensor, seen: Tensor | None, targets: Tensor, counts: np.ndarray) -> Tensor:
    """Mean over phrases of -log P(phrase), at the assignment of phrases to regions that makes the whole loss least.

    named: log-probabilities (B, R, W, V). seen: (B, R), False for padding, None where there is none. targets:
    (B, P, W) words of phrases, of which the first `counts` (B,) are used. Regions without a phrase should name nothing;
    their loss counts by `UNMATCHED`. Phrases for which no region is left do not count.
    """
    cost = costs(named, targets)
    empty = -UNMATCHED * named[..., NOTHING].sum(-1)  # (B, R)
    if seen is not None:
        empty = empty.masked_fill(~seen, 0.0)
    gains = (cost - empty[..., None]).detach().cpu().numpy()
    whole = np.ones(gains.shape[:2], bool) if seen is None else seen.cpu().numpy()
    chosen: list[tuple[int, int, int]] = []
    for example, count in enumerate(counts.tolist()):
        regions = np.flatnonzero(whole[example])
        rows, columns = assignment(gains[example][regions, :count])
        chosen += [(example, row, column) for row, column in zip(regions[rows].tolist(), columns.tolist(), strict=True)]
    of, region, phrase = torch.tensor(chosen, device=named.device).reshape(-1, 3).unbind(1)
    matched = cost[of, region, phrase].sum() - empty[of, region].sum()
    return (matched + empty.sum()) / max(1, int(counts.sum()))


# Training --------------------------------------------------------------------------------------------------------


def train_reader(
    maker: Generator,
    words: WordTokenizer,
    visual: VisualSettings,
    model: str = "uniter",
    size: str = "small",
    steps: int = 500,
    seed: int = 0,
    device: str = "cpu",
    log: Log = print,
) -> Reader:
    """A reader of the pictures that `maker` makes, trained on `steps` batches of its (image, caption) pairs.

    They are streamed from past the training split, so none is in the dataset. The same arguments give the same weights.
    Raises `ValueError` for a model that sees no images, for more steps than the world has scenes for, and where
    the loss is not a number.
    """
    first, last = maker.config.count.train, maker.sampler.limits["train"]
    if steps < 1 or first + steps * BATCH > last:
        raise ValueError(f"reader.steps={steps}: must be 1 to {(last - first) // BATCH}, for which there are scenes")
    sample = _unlabelled(streamed(maker, first, min(first + SAMPLE, last)))
    preface, known, longest = phrase_words(sample.captions)
    changes: dict[str, Any] = {} if size == "base" else {"vocabulary": words.size}
    regions = Examples(sample.take(np.arange(1)), words, visual).regions
    if regions is not None:
        changes["feature_width"] = regions.dimension
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        reader = Reader(ReaderConfig(model, size, changes, [words.cls, words.sep], preface, known, longest)).to(device)
        optimiser = torch.optim.AdamW(reader.parameters(), RATE, (0.9, 0.98), weight_decay=DECAY, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _factor(step, steps))
        for step, (inputs, captions) in enumerate(_batches(maker, words, visual, steps), 1):
            reader.train()
            targets, counts = phrase_targets(captions, reader.about)
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
    """What the learning rate is multiplied by: it rises, then falls to 0."""
    rise = max(1, round(WARMUP * steps))
    return min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def _unlabelled(raw: RawExamples) -> RawExamples:
    """Without queries and answers."""
    return replace(raw, queries=[""] * len(raw.ids), answers=np.zeros(len(raw.ids), bool))


def _batches(
    maker: Generator, words: WordTokenizer, visual: VisualSettings, steps: int
) -> Iterator[tuple[Inputs, Sequence[str]]]:
    """Pictures and their captions. The first picture of each batch is blank, and nothing is said of it."""
    shown = np.arange(BATCH) > 0
    for done in range(0, steps, CHUNK):
        first = maker.config.count.train + done * BATCH
        raw = _unlabelled(streamed(maker, first, first + min(CHUNK, steps - done) * BATCH))
        examples = Examples(replace(raw, captions=raw.queries), words, visual)
        for start in range(0, len(examples), BATCH):
            rows = np.arange(start, start + BATCH)
            yield pictures(examples, rows, shown), ["", *raw.captions[start + 1 : start + BATCH]]


# Files -----------------------------------------------------------------------------------------------------------


def save(reader: Reader, path: Path) -> None:
    """Write a reader; the file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in reader.state_dict().items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, {"reader": json.dumps(asdict(reader.about))})


def load(path: Path) -> Reader:
    """A saved reader. Raises `ValueError` where the file is none."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            reader = Reader(ReaderConfig(**json.loads((file.metadata() or {})["reader"])))
            reader.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a reader ({str(error).splitlines()[0]}); delete it to train it anew") from None
    return reader.eval()


def cached_reader(
    folder: Path,
    maker: Generator,
    words: WordTokenizer,
    visual: VisualSettings,
    model: str,
    size: str,
    steps: int,
    seed: int,
    device: str = "cpu",
    log: Log = print,
) -> Reader:
    """`train_reader`, or the reader that it has made of the same arguments before, which `folder` keeps."""
    pixels = visual.statistics if visual.side else ()
    known = {
        "version": VERSION,
        "config": config_dict(maker.config),
        "sight": [asdict(visual.regions), visual.side, weights_digest().hex(), *pixels],
        "model": [model, size, words.size, steps, seed],
    }
    path = folder / f"reader-{hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]}.safetensors"
    if path.is_file():
        return load(path).to(device)
    reader = train_reader(maker, words, visual, model, size, steps, seed, device, log)
    save(reader, path)
    return reader
