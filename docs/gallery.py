"""Write the four examples at the top of the README and their pictures: `python docs/gallery.py`."""

import re
from pathlib import Path

from travlr import Example, make_example
from travlr.tasks import TASKS

ROOT = Path(__file__).parent.parent
CHOSEN = {"spatiality": 1, "cardinality": 5, "quantifiers": 4, "comparison": 7}  # index in `train`


def gallery() -> dict[str, Example]:
    return {task: make_example(TASKS[task].Config(), "train", index) for task, index in CHOSEN.items()}


def markdown(examples: dict[str, Example]) -> str:
    """A table of two columns, two rows."""
    cells = []
    for task, example in examples.items():
        caption = example.caption.split("There is ")[1]
        cells.append(
            f'<img src="docs/{task}.png" width="200" alt="A picture of {len(example.scene)} objects on a grid"><br>'
            f"<b>{example.query}</b> {'True' if example.answer else 'False'}.<br><sub>… There is {caption}</sub>"
        )
    rows = [
        f'<tr><td width="50%">{a}</td>\n<td width="50%">{b}</td></tr>'
        for a, b in zip(cells[::2], cells[1::2], strict=True)
    ]
    return "<table>\n" + "\n".join(rows) + "\n</table>\n"


def main() -> None:
    examples = gallery()
    for task, example in examples.items():
        (ROOT / "docs" / f"{task}.png").write_bytes(example.image)
    readme = ROOT / "README.md"
    text = re.sub(r"<table>.*?</table>\n", lambda _: markdown(examples), readme.read_text(), count=1, flags=re.DOTALL)
    readme.write_text(text)


if __name__ == "__main__":
    main()
