"""Datasets in every style: generated, audited, corrupted, browsed and trained on."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from render.image import IMAGE_STYLES, make_renderer
from render.text import CAPTION_STYLES, make_captioner
from tests.helpers import page_data, write
from tests.test_audit import Rows, change_rows, failed
from train.config import RegionSettings, Run, Training
from train.data.pixels import Pictures, normalise_pixels, scale_picture
from train.data.sources import TrainingDataset
from train.data.text import WordTokenizer, grammar_tokenizer, tokenise, vocabulary
from train.regions.pictures import PictureSet
from train.regions.sources import make_regions
from train.run import run
from travlr import Cardinality, Count, Image, Quantifiers, Spatiality, Style, World, open_dataset
from travlr.audit.checks import GENERATED, audit
from travlr.baselines.arrays import in_reading_order, read_split
from travlr.browse import make_page
from travlr.config import Config
from travlr.formats.card import card_files
from travlr.formats.columns import scene_of
from travlr.formats.manifest import read_manifest
from travlr.generate import Generator
from travlr.scene import SPLITS

pytestmark = pytest.mark.usefixtures("rules_not_fitted")
STYLES = {f"image-{name}": Style(image=name) for name in IMAGE_STYLES if name != "plain"}
STYLES |= {f"caption-{name}": Style(caption=name) for name in CAPTION_STYLES if name != "sentences"}
BOTH = Style(image="jitter", caption="ascii")
SMALL = Cardinality(count=Count(train=100, validation=20, test_ind=30, test_ood=40), image=Image(cell=40))


def styled(style: Style) -> Config:
    return SMALL.changed(style=style)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in each style, which no test changes."""
    folder = tmp_path_factory.mktemp("styled")
    for name, style in STYLES.items():
        write(folder / name, styled(style))
    return folder


# Generated and audited -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STYLES)
def test_audit_passes_every_style(name: str, clean: Path) -> None:
    checks = audit(clean / name, workers=1)
    assert {check.status for check in checks} <= {"ok", "note"}
    assert GENERATED in {check.name for check in checks}


@pytest.mark.parametrize("name", STYLES)
def test_generate_style_changes_pictures_or_captions_alone(name: str, clean: Path) -> None:
    before, after = (Generator(config).table("train", 0, 40) for config in (SMALL, styled(STYLES[name])))
    changed = {column for column in before.column_names if not before[column].equals(after[column])}
    assert changed == ({"image"} if name.startswith("image") else {"caption"})


def test_audit_passes_other_worlds_in_every_style(tmp_path: Path) -> None:
    colours, shapes, sizes = ("red", "pink", "black"), ("star", "trapezium", "circle"), ("small", "large")
    world = World(colours=colours, shapes=shapes, sizes=sizes, columns=9, rows=11)
    few: dict[str, Any] = {"world": world, "image": Image(cell=41), "count": {split: 20 for split in SPLITS}}
    for number, (image, caption) in enumerate(zip(IMAGE_STYLES, itertools.cycle(CAPTION_STYLES), strict=False)):
        kind, settings = ((Spatiality, {"distractors": [0, 4]}), (Quantifiers, {"query_by": "both"}))[number % 2]
        write(tmp_path / image, kind(**few | settings, style=Style(image=image, caption=caption)))
        assert not failed(audit(tmp_path / image, workers=1))


@pytest.mark.parametrize("name", STYLES)
def test_audit_finds_a_corrupted_row_in_every_style(name: str, clean: Path, tmp_path: Path) -> None:
    def corrupt(rows: Rows) -> None:
        rows[5]["image"]["bytes"], rows[7]["caption"] = rows[6]["image"]["bytes"], rows[8]["caption"]

    folder = shutil.copytree(clean / name, tmp_path / "d")
    change_rows(folder, "train", corrupt)
    assert {"image", "caption", GENERATED} <= failed(audit(folder, workers=1))


# What rests on the order of captions ---------------------------------------------------------------------------------


def test_in_reading_order_sorts_objects_as_the_caption(clean: Path) -> None:
    for name in ("caption-ascii", "caption-table"):
        table = read_split(open_dataset(clean / name), "test_ood")
        cells = [[(o["row"], o["column"]) for o in objects] for objects in table["objects"].to_pylist()]
        assert all(places == sorted(places) for places in cells) == (name == "caption-ascii")
        again = in_reading_order(table)["objects"].to_pylist()
        for before, after in zip(table["objects"].to_pylist(), again, strict=True):
            assert after == sorted(before, key=lambda o: (o["row"], o["column"]))


# Shown ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STYLES)
def test_card_and_page_show_the_caption_of_each_style(name: str, clean: Path) -> None:
    folder = clean / name
    row = Generator(styled(STYLES[name])).table("train", 0, 1).to_pylist()[0]
    card = card_files(read_manifest(folder), row)["README.md"].decode()
    assert card == (folder / "README.md").read_text()
    shown = page_data(make_page(folder, examples=5), "examples-data")["cards"][0]
    assert shown["plain"] == (STYLES[name].caption != "sentences")
    assert shown["grid"] == (None if STYLES[name].image == "labelled" else [6, 6])  # which has its names already
    if name.startswith("caption"):
        assert f"```text\n{row['caption']}\n```" in card and "\n> " not in card
        assert ("random order" in card) == (name == "caption-ascii")


# Trained on ----------------------------------------------------------------------------------------------------------


