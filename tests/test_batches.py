"""What batches hold: auxiliary targets, examples of the stream, unlabelled pairs."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import train.learning.batches
from render.text import parse_caption
from train.config import Optimiser, Recipe, RegionSettings, Run, Training
from train.data.batching import visible_modalities
from train.data.examples import Examples, VisualSettings
from train.data.inputs import IGNORED, Inputs
from train.data.pixels import normalise_pixels, scale_picture
from train.data.sources import stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer
from train.learning.batches import RunData, count_examples, training_schedule
from train.learning.consistency import paired_inputs
from train.learning.module import Learner
from train.models import make_model
from travlr import Cardinality, Count, Generator, Spatiality
from travlr.generate import generator
from travlr.scene import COLOURS, SHAPES, World
from travlr.tasks import PAPER, TASKS, parse_query
from travlr.tasks.quantifiers import OPPOSITE, region_counts, table_1

WORDS = WordTokenizer(grammar_tokenizer())
SIGHT = VisualSettings("regions", RegionSettings())
SIX = Training(steps=6, check_every=3)


@pytest.mark.parametrize("task", PAPER)
def test_auxiliary_first_word_tells_whether_a_query_is_true(task: str) -> None:
    raw = stream_examples(generator(TASKS[task].Config()), 0, 100)
    for query, answer, pair in zip(raw.queries, raw.answers, raw.pairs, strict=True):
        words = set(parse_query(query).args)
        step = TASKS[task].auxiliary_words(tuple(pair))[0]
        first: Any = {"left": "to the left of", "right": "to the right of"}.get(step, step)
        first = {"quantifiers": pair[0], "cardinality": first}.get(task, first)
        assert ((int(first) if task == "cardinality" else first) in words) == answer


@pytest.mark.parametrize("task", PAPER)
def test_auxiliary_pairs_are_words_of_the_texts(task: str) -> None:
    examples = Examples(stream_examples(generator(TASKS[task].Config()), 0, 60), WORDS, SIGHT)
    pairs, rows = examples.auxiliary.pairs, np.arange(60)
    assert pairs.shape == (60, 4) and (pairs != WORDS.unknown).all()
    assert ((pairs == IGNORED).sum(axis=1) == (task == "cardinality")).all()
    assert ((pairs[:, 0] == pairs[:, 3]) == examples.answers).all()
    for setting in ("image", "caption"):
        image, caption = visible_modalities(setting, rows, None)
        texts = examples.text_rows(rows, caption)
        inputs = examples.auxiliary(examples.inputs(rows, image, caption), rows, texts)
        assert inputs.targets is not None
        for row, query in enumerate(examples.queries):
            found = np.flatnonzero(inputs.targets[row].numpy() != IGNORED)
            assert inputs.targets[row, found].tolist() == [value for value in pairs[row, 1:3] if value != IGNORED]
            things = [arg for arg in parse_query(query).args if set(str(arg).split()) & {*COLOURS, *SHAPES}]
            ends = np.array(WORDS.tokenizer.convert_ids_to_tokens(inputs.tokens[row, found].tolist())) == "##s"
            names = WORDS.tokenizer.convert_ids_to_tokens(inputs.tokens[row, found - ends].tolist())
            assert names == [str(thing).split()[-1] for thing in things]
            assert inputs.objects is not None
            for end, thing in zip(found, things, strict=True):
                assert words_at(inputs.objects[row, end]) == [word.removesuffix("s") for word in str(thing).split()]
            place = np.setdiff1d(np.flatnonzero((inputs.objects[row].numpy() != IGNORED).any(axis=-1)), found)
            listed = parse_caption(examples.captions[row])[2] if setting == "caption" else ()
            for end, thing in zip(place, listed, strict=True):
                lines = [thing.colour, thing.shape, "abcdef"[thing.column], str(thing.row + 1)]
                assert words_at(inputs.objects[row, end]) == lines
                assert words_at(inputs.tokens[row, end : end + 1]) == lines[3:]


@pytest.mark.parametrize("task", ["spatiality", "cardinality"])
def test_value_loss_is_of_first_token_and_of_each_object(task: str) -> None:
    learner = Learner(make_model("uniter", "tiny", {}, vocabulary=WORDS.size), Recipe(), 1e-3, steps=1, seed=0)
    for head, lines in ((learner.values, [1.0, 2.0]), (learner.value, [5.0])):
        torch.nn.init.zeros_(head.weight)
        head.bias.data = torch.tensor(lines)
    examples, rows = Examples(stream_examples(generator(TASKS[task].Config()), 0, 20), WORDS, SIGHT), np.arange(20)
    image, caption = visible_modalities("image", rows, None)
    batch = examples.auxiliary(examples.inputs(rows, image, caption), rows, examples.text_rows(rows, caption))
    off = [abs(lines - value) for pair in examples.auxiliary.values for lines, value in zip((1, 2), pair, strict=True)]
    off += [abs(5 - value) for pair in examples.auxiliary.values for value in pair]
    losses = [miss**2 / 2 if miss < 1 else miss - 0.5 for miss in off if not np.isnan(miss)]
    assert learner.losses(batch)["value_loss"].item() == pytest.approx(2 * sum(losses) / len(losses))


def words_at(tokens: torch.Tensor) -> list[str]:
    found: list[str] = WORDS.tokenizer.convert_ids_to_tokens([token for token in tokens.tolist() if token != IGNORED])
    return found


@pytest.mark.parametrize("task", PAPER)
def test_auxiliary_values_are_those_of_the_scene(task: str) -> None:
    examples = Examples(stream_examples(generator(TASKS[task].Config()), 0, 60), WORDS, SIGHT)
    for row, (query, values) in enumerate(zip(examples.queries, examples.auxiliary.values, strict=True)):
        scene, args = parse_caption(examples.captions[row])[2], parse_query(query).args
        if task == "spatiality":
            seen = [next(o for o in scene if o.matches(thing)) for thing in (args[0], args[2])]
            column = args[1] in ("to the left of", "to the right of")
            assert values.tolist() == [(o.column if column else o.row) + 1 for o in seen]
        elif task == "quantifiers":
            counts = region_counts(scene, args[1], args[2])
            quantifier = args[0] if examples.answers[row] else OPPOSITE[args[0]]
            assert values.tolist() == [counts[region] for region in table_1(quantifier)]
        else:
            counted = [sum(o.matches(str(thing)) for o in scene) for thing in args[1:]]
            assert values[: len(counted)].tolist() == counted
            assert np.isnan(values[len(counted) :]).all()


@pytest.mark.parametrize("setting", ["image", "caption"])
@pytest.mark.parametrize("task", PAPER)
def test_paired_inputs_show_one_modality_each_and_no_truth(task: str, setting: str) -> None:
    raw, rows = stream_examples(generator(TASKS[task].Config()), 0, 60), np.arange(60)
    labelled = Examples(raw, WORDS, SIGHT).auxiliary
    sides = [side.looked_up() for side in paired_inputs(Examples(raw, WORDS, SIGHT), rows, setting, labelled)]
    others = [[pair[0], *pair[:0:-1]] for pair in raw.pairs]  # other answers and pairs: nothing may change
    false = Examples(replace(raw, answers=~raw.answers, pairs=others), WORDS, SIGHT)
    for side, other in zip(sides, paired_inputs(false, rows, setting, labelled), strict=True):
        for name in ("tokens", "features", "targets", "objects", "unseen", "pair"):
            assert getattr(side, name).equal(getattr(other.looked_up(), name))
        assert side.answer is None and side.values is None
    by_name = dict(zip((setting, "caption" if setting == "image" else "image"), sides, strict=True))
    plain = Examples(raw, WORDS, SIGHT)
    for shows, side in by_name.items():
        seen = plain.inputs(rows, *visible_modalities(shows, rows, None))
        assert side.tokens.equal(seen.tokens)
        assert side.features is not None and seen.features is not None and side.features.equal(seen.features)
    named = [side.tokens[side.targets != IGNORED] for side in sides if side.targets is not None]
    assert named[0].equal(named[1])  # the same things in the same order


def test_consistency_uses_each_unlabelled_pair_once() -> None:
    parts = parts_of(generator(TASKS["cardinality"].Config()), training=SIX, method="consistency")
    schedule = training_schedule(parts)
    assert (schedule.steps, schedule.batches, schedule.check_every) == (6, 3, 3)
    labelled: list[bytes] = []
    unlabelled: list[bytes] = []
    for batch in itertools.chain(schedule.epoch(0), schedule.epoch(1)):
        assert batch.sides is not None
        own, other = batch.sides
        assert len(own) == len(other) == len(batch) == 10
        labelled += [tokens[tokens != WORDS.pad].numpy().tobytes() for tokens in batch.tokens]
        unlabelled += [tokens[tokens != WORDS.pad].numpy().tobytes() for tokens in own.tokens]  # captions and queries
    assert len(set(labelled)) == len(set(unlabelled)) == 60 and not set(labelled) & set(unlabelled)
    counts = count_examples(parts.run, schedule, schedule.steps)
    assert counts == {"train_examples": 60, "unlabelled_examples": 60}
    supervised = parts.run.changed(method="supervised")
    assert count_examples(supervised, schedule, 3) == {"train_examples": 30, "unlabelled_examples": 0}


def test_inputs_take_shares_out_sides() -> None:
    maker = generator(TASKS["cardinality"].Config())
    training = Training(steps=1, check_every=1)
    batch = next(iter(training_schedule(parts_of(maker, training=training, method="consistency")).epoch(0)))
    assert batch.sides is not None
    for rank in range(2):
        for whole, half in zip(batch.sides, batch.take(slice(rank, None, 2)).sides or (), strict=True):
            assert len(half) == 5 and half.tokens.equal(whole.tokens[rank::2])
            assert half.targets is not None and whole.targets is not None
            assert half.targets.equal(whole.targets[rank::2])


@pytest.mark.parametrize("setting", ["image", "caption"])
def test_consistency_loss_teaches_the_other_side_alone(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = make_model("uniter", "tiny", {}, vocabulary=WORDS.size)
    learner = Learner(model, Recipe(), 1e-3, steps=1, seed=0).train()
    examples = Examples(stream_examples(generator(TASKS["cardinality"].Config()), 0, 8), WORDS, SIGHT)
    own, other = (
        replace(side, features=side.features.requires_grad_())
        for side in map(Inputs.looked_up, paired_inputs(examples, np.arange(8), setting, examples.auxiliary))
        if side.features is not None
    )
    calls: list[tuple[bool, tuple[torch.Tensor, ...]]] = []
    predict = learner._predictions

    def noted(*arguments: Any) -> tuple[torch.Tensor, ...]:
        calls.append((model.training, predict(*arguments)))
        return calls[-1][1]

    monkeypatch.setattr(learner, "_predictions", noted)
    monkeypatch.setattr("train.learning.module.CONFIDENT", 0.0)  # random weights are sure of nothing
    sides = (own, replace(other, objects=None, pair=None))
    loss = learner.losses(replace(own, targets=None, objects=None, pair=None, sides=sides))
    torch.autograd.backward(loss["consistency_loss"])
    assert own.features is not None and own.features.grad is None
    assert other.features is not None and other.features.grad is not None and other.features.grad.any()
    (taught, wanted), (learning, learned) = calls
    assert (taught, learning, model.training) == (False, True, True)  # the teacher answers without dropout
    entropies = [
        -(want.softmax(-1) * log.log_softmax(-1)).sum(-1).mean()
        for want, log in zip(wanted[:-1], learned[:-1], strict=True)
    ]
    numbers = torch.nn.functional.smooth_l1_loss(learned[-1], wanted[-1])
    torch.testing.assert_close(loss["consistency_loss"], torch.stack([*entropies, numbers]).sum())


def test_between_validations_gives_all_batches_in_order() -> None:
    maker = generator(TASKS["cardinality"].Config())
    schedule = training_schedule(parts_of(maker, training=SIX))
    passes = [batch.tokens for epoch in range(2) for batch in schedule.epoch(epoch)]
    for check_every, numbers in ((3, range(2)), (4, range(2)), (2, range(3)), (6, range(1))):
        changed = replace(schedule, check_every=check_every)
        parts = [batch.tokens for number in numbers for batch in changed.between_validations(number)]
        assert len(parts) == 6 and all(map(torch.equal, passes, parts))


def parts_of(maker: Generator, **changes: Any) -> RunData:
    """Parts of a run on the dataset of `maker`, with 10 examples to a batch."""
    run = Run(task=maker.config.task, size="tiny", optimiser=Optimiser(batch_size=10), **changes)
    source: Any = SimpleNamespace(generator=maker, digest="")
    return RunData(run, source, WORDS, SIGHT)


def small_world(train: int) -> Generator:
    """Of a world with a few thousand scenes."""
    world = World(colours=("red", "blue"), shapes=("square", "circle"), columns=3, rows=3)
    return Generator(
        Spatiality(world=world, distractors=[1, 2], count=Count(train=train, validation=2, test_ind=2, test_ood=2))
    )


def streamed_ranges(monkeypatch: pytest.MonkeyPatch, maker: Generator, **changes: Any) -> list[range]:
    """The numbers of the examples that the epochs of a run generate."""
    made: list[range] = []

    def record(maker: Generator, start: int, stop: int) -> Any:
        made.append(range(start, stop))
        return stream_examples(maker, start, stop)

    monkeypatch.setattr(train.learning.batches, "stream_examples", record)
    schedule = training_schedule(parts_of(maker, **changes))
    epochs = schedule.steps // schedule.batches
    assert all(len(list(schedule.epoch(epoch))) == schedule.batches for epoch in range(epochs))
    return made


def test_training_schedule_takes_each_example_of_the_stream_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = streamed_ranges(monkeypatch, small_world(21), training=Training(steps=8, check_every=2))
    assert made == [range(22 + 20 * epoch, 42 + 20 * epoch) for epoch in range(4)]


@pytest.mark.parametrize("unlabelled", [None, 100, 40, 30, 7])
def test_training_schedule_repeats_unlabelled_pairs_beyond_their_number(
    unlabelled: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(steps=8, check_every=2, unlabelled=unlabelled)
    made = streamed_ranges(monkeypatch, small_world(20), training=training, method="consistency")
    assert made[::2] == [range(20 + 20 * epoch, 40 + 20 * epoch) for epoch in range(4)], "labelled"
    pairs = set().union(*made[1::2])
    assert min(pairs) == 100 and len(pairs) == min(80, unlabelled or 80)


def test_mismatched_pairs_show_pictures_of_other_examples() -> None:
    maker = generator(TASKS["cardinality"].Config())
    batches = [
        next(training_schedule(parts_of(maker, training=SIX, method=method)).epoch(0)).looked_up()
        for method in ("consistency", "mismatched")
    ]
    sides = [batch.sides for batch in batches]
    assert sides[0] is not None and sides[1] is not None
    (caption, image), (same_caption, other_image) = sides[0], sides[1]
    assert torch.equal(caption.tokens, same_caption.tokens) and torch.equal(image.tokens, other_image.tokens)
    assert image.features is not None and other_image.features is not None
    equal = [torch.equal(one, other) for one, other in zip(image.features, other_image.features, strict=False)]
    assert image.features.shape != other_image.features.shape or not any(equal)


@pytest.mark.parametrize(("sees", "most"), [("regions", 250), ("pixels", 250)])
def test_batch_travels_as_rows_of_tables(sees: str, most: int) -> None:
    """And is the same on the device as what is looked up at once."""
    raw, rows = stream_examples(generator(Cardinality()), 0, 60), np.arange(60)
    examples = Examples(raw, WORDS, VisualSettings(sees, RegionSettings(), side=192))
    shown = rows % 3 > 0  # others are blank
    batch, whole = examples.batch(rows, shown, ~shown), examples.inputs(rows, shown, ~shown)
    names = ("features", "boxes", "region_mask") if sees == "regions" else ("pixels",)
    on_device = batch.to("cpu")
    assert all(getattr(on_device, name).equal(getattr(whole, name)) for name in names)
    if sees == "regions":
        assert examples.regions is not None
        features = examples.regions.take(np.where(shown, rows, -1))[0]
        np.testing.assert_array_equal(whole.features, features)
    else:
        assert whole.pixels is not None and raw.renderer is not None
        full = raw.renderer.arrays(raw.grid)
        expected = normalise_pixels(np.stack([scale_picture(picture, 192) for picture in full]))
        np.testing.assert_allclose(whole.pixels[shown], expected[shown], atol=1e-5)
        assert (whole.pixels[~shown] == normalise_pixels(np.full((1, 1, 1, 3), 255, np.uint8))).all()
    travels = [tensor for name in names if (tensor := getattr(batch, name)) is not None]
    travels += [lookup.rows for lookup in (batch.lookups or {}).values()]
    assert sum(tensor.nbytes for tensor in travels) <= most * len(rows)
    part = batch.take(slice(3, 9)).to("cpu")
    assert all(getattr(part, name).equal(getattr(whole, name)[3:9]) for name in names)


def test_training_schedule_refuses_more_steps_than_scenes() -> None:
    maker = small_world(20)
    there = maker.sampler.limits["train"] - 20
    training = Training(steps=there // 20 * 2 + 1, check_every=2)
    with pytest.raises(ValueError, match=rf"^training\.steps={training.steps}: .* {there:,};.*training\.examples"):
        training_schedule(parts_of(maker, training=training))
