"""A reader writes captions of pictures it has not seen, learned from pictures and captions and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from render.text import parse_caption
from train.config import ReaderSettings, RegionSettings, Run
from train.data.examples import Examples, RawExamples, VisualSettings
from train.data.inputs import Inputs
from train.data.sources import stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer, split_caption
from train.learning import reader as module
from train.learning.reader import (
    NOTHING,
    UNMATCHED,
    Reader,
    ReaderConfig,
    cached_reader,
    load,
    mixture_loss,
    phrase_targets,
    phrase_words,
    save,
    set_loss,
    train_reader,
)
from train.models import MODELS
from travlr import Count, Generator, Spatiality
from travlr.config import Image
from travlr.scene import World

pytestmark = pytest.mark.usefixtures("one_thread")
WORLD = World(colours=("red", "orange"), shapes=("square", "circle", "star"), columns=3, rows=3)
MAKER = Generator(Spatiality(world=WORLD, image=Image(cell=16), count=Count(100, 10, 200, 200)))
WORDS = WordTokenizer(grammar_tokenizer())
SCENE, GRID = (VisualSettings("regions", RegionSettings(source=source)) for source in ("scene", "grid"))
CONTEXT = VisualSettings("regions", RegionSettings(context="receptive_field"))


def train(visual: VisualSettings = SCENE, steps: int = 220, seed: int = 0, model: str = "uniter") -> Reader:
    return train_reader(run(steps, seed, model), MAKER, WORDS, visual, "cpu", lambda line: None)


def run(steps: int, seed: int = 0, model: str = "uniter") -> Run:
    return Run(model=model, size="tiny", seed=seed, reader=ReaderSettings(steps))


@pytest.fixture(scope="module")
def scene_reader() -> Reader:
    return train(SCENE)


@pytest.fixture(scope="module")
def grid_reader() -> Reader:
    return train(GRID, 240)


@pytest.fixture(scope="module")
def visualbert_reader() -> Reader:
    """Without boxes: places are in the features alone."""
    return train(CONTEXT, 240, model="visualbert")


def shown(raw: RawExamples, row: int) -> set[tuple[str, str, int, int]]:
    """Colour, shape, row and column of the objects of a scene, from its grid."""
    return {
        (WORLD.kinds[kind - 1][2], WORLD.kinds[kind - 1][1], cell // WORLD.columns, cell % WORLD.columns)
        for cell, kind in enumerate(raw.grid[row].tolist())
        if kind
    }


def read(caption: str) -> set[tuple[str, str, int, int]]:
    columns, rows, scene = parse_caption(caption)
    assert (columns, rows) == (WORLD.columns, WORLD.rows)
    return {(o.colour, o.shape, o.row, o.column) for o in scene}


# Reading ---------------------------------------------------------------------------------------------------------

READERS = [("scene_reader", SCENE), ("grid_reader", GRID), ("visualbert_reader", CONTEXT)]


@pytest.mark.parametrize("split", ["test_ind", "test_ood"])
@pytest.mark.parametrize(("name", "visual"), READERS)
def test_reads_pictures_it_has_not_seen(
    name: str, visual: VisualSettings, split: str, request: pytest.FixtureRequest
) -> None:
    reader = request.getfixturevalue(name)
    raw = stream_examples(MAKER, 0, 200, split)
    captions = reader.captions(Examples(raw, WORDS, visual))
    assert [read(caption) for caption in captions] == [shown(raw, row) for row in range(200)]


@pytest.mark.parametrize(("name", "visual"), READERS)
def test_reads_nothing_off_a_blank_picture(name: str, visual: VisualSettings, request: pytest.FixtureRequest) -> None:
    reader = request.getfixturevalue(name)
    raw = stream_examples(MAKER, 0, 3, "test_ind")
    grid = raw.grid.copy()
    grid[1] = 0
    captions = reader.captions(Examples(replace(raw, grid=grid), WORDS, visual))
    assert captions[1] == "" and read(captions[0]) == shown(raw, 0) and read(captions[2]) == shown(raw, 2)


def test_reads_the_picture_alone(scene_reader: Reader) -> None:
    raw = stream_examples(MAKER, 0, 50, "test_ind")
    other = replace(raw, captions=raw.captions[::-1], queries=["There is 1 red object."] * 50, answers=~raw.answers)
    assert scene_reader.captions(Examples(raw, WORDS, SCENE)) == scene_reader.captions(Examples(other, WORDS, SCENE))


def test_reads_equal_pictures_once(scene_reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = stream_examples(MAKER, 0, 4, "test_ind")
    repeated = replace(raw, grid=raw.grid[[2, 0, 2, 2]])
    seen: list[int] = []
    forward = scene_reader.forward

    def counting(inputs: Inputs) -> Tensor:
        seen.append(len(inputs))
        return forward(inputs)

    monkeypatch.setattr(scene_reader, "forward", counting)
    captions = scene_reader.captions(Examples(repeated, WORDS, SCENE))
    assert sum(seen) == 2
    assert [read(caption) for caption in captions] == [shown(raw, row) for row in (2, 0, 2, 2)]


def test_pictures_of_any_number_are_read_in_their_order(scene_reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = stream_examples(MAKER, 0, 40, "test_ind")
    grid = raw.grid.copy()
    for row in range(40):  # scenes of one to three objects, so that rows are not read in their order
        occupied = np.flatnonzero(grid[row])
        grid[row, occupied[: row % 3]] = 0
    raw = replace(raw, grid=grid)
    monkeypatch.setattr(module, "READ", 7)
    captions = scene_reader.captions(Examples(raw, WORDS, SCENE))
    assert [phrase.rpartition(" at ")[2] for caption in captions for phrase in split_caption(caption)[1]] == [
        f"{'ABC'[cell % 3]} {cell // 3 + 1}" for row in range(40) for cell in np.flatnonzero(grid[row])
    ]


def test_of_two_phrases_about_a_place_the_first_is_kept() -> None:
    about = ReaderConfig(
        "uniter", "tiny", {"vocabulary": WORDS.size}, [2, 3], "There is ", ["", "A", "B", "a", "at", "b"], 3
    )
    named = np.array([[3, 4, 1], [5, 4, 1], [3, 4, 2], [5, 4, 2]])
    assert Reader(about)._caption(named) == "There is a at A and a at B."
    assert Reader(about)._caption(named[:0]) == ""


# Phrases ---------------------------------------------------------------------------------------------------------


def test_phrases_are_those_that_the_caption_lists() -> None:
    raw = stream_examples(MAKER, 0, 100, "test_ind")
    for row, caption in enumerate(raw.captions):
        phrases = split_caption(caption)[1]
        alone = [read(f"{caption.partition('There is ')[0]}There is {phrase}.") for phrase in phrases]
        assert set().union(*alone) == shown(raw, row) and all(len(found) == 1 for found in alone)
    assert split_caption("") == ("", [])


def test_words_and_targets_spell_the_phrases() -> None:
    captions = ["X. There is a red star at A 1.", "X. There is an orange square at B 2 and a red star at C 1.", ""]
    preface, words, longest = phrase_words(captions[:2])
    assert preface == "X. There is " and longest == 6 and words[NOTHING] == ""
    assert set(words[1:]) == {"a", "an", "red", "orange", "star", "square", "at", "A", "B", "C", "1", "2"}
    about = ReaderConfig("uniter", "tiny", {}, [], preface, words, 8)
    targets, counts = phrase_targets(captions, about)
    assert counts.tolist() == [1, 2, 0] and targets.shape == (3, 2, 8)
    spelled = [[" ".join(words[word] for word in phrase).strip() for phrase in row] for row in targets]
    assert spelled == [["a red star at A 1", ""], ["an orange square at B 2", "a red star at C 1"], ["", ""]]


@pytest.mark.parametrize("captions", [["A. There is a b.", "B. There is a b."], ["no list"]])
def test_captions_that_do_not_begin_alike_are_refused(captions: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^reader: "):
        phrase_words(captions)


# Losses ----------------------------------------------------------------------------------------------------------

Loss = Callable[[Tensor, Tensor | None, Tensor, np.ndarray], Tensor]


def problem(seed: int) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Log-probabilities (4, 4, 2, 5), seen regions, and up to 3 phrases of 2 words; once more phrases than regions."""
    torch.manual_seed(seed)
    named = (3 * torch.randn(4, 4, 2, 5, dtype=torch.float64)).log_softmax(-1)
    seen = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    return named, seen, torch.randint(1, 5, (4, 3, 2)), np.array([3, 2, 3, 0])


