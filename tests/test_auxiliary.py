"""Auxiliary targets of objects: their words, and which noun of the query describes them."""

import numpy as np
import pytest
import torch

from render.text import parse_caption
from train.config import RegionSettings
from train.data.batching import visible_modalities
from train.data.examples import Examples, VisualSettings
from train.data.inputs import IGNORED, Inputs
from train.data.sources import stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer
from train.learning.module import without_unseen
from travlr.generate import generator
from travlr.scene import COLOURS, SHAPES, Object
from travlr.tasks import PAPER, TASKS, parse_query

WORDS = WordTokenizer(grammar_tokenizer())
ROWS = np.arange(40)


def batch_of(task: str, setting: str, **regions: str) -> tuple[Examples, Inputs]:
    visual = VisualSettings("regions", RegionSettings.model_validate(regions))
    examples = Examples(stream_examples(generator(TASKS[task].Config()), 0, len(ROWS)), WORDS, visual)
    modalities = visible_modalities(setting, ROWS)
    return examples, examples.with_targets(examples.inputs(ROWS, *modalities), ROWS, *modalities)


def words_of(targets: torch.Tensor) -> str:
    tokens = [token for token in targets.tolist() if token != IGNORED]
    return " ".join(WORDS.tokenizer.convert_ids_to_tokens(tokens))


def names_of(examples: Examples, row: int) -> dict[str, Object]:
    """The objects of an example in the order of cells, by their words."""
    scene = sorted(parse_caption(examples.captions[row])[2], key=lambda o: (o.row, o.column))
    several = len(examples.world.sizes) > 1  # then captions say the size
    words = [[*[o.size] * several, o.colour, o.shape, "abcdef"[o.column], str(o.row + 1)] for o in scene]
    return {" ".join(line): o for line, o in zip(words, scene, strict=True)}


def places_of(targets: torch.Tensor) -> list[int]:
    return [int(place) for place in (targets != IGNORED).any(-1).nonzero()]


@pytest.mark.parametrize("source", ["scene", "grid"])
def test_regions_have_the_words_of_their_objects(source: str) -> None:
    examples, batch = batch_of("cardinality", "image", source=source)
    assert batch.objects is not None and batch.features is not None
    for row in range(len(ROWS)):
        regions = batch.objects[row, batch.tokens.shape[1] :]
        assert len(regions) == batch.features.shape[1]
        scene = names_of(examples, row)
        assert [words_of(regions[place]) for place in places_of(regions)] == list(scene)
        if source == "grid":
            assert places_of(regions) == [6 * o.row + o.column for o in scene.values()]


def test_blank_pictures_have_no_words() -> None:
    _, batch = batch_of("cardinality", "caption")
    assert batch.objects is not None and batch.nouns is not None
    assert (batch.objects[:, batch.tokens.shape[1] :] == IGNORED).all()
    assert batch.nouns[:, batch.tokens.shape[1] :].isnan().all()


@pytest.mark.parametrize("setting", ["image", "caption", "image+caption"])
@pytest.mark.parametrize("task", PAPER)
def test_nouns_are_those_that_describe_an_object(task: str, setting: str) -> None:
    examples, batch = batch_of(task, setting)
    assert batch.objects is not None and batch.nouns is not None
    length = batch.tokens.shape[1]
    for row, query in enumerate(examples.queries):
        nouns = [str(arg) for arg in parse_query(query).args if set(str(arg).split()) & {*COLOURS, *SHAPES}]
        scene = names_of(examples, row)
        expected = {name: [float(o.matches(noun)) for noun in nouns[:2]] for name, o in scene.items()}
        places = [int(place) for place in (~batch.nouns[row].isnan()).any(-1).nonzero()]
        assert len(places) == len(scene) * (1 + (setting == "image+caption")), "each object once in each modality"
        assert setting != "image" or min(places) >= length
        for place in places:
            values = batch.nouns[row, place]
            assert values[~values.isnan()].tolist() == expected[words_of(batch.objects[row, place])]


@pytest.mark.parametrize("task", (*PAPER, "binding"))
def test_unseen_words_are_the_held_out_numbers_of_a_noun(task: str) -> None:
    maker = generator(TASKS[task].Config())
    examples = Examples(stream_examples(maker, 0, 4000), WORDS, VisualSettings("regions", RegionSettings()))
    held_out: dict[str, set[str]] = {}
    if task == "cardinality":  # only its pairs say something about a noun
        for noun, number in maker.sampler.held_out()["pairs"]:
            held_out.setdefault(noun, set()).add(number)
    targets = examples.auxiliary
    for noun, pair in zip(targets.nouns, examples.pairs, strict=True):
        expected = held_out.get(pair[0], set())
        for place in (0, 1, 3):  # the pair's number twice, and the query's
            assert set(words_of(torch.from_numpy(targets.unseen[noun][place])).split()) == expected


def test_loss_says_nothing_about_unseen_words() -> None:
    logits = torch.randn(3, 4, 9, requires_grad=True)
    unseen = torch.tensor([[2, 5], [7, IGNORED], [IGNORED, IGNORED]])[:, None].expand(3, 4, 2)
    torch.nn.functional.cross_entropy(without_unseen(logits, unseen).flatten(0, 1), torch.full((12,), 4)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    without_gradient = [sorted(row.nonzero().flatten().tolist()) for row in (logits.grad == 0).all(1)]
    assert without_gradient == [[2, 5], [7], []]
    masked = without_unseen(logits, unseen).flatten(0, 1)
    assert torch.nn.functional.cross_entropy(masked, masked.softmax(-1)).isfinite()
