"""What the README shows is what the code does."""

import re
import shlex
from pathlib import Path

import pytest

from docs.gallery import ROOT, gallery, markdown
from travlr import cli
from travlr.config import CONFIGS
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


@pytest.mark.parametrize("path", sorted(Path(cli.CONF).rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_yaml_composes(path: Path) -> None:
    group, name = path.parent.name, path.stem
    for task in CONFIGS:
        arguments = {"task": f"task={name}", "preset": f"preset={name}"}
        chosen = {"task": f"task={task}"} | ({group: arguments[group]} if group in arguments else {})
        if group == "of":
            preset, _, of_task = name.partition("_")
            chosen = {"task": f"task={of_task}", "preset": f"preset={preset}"}
        config, _ = settings(list(chosen.values()))
        assert config.task == chosen["task"].removeprefix("task=")


@pytest.mark.parametrize("task", CONFIGS)
def test_yaml_and_python_defaults_are_the_same(task: str) -> None:
    assert settings([f"task={task}"])[0] == CONFIGS[task]()


def test_the_released_preset_sets_every_released_way() -> None:
    cardinality = vars(settings(["task=cardinality", "preset=released"])[0])
    assert (cardinality["scope"], cardinality["total"]) == ("queried", "released")
    assert cardinality["held_out"] == {"pentagon": [4, 6]}
    quantifiers = vars(settings(["task=quantifiers", "preset=released"])[0])
    assert (quantifiers["third_region"], quantifiers["total"]) == ("empty", "released")