def spelled(named: Tensor, phrase: Tensor) -> float:
    """-log P(phrase) by a region (W, V)."""
    return -sum(float(named[slot, word]) for slot, word in enumerate(phrase.tolist()))


def least(named: Tensor, targets: Tensor) -> float:
    """The least sum over all ways to give each phrase (or, if fewer, each region) another partner."""
    nothing = torch.full((named.shape[1],), NOTHING)
    empty = [UNMATCHED * spelled(region, nothing) for region in named]
    best = float("inf")
    pairs = list(itertools.product(range(len(named)), range(len(targets))))
    for chosen in itertools.combinations(pairs, min(len(named), len(targets))):
        regions, phrases = {r for r, _ in chosen}, {p for _, p in chosen}
        if len(regions) == len(phrases) == len(chosen):
            left = sum(empty[r] for r in range(len(named)) if r not in regions)
            best = min(best, left + sum(spelled(named[r], targets[p]) for r, p in chosen))
    return best


@pytest.mark.parametrize("seed", range(10))
def test_set_loss_is_the_least_of_all_assignments(seed: int) -> None:
    named, seen, targets, counts = problem(seed)
    total = sum(least(named[b][seen[b]], targets[b, : counts[b]]) for b in range(4))
    assert float(set_loss(named, seen, targets, counts)) == pytest.approx(total / counts.sum(), abs=1e-9)


