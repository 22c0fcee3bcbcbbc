"""Files for lmms-eval: `python -m travlr.convert SRC DST format=lmms_eval`.

A folder with a YAML for each setting and split, one for their group, and `utils.py`, the same in every export. The
examples stay in SRC.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from travlr.corpora import is_corpus
from travlr.dataset import Dataset, open_dataset
from travlr.files import check_apart, replace_file
from travlr.harness.lmms import METRICS, OBJECTS, metrics
from travlr.questions import FORMS, PROMPTS, WORDING_VERSION, most_tokens
from travlr.questions.forms import SETTINGS
from travlr.scene import SPLITS
from travlr.settings import Settings


def _texts(value: Any) -> Any:
    """The texts of `image,caption`."""
    return value.strip("[]").split(",") if isinstance(value, str) else value


class Export(Settings):
    """The settings of an export. setting, split: one or several."""

    format: Literal["lmms_eval"] = "lmms_eval"
    setting: Annotated[list[Literal[SETTINGS]], BeforeValidator(_texts)] = list(SETTINGS)  # type: ignore[valid-type]
    split: Annotated[list[Literal[SPLITS]], BeforeValidator(_texts)] = ["test_ind", "test_ood"]  # type: ignore[valid-type]
    form: Literal[tuple(FORMS)] = "true_false"  # type: ignore[valid-type]
    prompt: Literal[tuple(PROMPTS)] = "direct"  # type: ignore[valid-type]
    overwrite: bool = False  # write into a folder that holds an earlier export


def export_dataset(source: Path, folder: Path, export: Export) -> list[str]:
    """Write the files of an export, and return their names. Raises `ValueError` for what cannot be exported."""
    check_apart(source, folder)
    dataset = open_dataset(source)
    if is_corpus(dataset):  # which has no captions and one split
        usual = {"setting": ["image"], "split": list(dataset.splits)}
        export = export.changed(**usual | export.model_dump(exclude_unset=True))
    for split in export.split:
        if split not in dataset.splits or not len(dataset[split]):
            raise ValueError(f"split={split}: {source} has {', '.join(dataset.splits)}")
        next(dataset[split].tables("id"))  # raises where the first file is damaged, before anything is written
    if folder.is_dir() and any(folder.iterdir()) and not export.overwrite:
        raise ValueError(f"{folder}: is not empty; name another folder, or give overwrite=true")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    try:
        for name, text in lmms_eval(dataset, export):
            with replace_file(folder / name) as path, open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            names.append(name)
    except BaseException:  # so that the same command can be given again
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if is_new:
            folder.rmdir()
        raise
    return names


Files = Iterator[tuple[str, str]]  # names and texts


def _name(dataset: Dataset, setting: str, split: str) -> str:
    """Such as `travlr_cardinality_image_and_caption_test_ood`."""
    return f"travlr_{dataset.task}_{setting.replace('+', '_and_')}_{split}"


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
    return lmms.chat_messages(doc, *request(lmms_eval_specific_kwargs))


'''
_OF_FORM = """\
def target_{form}(doc):
    return lmms.target(doc, "{form}")


def results_{form}(doc, replies):
    return lmms.results(doc, replies[0], "{form}")


"""
_METRIC_LINES = [
    *(f'{name} = lmms.METRICS["{name}"]\n' for name in METRICS),
    *(f'{name} = lmms.objects("{name}")\n' for name in OBJECTS),
]


def lmms_eval(dataset: Dataset, export: Export) -> Files:
    """YAML files and `utils.py`, which is the same in every export, so that exports can share a folder. The YAML files
    have the absolute path of the dataset, as lmms-eval does not expand paths."""
    form = export.form
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
        yield f"{names[-1]}.yaml", text
    group = f"travlr_{dataset.task}{ending}"
    yield f"{group}.yaml", _GROUP.format(group=group, names="\n".join(f"  - {name}" for name in names))
    yield "utils.py", "".join([_UTILS, *(_OF_FORM.format(form=form) for form in FORMS), *_METRIC_LINES])
