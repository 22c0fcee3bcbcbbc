"""The evaluation set of the predicate-noun study.

Nikolaus et al. 2022, "Do Vision-and-Language Transformers Learn Grounded Predicate-Noun Dependencies?". Two triplets
(picture, true sentence, false sentence) in a row are a couple with exchanged sentences, so that text cannot decide.
"""

from __future__ import annotations

import functools
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import Field

from travlr.corpora.items import Corpus, CorpusReader, Item, read_items

SET = "eval_set.json"
AXES = {"object": "predicate", "subject": "noun"}  # published `pos` -> the wrong part of the false sentence
WORDS = ("subject", "predicate", "object", "word_target", "word_distractor")


class PredicateNoun(CorpusReader):
    about = "the predicate-noun set: eval_set.json, or its folder"

    template: Literal["normal", "alt"] = Field("normal", description="the other wording of the sentences is alt")
    crop: bool = Field(False, description="show the target alone: pictures NAME_rel_ID.jpg, as the study names them")

    @classmethod
    def accepts(cls, source: Path) -> bool:
        return file_of(source).is_file() and file_of(source).name == SET

    def read(self, source: Path) -> Corpus:
        file = file_of(source)
        items = read_items(file, functools.partial(triplet_items, self.template == "alt", self.crop))
        if len(items) % 2:
            raise ValueError(f"{file}: an odd number of triplets, {len(items):,}; two in a row are a couple")
        couples = list(zip(items[::2], items[1::2], strict=True))
        others = sum((one.true, one.false) != (other.false, other.true) for one, other in couples)
        note = f"couples without exchanged sentences, where text may decide: {others:,} of {len(couples):,}"
        options = {"template": self.template, "crop": self.crop}
        images = self.find_images(file.parent)
        return Corpus(self.name or "predicate-noun", items, images, options, [note] * (others > 0))


def file_of(source: Path) -> Path:
    return source / SET if source.is_dir() else source


def triplet_items(alt: bool, cropped: bool, number: int, record: dict[str, Any]) -> list[Item]:
    """The item of a triplet."""
    true, false = (record[f"sentence_{part}{'_alt' * alt}"] for part in ("target", "distractor"))
    image = record["img_filename"]
    return [
        Item(
            id=str(number),
            picture=cropped_name(image, record["relationship_target"]["id"]) if cropped else image,
            true=(true,),
            false=(false,),
            axis=AXES[record["pos"]],
            couple=str(number // 2),
            labels={name: record[name] for name in (*WORDS, "open_images_split")},
        )
    ]


def cropped_name(image: str, relationship: str) -> str:
    """The file of a picture that is cropped to the box of a relationship, by the published rule."""
    path = PurePosixPath(image)
    return path.with_name(f"{path.stem}_rel_{relationship}{path.suffix}").as_posix()
