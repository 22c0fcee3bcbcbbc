"""What README and docs/ show is what the code does."""

import ast
import importlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.gallery import (
    ROOT,
    gallery,
    markdown,
    styles_captions,
    styles_picture,
    two_objects_markdown,
    two_objects_picture,
)
from render.png import decode
from tests.helpers import config_of, train_settings, values_of
from train.ask.config import Evaluation
from travlr import GenerateArguments, generate

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
# The tests of a new task and of a new model run what these two pages show.
SHOWN = [page for page in PAGES if not page.name.startswith("adding-")]
MOST_LINES = 180  # of the README


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(start: str) -> list[str]:
    """Arguments of every command that begins with `start`, in lines of code blocks and in inline code."""
    text = "\n".join(page.read_text() for page in SHOWN)
    shown = rf"(?:{start})(?: ([^`\n]+))?"
    commands = re.findall(rf"^\$ {shown}$", text, re.MULTILINE) + re.findall(rf"`{shown}`", text)
    return sorted(set(commands))


GENERATE = commands(r"python -m travlr\.generate|bash setup\.sh generate")
TRAIN = commands(r"python train\.py|bash setup\.sh train")
ASK = commands(r"python evaluate\.py")


def is_help(command: str) -> bool:
    return "--help" in shlex.split(command)


def test_gallery_page_is_fresh() -> None:
    examples = gallery()
    assert markdown(examples) in README.read_text(), "run python docs/gallery.py"
    for task, example in examples.items():
        assert (ROOT / "docs" / f"{task}.png").read_bytes() == example.image, "run python docs/gallery.py"


@pytest.mark.parametrize(
    ("page", "text", "picture"),
    [("styles", styles_captions, styles_picture), ("dataset", two_objects_markdown, two_objects_picture)],
)
def test_pictures_of_pages_are_fresh(page: str, text: Callable[[], str], picture: Callable[[], bytes]) -> None:
    assert text() in (ROOT / "docs" / f"{page}.md").read_text(), "run python docs/gallery.py"
    name = "two_objects" if page == "dataset" else page
    shown = decode((ROOT / "docs" / f"{name}.png").read_bytes())
    assert shown.tobytes() == decode(picture()).tobytes(), "run python docs/gallery.py"


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


def test_docs_hold_commands() -> None:
    assert len(GENERATE) >= 5 and len(TRAIN) >= 20 and len(ASK) >= 5


@pytest.mark.parametrize("command", GENERATE)
def test_docs_generate_commands_are_valid(command: str) -> None:
    if not is_help(command):
        arguments = [a for a in shlex.split(command) if a.partition("=")[0] not in GenerateArguments.model_fields]
        generate.generator(config_of(*(a if "[" in a else a.partition(",")[0] for a in arguments if a != "-m")))


@pytest.mark.parametrize("command", TRAIN)
def test_docs_train_commands_are_valid(command: str) -> None:
    if is_help(command):
        return
    arguments = [argument for argument in shlex.split(command) if argument != "-m"]
    train_settings(*(argument if "[" in argument else argument.partition(",")[0] for argument in arguments))


@pytest.mark.parametrize("command", ASK)
def test_docs_evaluate_commands_are_valid(command: str) -> None:
    if not is_help(command):
        Evaluation.model_validate(values_of(*(a for a in shlex.split(command) if a != "-m")))


MODULES = sorted(set(re.findall(r"python -m ((?:travlr|analysis)[\w.]*)", "\n".join(p.read_text() for p in PAGES))))


@pytest.mark.parametrize("module", MODULES)
def test_docs_commands_exist(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_docs_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for target in targets:
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{name_of(page)}: {target}"
        if anchor:
            assert anchor in anchors(path), f"{name_of(page)}: {target}"


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def imported_names() -> list[tuple[str, str]]:
    """Modules and names of ours that the Python code on the pages imports."""
    names: set[tuple[str, str]] = set()
    for page in SHOWN:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    names |= {(node.module, alias.name) for alias in node.names}
    return sorted(names)


@pytest.mark.parametrize(("module", "name"), imported_names())
def test_docs_code_imports_names_that_exist(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