def test_vocabulary_of_styles_extends_the_default_one() -> None:
    plain = vocabulary("cardinality")
    for style in CAPTION_STYLES:
        assert vocabulary("cardinality", style)[: len(plain)] == plain
        largest = World(columns=26, rows=99, sizes=("small", "medium", "large"))
        caption = make_captioner(style, largest).caption(scene_of([thing(98, 25), thing(0, 0)]))
        tokenise(WordTokenizer(grammar_tokenizer("cardinality", style)), [caption])
    with pytest.raises(ValueError, match=r"^tokenizer: "):
        tokenise(WordTokenizer(grammar_tokenizer("cardinality")), [caption, '{"columns": 1}'])


@pytest.mark.parametrize("style", CAPTION_STYLES)
def test_encode_agrees_with_the_tokenizer_in_every_style(style: str) -> None:
    maker = Generator(styled(Style(caption=style)))
    captions = maker.captions(maker.batch("train", 0, 20))
    for tokenizer in (grammar_tokenizer("cardinality", style), byte_tokenizer(captions)):
        words = WordTokenizer(tokenizer)
        for caption, tokens in zip(captions, tokenise(words, captions), strict=True):
            assert tokens == tokenizer.encode(caption, add_special_tokens=False)
            assert words.unknown not in tokens


def byte_tokenizer(texts: list[str]) -> Any:
    """A tokenizer of RoBERTa's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = {f"{name}_token": f"<{name}>" for name in ("unk", "cls", "sep", "pad", "mask")}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, special_tokens=list(special.values())))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]


def thing(row: int, column: int) -> dict[str, Any]:
    return {"colour": "red", "shape": "circle", "size": "small", "row": row, "column": column, "queried": False}


@pytest.mark.parametrize("style", IMAGE_STYLES)
@pytest.mark.parametrize("source", ["scene", "grid"])
def test_boxes_lie_around_the_objects(style: str, source: str) -> None:
    """Of `scene`: around the pixels of each object, as a search in the picture finds them; of `grid`: its cell."""
    world = World(columns=4, rows=3)
    renderer = make_renderer(style, world, 40, {"medium": 0.7})
    random = np.random.default_rng(0)
    kinds = random.integers(1, len(world.kinds) + 1, (6, 12))
    grid = np.where(random.random((6, 12)) < 0.4, kinds, 0)
    regions = make_regions(RegionSettings(source=source, number="exact"), PictureSet([*"abcdef"], grid, 3, 4, renderer))
    grounds = coded(renderer.palette[: renderer.grounds])
    for row, picture in enumerate(renderer.arrays(grid)):
        shown = [cell for cell in range(12) if grid[row, cell] or source == "grid"]
        for place, cell in enumerate(shown):
            down, right = divmod(cell, 4)
            top, left = renderer.top + 40 * down, renderer.left + 40 * right
            bounds = np.array([left, top, left + 40, top + 40])
            if source == "scene":
                ink = ~np.isin(coded(picture[top : top + 40, left : left + 40]), grounds)
                places = np.argwhere(ink)[:, ::-1]
                bounds = np.concatenate([places.min(axis=0), places.max(axis=0) + 1]) + np.array([left, top] * 2)
            due = bounds / np.array([renderer.width, renderer.height] * 2)
            np.testing.assert_allclose(regions.boxes[row, place], due, atol=1e-6)


def coded(pixels: np.ndarray) -> np.ndarray:
    return pixels.astype(int) @ [1, 256, 65536]


@pytest.mark.parametrize("style", IMAGE_STYLES)
def test_features_of_empty_cells_and_blank_pictures(style: str) -> None:
    """A blank picture is white in every style. Features are those of crops, one vector for each look of a cell."""
    renderer = make_renderer(style, World(), 40, {"medium": 0.7})
    grid = np.zeros((2, 36), int)
    grid[:, 3], grid[1, 7] = 4, 4
    pictures = PictureSet(["a", "b"], grid, 6, 6, renderer)
    regions = make_regions(RegionSettings(source="grid"), pictures, takes_boxes=False)
    index, blank = regions.index[0], regions.index[-1]
    assert (blank == 0).all() and ((index >= regions.empty) == (grid[0] > 0)).all()
    white = regions.table[0]
    alike = np.allclose(regions.table[index[0]], white)
    assert alike == (style in ("plain", "jitter", "equal_area"))
    assert not np.allclose(regions.table[index[3]], white)


@pytest.mark.parametrize("style", IMAGE_STYLES)
def test_pixels_equal_the_scaled_picture(style: str, side: int = 50) -> None:
    renderer = make_renderer(style, World(), 40, {"medium": 0.7})
    grid = np.where(np.arange(3 * 36).reshape(3, 36) % 5, 0, 7)
    grid[1] = 0
    pixels = Pictures(renderer, side)(grid).numpy()
    for row, picture in enumerate(renderer.arrays(grid)):
        due = np.full((side, side, 3), 255, np.uint8) if row == 1 else scale_picture(picture, side)
        np.testing.assert_allclose(pixels[row], normalise_pixels(due[None])[0].numpy(), atol=1e-6)


@pytest.mark.usefixtures("one_thread", "unaudited")
@pytest.mark.parametrize(
    ("name", "model"), [("image-labelled", "uniter"), ("image-jitter", "albef"), ("caption-ascii", "uniter")]
)
def test_train_runs_on_styles(name: str, model: str, clean: Path, tmp_path: Path) -> None:
    config = Run(
        data=str(clean / name), runs=str(tmp_path), model=model, setting="image+caption", size="tiny",
        precision="float32", device="cpu", training=Training(steps=2, check_every=2),
    )  # fmt: skip
    assert len(run(config, log=lambda line: None)) == 6


def test_run_id_differs_between_styles(clean: Path) -> None:
    digests = {TrainingDataset(clean / name).digest for name in STYLES}
    assert len(digests) == len(STYLES)
