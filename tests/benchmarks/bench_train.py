"""How fast training is, beside the plain loop: `python tests/benchmarks/bench_train.py`, some ten minutes.

The plain loop: the same `transformers` modules, float32, random batches padded to the longest, text tokenised for each
batch. Ours: the project's model, batches of like length, precision `auto`, text tokenised once. Both take the same
examples (scenes of 3 to 30 objects, 36 regions each), step by step in turn, forward, backward and AdamW. A plain UNITER
is a BERT over words and regions, a plain ALBEF a ViT and two halves of a BERT: there are none in `transformers`.

`--batches 2 --models visualbert` ends in a minute. Rates are of this machine on this day, and of what else it does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    BertConfig,
    BertModel,
    LxmertConfig,
    LxmertModel,
    RobertaConfig,
    RobertaModel,
    VisualBertConfig,
    VisualBertModel,
    ViTConfig,
    ViTModel,
)

from train.config import RegionSettings, Run, Training
from train.data.batching import shuffled_batches
from train.data.examples import Examples, RawExamples, VisualSettings
from train.data.inputs import Inputs
from train.data.sources import TrainingDataset
from train.data.text import WordTokenizer, grammar_tokenizer
from train.learning.batches import training_schedule
from train.learning.devices import chosen_precision
from train.models import MODELS, make_model, shape_of
from train.run import load_data, make_learner
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, generate_dataset, generator
from travlr.scene import Batch

OBJECTS = (3, 30)
REGIONS = 36


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


# The plain loop --------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """A model of `transformers` as its documentation shows it, and a linear head. Batches are those of its tokenizer,
    with `features` (B, R, D) and `boxes` (B, R, 4), or `pixels`."""

    def __init__(self, name: str, dimension: int) -> None:
        super().__init__()
        self.name = name
        if name == "visualbert":
            self.model: nn.Module = VisualBertModel(VisualBertConfig(visual_embedding_dim=dimension))
        elif name == "lxmert":
            self.model = LxmertModel(LxmertConfig(visual_feat_dim=dimension))
        elif name == "roberta":
            self.model = RobertaModel(RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=2))
        elif name == "albef":
            self.model = ViTModel(ViTConfig(image_size=384), add_pooling_layer=False)
            self.text = BertModel(BertConfig(num_hidden_layers=6), add_pooling_layer=False)
            self.joint = BertModel(BertConfig(num_hidden_layers=6, is_decoder=True, add_cross_attention=True))
        else:
            self.model = BertModel(BertConfig(vocab_size=28996))
        if name == "uniter":
            self.features, self.boxes = nn.Linear(dimension, 768), nn.Linear(4, 768)
        self.head = nn.Linear(768, 2)

    def forward(self, text: dict[str, Tensor], seen: dict[str, Tensor]) -> Tensor:
        return self.head(getattr(self, self.name, self.text_only)(text, **seen))

    def text_only(self, text: dict[str, Tensor]) -> Tensor:
        return self.model(**text).pooler_output

    def visualbert(self, text: dict[str, Tensor], features: Tensor, boxes: Tensor) -> Tensor:
        ones = torch.ones(features.shape[:2], dtype=torch.long)
        seen = {"visual_embeds": features, "visual_attention_mask": ones, "visual_token_type_ids": ones}
        return self.model(**text, **seen).pooler_output

    def lxmert(self, text: dict[str, Tensor], features: Tensor, boxes: Tensor) -> Tensor:
        return self.model(**text, visual_feats=features, visual_pos=boxes).pooled_output

    def uniter(self, text: dict[str, Tensor], features: Tensor, boxes: Tensor) -> Tensor:
        words: Any = self.model.get_submodule("embeddings.word_embeddings")
        states = torch.cat([words(text["input_ids"]), self.features(features) + self.boxes(boxes)], 1)
        mask = torch.cat([text["attention_mask"], text["attention_mask"].new_ones(features.shape[:2])], 1)
        return self.model(inputs_embeds=states, attention_mask=mask).pooler_output

    def albef(self, text: dict[str, Tensor], pixels: Tensor) -> Tensor:
        image = self.model(pixel_values=pixels).last_hidden_state
        words = self.text(**text).last_hidden_state
        mask = text["attention_mask"]
        return self.joint(inputs_embeds=words, attention_mask=mask, encoder_hidden_states=image).pooler_output


# Examples --------------------------------------------------------------------------------------------------------


def scenes(count: int) -> RawExamples:
    """Examples of evenly mixed length, with a query of comparison."""
    maker = generator(Cardinality())
    random = np.random.default_rng(0)
    world = maker.config.world
    grid = np.zeros((count, world.cells), np.int16)
    order = np.full((count, OBJECTS[1]), -1)
    for row, number in enumerate(random.integers(OBJECTS[0], OBJECTS[1], count, endpoint=True)):
        order[row, :number] = random.permutation(world.cells)[:number]
        grid[row, order[row, :number]] = random.integers(1, len(world.kinds), number, endpoint=True)
    nothing = np.zeros(count, np.int64)
    batch = Batch(grid, order, nothing, nothing, nothing > 0, [], [], 0)
    queries = ["There are more circles than squares."] * count
    ids = [str(row) for row in range(count)]
    answers = random.random(count) < 0.5
    pairs = [("comparison", "1", "2")] * count
    return RawExamples(ids, maker.captions(batch), queries, answers, pairs, grid, world, maker.renderer)


def sight_of(name: str, size: str = "base") -> VisualSettings:
    architecture = MODELS[name].architecture
    side = shape_of(name, size).picture if architecture.sees == "pixels" else 0
    return VisualSettings(architecture.sees, RegionSettings(number=REGIONS), architecture.takes_boxes, side)


# One pair of loops -----------------------------------------------------------------------------------------------


def plain_batches(raw: RawExamples, examples: Examples, size: int) -> Iterator[tuple[Any, Any, Tensor]]:
    tokenizer = grammar_tokenizer()
    order = np.random.default_rng(1).permutation(len(raw.ids))

    for start in range(0, len(order), size):
        rows = order[start : start + size]
        pairs = [raw.captions[row] for row in rows], [raw.queries[row] for row in rows]
        text = dict(tokenizer(*pairs, padding=True, return_tensors="pt"))
        seen = {}
        if examples.regions is not None:
            features, boxes, _ = examples.regions.take(rows)
            seen = {"features": torch.from_numpy(features), "boxes": torch.from_numpy(boxes)}
        elif examples.pixels is not None:
            seen = {"pixels": examples.pixels(raw.grid[rows])}
        yield text, seen, torch.from_numpy(raw.answers[rows].astype(np.int64))


def our_batches(examples: Examples, size: int) -> Iterator[Inputs]:
    shown = np.ones(size, bool)
    for rows in shuffled_batches(len(examples), size, np.random.default_rng(1)):
        yield examples.inputs(rows, shown, shown)


def warmed(batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The first batch once more, before all: its step makes the optimiser's state, and is not timed."""
    yield next(batches())
    yield from batches()