def test_mixture_loss_lets_any_region_speak() -> None:
    named, seen, targets, counts = problem(0)
    wanted = []
    for b in range(4):
        for phrase in targets[b, : counts[b]]:
            chances = [np.exp(-spelled(named[b, r], phrase)) for r in range(4) if seen[b, r]]
            wanted.append(-np.log(np.mean(chances)))
    assert float(mixture_loss(named, seen, targets, counts)) == pytest.approx(np.mean(wanted), abs=1e-9)


@pytest.mark.parametrize("loss", [set_loss, mixture_loss])
@pytest.mark.parametrize("seed", range(5))
def test_losses_do_not_depend_on_the_order_of_phrases_and_regions(loss: Loss, seed: int) -> None:
    named, seen, targets, counts = problem(seed)
    before = float(loss(named, seen, targets, counts))
    random = np.random.default_rng(seed)
    turned = targets.clone()
    for b, count in enumerate(counts):
        turned[b, :count] = targets[b, random.permutation(count)]
    regions = torch.from_numpy(random.permutation(4))
    assert float(loss(named[:, regions], seen[:, regions], turned, counts)) == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize("loss", [set_loss, mixture_loss])
def test_losses_do_not_see_padding(loss: Loss) -> None:
    named, seen, targets, counts = problem(3)
    named.requires_grad_(True)
    found = loss(named, seen, targets, counts)
    (gradient,) = torch.autograd.grad(found, named)
    named, before = named.detach(), float(found.detach())
    assert not gradient[~seen].any() and gradient[:3][seen[:3]].any()
    other = torch.where(seen[..., None, None], named, torch.randn_like(named).log_softmax(-1))
    targets[1, 2:] = torch.randint(1, 5, (1, 2))
    assert float(loss(other, seen, targets, counts)) == pytest.approx(before, abs=1e-9)
    everything = torch.ones_like(seen)
    assert float(loss(named, None, targets, counts)) == float(loss(named, everything, targets, counts)) != before


