"""Write the examples at the top of the README, in docs/dataset.md and in docs/styles.md, with their pictures:
`python docs/gallery.py`."""

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image as pillow

from render.image import IMAGE_STYLES
from render.png import decode, png
from render.text import CAPTION_STYLES
from travlr import Example, Image, Style, make_example
from travlr.tasks import TASKS

ROOT = Path(__file__).parent.parent
CHOSEN = {"spatiality": 1, "cardinality": 5, "quantifiers": 4, "comparison": 7}  # index in `train`
TWO_OBJECTS, SMALLER = ("existence", "attribute", "relation", "binding"), 3  # in a picture of docs/dataset.md
STYLED, GAP = "cardinality", 12  # the example in every style, and pixels between its pictures


def gallery() -> dict[str, Example]:
    labelled = Style(image="labelled")
    return {task: make_example(TASKS[task].Config(style=labelled), "train", index) for task, index in CHOSEN.items()}


def styled(style: Style, cell: int = 64) -> Example:
    """The example of cardinality in a style."""
    config = TASKS[STYLED].Config(style=style, image=Image(cell=cell))
    return make_example(config, "train", CHOSEN[STYLED])


def two_objects() -> dict[str, list[Example]]:
    """The first couple of each task about one or two objects, the example whose query is true first."""
    couples = {task: [make_example(TASKS[task].Config(), "train", n) for n in (0, 1)] for task in TWO_OBJECTS}
    return {task: sorted(couple, key=lambda example: not example.answer) for task, couple in couples.items()}


def two_objects_picture() -> bytes:
    """The scenes of `two_objects` on grey, scaled down: a column for each task."""
    couples = list(two_objects().values())
    side = decode(couples[0][0].image).width // SMALLER
    strip = pillow.new("RGB", (GAP + len(couples) * (side + GAP), GAP + 2 * (side + GAP)), (210, 210, 210))
    for column, couple in enumerate(couples):
        for row, example in enumerate(couple):
            place = (GAP + column * (side + GAP), GAP + row * (side + GAP))
            strip.paste(decode(example.image).reduce(SMALLER), place)
    buffer = io.BytesIO()
    strip.quantize(256, method=pillow.Quantize.MEDIANCUT).save(buffer, "png")
    return buffer.getvalue()


def two_objects_markdown() -> str:
    queries = [f"{example.query}" for example, _ in two_objects().values()]
    alt = "Couples of scenes of the four tasks, in columns: the query is true of the upper scene and false of the lower"
    return f"![{alt}](two_objects.png)\n\nFrom left to right: {' '.join(queries)} True above, false below.\n"


def styles_picture() -> bytes:
    """One scene in every style of pictures, side by side on grey."""
    pictures = [np.asarray(decode(styled(Style(image=name), cell=40).image)) for name in IMAGE_STYLES]
    height = max(len(picture) for picture in pictures) + 2 * GAP
    strip = np.full((height, sum(picture.shape[1] + GAP for picture in pictures) + GAP, 3), 210, np.uint8)
    left = GAP
    for picture in pictures:
        top = height - GAP - len(picture)
        strip[top : top + len(picture), left : left + picture.shape[1]] = picture
        left += picture.shape[1] + GAP
    palette, entries = np.unique(strip.reshape(-1, 3), axis=0, return_inverse=True)
    return png(entries.reshape(strip.shape[:2]).astype(np.uint8), palette)


def styles_captions() -> str:
    """The same scene in every style of captions, as they are."""
    captions = {name: styled(Style(caption=name)).caption for name in CAPTION_STYLES}
    return "\n".join(f"`{name}`\n\n```text\n{caption}\n```\n" for name, caption in captions.items())


def markdown(examples: dict[str, Example]) -> str:
    """A table of two columns, two rows."""
    cells = []
    for task, example in examples.items():
        caption = example.caption.split("There is ")[1]
        cells.append(
            f'<img src="docs/{task}.png" width="240" alt="A picture of {len(example.scene)} objects on a grid"><br>'
            f"<b>{example.query}</b> {'True' if example.answer else 'False'}.<br><sub>… There is {caption}</sub>"
        )
    rows = [
        f'<tr><td width="50%">{a}</td>\n<td width="50%">{b}</td></tr>'
        for a, b in zip(cells[::2], cells[1::2], strict=True)
    ]
    return "<table>\n" + "\n".join(rows) + "\n</table>\n"


def put(page: Path, pattern: str, text: str) -> None:
    """Replace the first part of a page that a pattern matches."""
    page.write_text(re.sub(pattern, lambda _: text, page.read_text(), count=1, flags=re.DOTALL))


def main() -> None:
    examples = gallery()
    for task, example in examples.items():
        (ROOT / "docs" / f"{task}.png").write_bytes(example.image)
    put(ROOT / "README.md", r"<table>.*?</table>\n", markdown(examples))
    (ROOT / "docs" / "two_objects.png").write_bytes(two_objects_picture())
    put(ROOT / "docs" / "dataset.md", r"!\[Couples of scenes.*?below\.\n", two_objects_markdown())
    (ROOT / "docs" / "styles.png").write_bytes(styles_picture())
    put(ROOT / "docs" / "styles.md", r"(?<=<!-- forms -->\n).*?(?=<!-- end -->)", f"\n{styles_captions()}\n")


if __name__ == "__main__":
    main()