def step(optimiser: torch.optim.Optimizer, precision: str, logits: Callable[[], Tensor], answers: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss: Any = functional.cross_entropy(logits().float(), answers)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def compare(name: str, size: int, batches: int, precision: str) -> list[str]:
    """A row of the table for one model."""
    raw = scenes(size * batches)
    begun = time.perf_counter()
    examples = Examples(raw, WordTokenizer(grammar_tokenizer()), sight_of(name))
    took = Counter({"input": time.perf_counter() - begun})
    dimension = examples.regions.dimension if examples.regions is not None else 2048
    torch.manual_seed(0)
    theirs, ours = Plain(name, dimension).train(), make_model(name, feature_width=dimension).train()
    rivals = torch.optim.AdamW(theirs.parameters(), lr=1e-5), torch.optim.AdamW(ours.parameters(), lr=1e-5, fused=True)
    plain, own = warmed(partial(plain_batches, raw, examples, size)), warmed(partial(our_batches, examples, size))
    for number in range(-1, batches):
        clock = [time.perf_counter()]
        text, seen, answers = next(plain)
        step(rivals[0], "float32", partial(theirs, text, seen), answers)
        clock.append(time.perf_counter())
        inputs = next(own)
        clock.append(time.perf_counter())
        step(rivals[1], precision, partial(ours, inputs), inputs.answer)
        clock.append(time.perf_counter())
        if number >= 0:
            took.update(dict(zip(("plain", "input", "ours"), np.diff(clock), strict=True)))
    count, whole = size * batches, took["ours"] + took["input"]
    return [
        name,
        f"{count / took['plain']:.2f}",
        f"{count / whole:.2f}",
        f"{took['plain'] / whole:.1f}",
        f"{100 * took['input'] / whole:.2f}",
    ]


# The default run -------------------------------------------------------------------------------------------------


def default_run(name: str, setting: str, folder: Path, steps: int, precision: str) -> list[str]:
    """Milliseconds of a step of the default run: where they go, and how many steps a second that makes."""
    run = Run(model=name, setting=setting, data=str(folder), training=Training(steps=250))
    data = load_data(run, TrainingDataset(folder))
    schedule = training_schedule(data)
    learner = make_learner(run, data, schedule.steps, lambda _: None)[0].train()
    optimiser = learner.configure_optimizers()["optimizer"]
    begun = time.perf_counter()
    made = sum(1 for _ in schedule.epoch(0))  # none is kept, as in training
    took: dict[str, list[float]] = {
        "input": [(time.perf_counter() - begun) / made],
        "forward": [],
        "backward": [],
        "optimiser": [],
    }
    for batch in itertools.islice(schedule.epoch(0), steps):
        batch = batch.to("cpu")
        clock = [time.perf_counter()]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss: Any = torch.stack(list(learner.losses(batch).values())).sum()
        clock.append(time.perf_counter())
        loss.backward()
        clock.append(time.perf_counter())
        nn.utils.clip_grad_norm_(learner.parameters(), run.details.clip or torch.inf)
        optimiser.step()
        optimiser.zero_grad()
        clock.append(time.perf_counter())
        for part, seconds in zip(("forward", "backward", "optimiser"), np.diff(clock), strict=True):
            took[part].append(seconds)
    times = {part: 1e3 * float(np.median(values)) for part, values in took.items()}
    whole = sum(times.values())
    percent = 100 * times["input"] / whole
    return [name, setting, *(f"{t:.1f}" for t in times.values()), f"{1e3 / whole:.1f}", f"{percent:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batches", type=int, default=8, help="batches of each loop and model (8)")
    parser.add_argument("--size", type=int, default=16, help="examples of a batch (16; ALBEF a quarter)")
    parser.add_argument("--steps", type=int, default=60, help="steps of the default run (60)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads (all cores)")
    parser.add_argument("--only", choices=("base", "small"), help="one of the tables")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    precision = chosen_precision("auto", "cpu")
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"precision {precision}")
    if asked.only in (None, "base"):
        head = ["model", "plain, examples/s", "ours, examples/s", "times", "input, % of time"]
        rows = []
        for name in asked.models:
            rows.append(compare(name, asked.size // (4 if name == "albef" else 1), asked.batches, precision))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
        table("Training at base size", head, rows)
    if asked.only in (None, "small"):
        head = ["model", "setting", "input", "forward", "backward", "optimiser", "steps/s", "input, % of time"]
        count = Count(train=100, validation=100, test_ind=100, test_ood=100)
        with tempfile.TemporaryDirectory() as place:
            generate_dataset(Cardinality(count=count), GenerateArguments(out=place, workers=1), log=lambda _: None)
            rows = [
                default_run(name, setting, Path(place), asked.steps, precision)
                for name in asked.models
                for setting in ("caption", "image")
                if setting == "caption" or MODELS[name].architecture.sees != "nothing"
            ]
        table("A step of the default run (small, batch of 64), milliseconds", head, rows)


if __name__ == "__main__":
    main()
