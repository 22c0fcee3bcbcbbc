"""What the README shows is what the code does."""

import re
import shlex

import pytest

from docs.gallery import ROOT, gallery, markdown
from travlr.generate import generator, settings

README = (ROOT / "README.md").read_text()


def test_gallery_is_fresh() -> None:
    examples = gallery()
    assert markdown(examples) in README, "run python docs/gallery.py"
    for task, example in examples.items():
        assert (ROOT / "docs" / f"{task}.png").read_bytes() == example.image, "run python docs/gallery.py"


def commands() -> list[str]:
    """Arguments of every generate command that the README shows."""
    shown = r"(?:python -m travlr\.generate|bash setup\.sh generate) (task=[^`\n]+)"
    return re.findall(rf"^\$ {shown}$", README, re.MULTILINE) + re.findall(rf"`{shown}`", README)


@pytest.mark.parametrize("command", commands())
def test_generate_commands_are_valid(command: str) -> None:
    config, _ = settings(shlex.split(command))
    generator(config)


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 5
