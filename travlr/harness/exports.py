"""Files for programs that read no dataset of ours as it is: `python -m travlr.convert SRC DST format=lmms_eval`.

lmms_eval: a folder with a YAML for each setting and split, one for their group, and `utils.py`, the same in every
export; the examples stay in SRC. vlmevalkit: a TSV for each setting and split, with the pictures in it.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from travlr.config import check_settings, option
from travlr.dataset import Dataset, Example, open_dataset
from travlr.files import check_apart, replacing
from travlr.harness.lmms import METRICS, OBJECTS, metrics
from travlr.questions import FORMS, PROMPTS, WORDING_VERSION, make_question, most_tokens
from travlr.questions.forms import SETTINGS, WORDING
from travlr.scene import SPLITS


@dataclass(frozen=True)
class Export:
    """The settings of an export."""

    format: str = "lmms_eval"
    setting: list[str] = option(list(SETTINGS), "one or several", choices=SETTINGS)
    split: list[str] = option(["test_ind", "test_ood"], "one or several", choices=SPLITS)
    form: str | None = option(None, "null for true_false (lmms_eval) or choice (vlmevalkit), or one of", choices=FORMS)
    prompt: str = option("direct", choices=PROMPTS)
    overwrite: bool = option(False, "write into a folder that holds an earlier export")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.format == "vlmevalkit" and (self.form not in (None, "choice") or self.prompt != "direct"):
            raise ValueError("format=vlmevalkit: has multiple choice alone, so form=choice and prompt=direct")


def export_dataset(source: Path, folder: Path, export: Export) -> list[str]:
    """Write the files of an export, and return their names. Raises `ValueError` for what cannot be exported."""
    check_apart(source, folder)
    dataset = open_dataset(source)
    for split in export.split:
        if split not in dataset.splits or not len(dataset[split]):
            raise ValueError(f"split={split}: {source} has {', '.join(dataset.splits)}")
    if folder.is_dir() and any(folder.iterdir()) and not export.overwrite:
        raise ValueError(f"{folder}: is not empty; name another folder, or give overwrite=true")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    try:
        for name, lines in EXPORTS[export.format](dataset, export):
            with replacing(folder / name) as path, open(path, "w", encoding="utf-8", newline="") as file:
                file.writelines(lines)
            names.append(name)
    except BaseException:  # so that the same command can be given again
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if is_new:
            folder.rmdir()
        raise
    return names


Files = Iterator[tuple[str, Iterator[str]]]  # names, and the pieces of their text


def _name(dataset: Dataset, setting: str, split: str) -> str:
    """Such as `travlr_cardinality_image_and_caption_test_ood`."""
    return f"travlr_{dataset[split][0].task}_{setting.replace('+', '_and_')}_{split}"


# lmms-eval -----------------------------------------------------------------------------------------------------------

_YAML = """\
# Made by travlr.convert; needs travlr beside lmms-eval.
task: {name}
tag: travlr
dataset_path: {path}
dataset_kwargs:
  token: false
  data_files: {files}
test_split: {split}
output_type: generate_until
doc_to_visual: !function utils.{visual}
doc_to_text: !function utils.text
doc_to_messages: !function utils.messages
doc_to_target: !function utils.target_{form}
generation_kwargs:
  max_new_tokens: {tokens}
  temperature: 0
  do_sample: false
process_results: !function utils.results_{form}
metric_list:
{metrics}
cluster_key: scene
score_key: score
lmms_eval_specific_kwargs:
  default:
    form: {form}
    setting: {setting}
    prompt: {prompt}
    grid: {grid}  # columns and rows
metadata:
  - version: {version}
    form: {form}
    prompt: {prompt}
    dataset: {digest}
"""

_GROUP = """\
# Made by travlr.convert: all settings and splits.
group: {group}
task:
{names}
"""

_UTILS = '''\
"""What the YAML files beside this one name. Made by travlr.convert; needs travlr beside lmms-eval."""

from travlr.harness import lmms


def picture(doc):
    return lmms.pictures(doc)


def no_picture(doc):
    return []


def request(settings):
    return [settings[name] for name in ("form", "setting", "prompt", "grid")]


def text(doc, lmms_eval_specific_kwargs):
    return lmms.text(doc, *request(lmms_eval_specific_kwargs))


def messages(doc, lmms_eval_specific_kwargs):
    return lmms.messages(doc, *request(lmms_eval_specific_kwargs))


'''
_OF_FORM = """\
def target_{form}(doc):
    return lmms.target(doc, "{form}")