# Training --------------------------------------------------------------------------------------------------------


def weights(reader: Reader) -> dict[str, Tensor]:
    return reader.state_dict()


def equal(first: Reader, second: Reader) -> bool:
    ours, theirs = weights(first), weights(second)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 4."""
    monkeypatch.setattr(module, "BATCH", 4)


@pytest.mark.usefixtures("few")
def test_a_seed_decides_the_weights() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = train(steps=4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert equal(first, train(steps=4)) and not equal(first, train(steps=4, seed=1))


@pytest.mark.usefixtures("few")
def test_queries_and_answers_are_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(steps=4)

    def otherwise(*arguments: Any) -> RawExamples:
        raw = stream_examples(*arguments)
        return replace(raw, queries=["There are 3 red objects."] * len(raw.ids), answers=~raw.answers)

    monkeypatch.setattr(module, "stream_examples", otherwise)
    assert equal(first, train(steps=4))

    def backwards(*arguments: Any) -> RawExamples:
        raw = stream_examples(*arguments)
        return replace(raw, captions=raw.captions[::-1])

    monkeypatch.setattr(module, "stream_examples", backwards)
    assert not equal(first, train(steps=4))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model.architecture.sees != "nothing"])
def test_every_model_of_images_can_be_a_reader(model: str) -> None:
    visual = VisualSettings("pixels", RegionSettings(), 192) if MODELS[model].architecture.sees == "pixels" else SCENE
    reader = train(visual, steps=2, model=model)
    examples = Examples(stream_examples(MAKER, 0, 3, "test_ind"), WORDS, visual)
    assert len(reader.captions(examples)) == 3
    inputs = module.pictures(examples, np.arange(3), np.ones(3, bool))
    regions = 144 if inputs.features is None else inputs.features.shape[1]
    named = reader(inputs)
    assert named.shape == (3, regions, 6, len(reader.config.words))
    torch.testing.assert_close(named.exp().sum(-1), torch.ones(named.shape[:-1]))


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^reader.steps=1: model=bert sees no images that could be read"):
        run(1, model="bert")
    with pytest.raises(ValueError, match=r"reader.steps=1000000: must be from 1 to"):
        train(steps=10**6)


# Files -----------------------------------------------------------------------------------------------------------


def test_a_saved_reader_reads_the_same(scene_reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "readers" / "reader.safetensors"
    save(scene_reader, path)
    again = load(path)
    assert again.config == scene_reader.config and equal(again, scene_reader) and not again.training
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    examples = Examples(stream_examples(MAKER, 0, 20, "test_ind"), WORDS, SCENE)
    assert again.captions(examples) == scene_reader.captions(examples)


def test_a_file_that_is_no_reader_is_refused(scene_reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "reader.safetensors"
    save(scene_reader, path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole.replace(b"longest", b"longesd")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a reader") as error:
            load(path)
        assert "\n" not in str(error.value)


@pytest.mark.usefixtures("few")
def test_a_reader_is_trained_once(tmp_path: Path) -> None:
    lines: list[str] = []

    def reader(config: Run, visual: VisualSettings = SCENE) -> Reader:
        return cached_reader(tmp_path, config, MAKER, WORDS, visual, "cpu", lines.append)

    first = reader(run(2))
    assert lines
    for changed in (run(2, seed=1), run(3)):
        reader(changed)
    reader(run(2), GRID)
    assert len(list(tmp_path.iterdir())) == 4
    lines.clear()
    assert equal(first, reader(run(2))) and not lines
