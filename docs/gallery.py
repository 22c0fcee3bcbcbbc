"""Write the examples at the top of the README and in docs/styles.md, with their pictures: `python docs/gallery.py`."""

import re
from pathlib import Path

import numpy as np

from render.image import IMAGE_STYLES
from render.png import decode, png
from render.text import CAPTION_STYLES
from travlr import Example, Image, Style, make_example
from travlr.tasks import TASKS

ROOT = Path(__file__).parent.parent
CHOSEN = {"spatiality": 1, "cardinality": 5, "quantifiers": 4, "comparison": 7}  # index in `train`
STYLED, GAP = "cardinality", 12  # the example in every style, and pixels between its pictures


def gallery() -> dict[str, Example]:
    labelled = Style(image="labelled")
    return {task: make_example(TASKS[task].Config(style=labelled), "train", index) for task, index in CHOSEN.items()}


def styled(style: Style, cell: int = 64) -> Example:
    """The example of cardinality in a style."""
    config = TASKS[STYLED].Config(style=style, image=Image(cell=cell))
    return make_example(config, "train", CHOSEN[STYLED])


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
    (ROOT / "docs" / "styles.png").write_bytes(styles_picture())
    put(ROOT / "docs" / "styles.md", r"(?<=<!-- forms -->\n).*?(?=<!-- end -->)", f"\n{styles_captions()}\n")


if __name__ == "__main__":
    main()