def results_{form}(doc, replies):
    return lmms.results(doc, replies[0], "{form}")


"""
_METRIC_LINES = [
    *(f"{name} = lmms.{name}\n" for name in METRICS),
    *(f'{name} = lmms.objects("{name}")\n' for name in OBJECTS),
]


def lmms_eval(dataset: Dataset, export: Export) -> Files:
    """YAML files and `utils.py`, which is the same in every export, so that exports can share a folder. The YAML files
    have the absolute path of the dataset, as lmms-eval does not expand paths."""
    form = export.form or "true_false"
    ending = "".join(f"_{name}" for name in (form, export.prompt) if name not in ("true_false", "direct"))
    metric_lines = "\n".join(
        f"  - metric: {metric}\n    aggregation: !function utils.{metric}\n"
        f"    higher_is_better: {'false' if metric in ('unparsed', *OBJECTS[1:]) else 'true'}"
        for metric in metrics(form)
    )
    names = []
    for split, setting in itertools.product(export.split, export.setting):
        names.append(_name(dataset, setting, split) + ending)
        files = [file["name"] for file in dataset.manifest["files"] if file["split"] == split]
        text = _YAML.format(
            name=names[-1],
            path=json.dumps(str(dataset.folder.absolute())),
            files=json.dumps({split: files}),
            split=split,
            visual="no_picture" if setting == "caption" else "picture",
            tokens=most_tokens(form, export.prompt),
            metrics=metric_lines,
            setting=setting,
            grid=json.dumps(dataset.grid),
            version=json.dumps(WORDING_VERSION),
            form=form,
            prompt=export.prompt,
            digest=json.dumps(dataset.manifest["content_digest"]),
        )
        yield f"{names[-1]}.yaml", iter([text])
    group = f"travlr_{dataset[export.split[0]][0].task}{ending}"
    yield f"{group}.yaml", iter([_GROUP.format(group=group, names="\n".join(f"  - {name}" for name in names))])
    yield "utils.py", iter([_UTILS, *(_OF_FORM.format(form=form) for form in FORMS), *_METRIC_LINES])


# VLMEvalKit ----------------------------------------------------------------------------------------------------------


def vlmevalkit(dataset: Dataset, export: Export) -> Files:
    """Multiple choice. Without pictures there is no column for them, so that VLMEvalKit asks in text alone."""
    for split, setting in itertools.product(export.split, export.setting):
        yield f"{_name(dataset, setting, split)}.tsv", _tsv_lines(dataset, setting, split)


def _tsv_lines(dataset: Dataset, setting: str, split: str) -> Iterator[str]:
    letters = list(make_question(dataset[split][0], "choice").wordings)
    pictures = [] if setting == "caption" else ["image"]
    columns = ["index", "id", "question", *letters, "answer", "category", "split", *pictures]
    yield _tsv(columns)
    for index, example in enumerate(dataset[split]):
        question = make_question(example, "choice")
        if list(question.wordings) != letters:
            raise ValueError(f"{example.id}: has the choices {', '.join(question.wordings)}, not {', '.join(letters)}")
        statements = [phrases[0] for phrases in question.wordings.values()]
        cells = [str(index), example.id, question_text(example, setting), *statements]
        cells += [question.answer, example.pair[0], split]
        yield _tsv(cells + [base64.b64encode(example.image).decode() for _ in pictures])


def question_text(example: Example, setting: str) -> str:
    """The scene and the question, without the choices, which are in columns of their own."""
    scene = WORDING["scene"][setting].format(caption=example.caption)
    return f"{scene}\n\n{WORDING['question']['choice'].format(options='').strip()}"


def _tsv(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerow(cells)
    return text.getvalue()


EXPORTS: dict[str, Callable[[Dataset, Export], Files]] = {"lmms_eval": lmms_eval, "vlmevalkit": vlmevalkit}
