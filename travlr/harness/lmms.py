"""lmms-eval: `python -m travlr.convert SRC DST format=lmms_eval` writes a YAML file for each setting and split, and one
for their group. They call the functions below; a doc is a row of the dataset, which stays in SRC, its picture a Pillow
image.

lmms-eval does not say which replies were cut off, so such replies are read like others.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from travlr import questions
from travlr.dataset import example_of, open_dataset
from travlr.formats.exports import check_apart
from travlr.formats.manifest import check_files
from travlr.harness.records import METRICS, OBJECTS, QuestionSettings, Record, example_facts, measure_records

Doc = Mapping[str, Any]
LOWER = ("unparsed", *OBJECTS[1:])  # metrics that are better lower


class Export(QuestionSettings):
    """The settings of an export."""

    format: Literal["lmms_eval"] = "lmms_eval"


def export_dataset(source: Path, folder: Path, export: Export) -> list[str]:
    """Write the files of an export, and return their names. Raises `ValueError` for what cannot be exported.

    The YAML files have the absolute path of the dataset, as lmms-eval does not expand paths.
    """
    check_apart(source, folder)
    dataset = open_dataset(source)
    check_files(source, dataset.manifest["files"])
    export = export.of_dataset(dataset)
    form, prompt = export.form, export.prompt
    ending = "".join(f"_{name}" for name in (form, prompt) if name not in ("true_false", "direct"))
    files = {}
    for split, setting in itertools.product(export.split, export.setting):
        name = f"travlr_{dataset.task}_{setting.replace('+', '_and_')}_{split}{ending}"
        names = [file["name"] for file in dataset.manifest["files"] if file["split"] == split]
        files[name] = _YAML.format(
            name=name,
            path=json.dumps(str(dataset.folder.absolute())),
            files=json.dumps({split: names}),
            split=split,
            tokens=questions.most_tokens(form, prompt),
            metrics="".join(_METRIC.format(name, "false" if name in LOWER else "true") for name in metrics_of(form)),
            form=form,
            request=json.dumps({"form": form, "setting": setting, "prompt": prompt, "grid": dataset.grid}),
            version=json.dumps(questions.WORDING_VERSION),
            digest=json.dumps(dataset.manifest["content_digest"]),
        )
    group = f"travlr_{dataset.task}{ending}"
    files[group] = f"# Made by travlr.convert.\ngroup: {group}\ntask: {json.dumps(list(files))}\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return [f"{name}.yaml" for name in files]


_YAML = """\
# Made by travlr.convert; needs travlr beside lmms-eval.
task: {name}
dataset_path: {path}
dataset_kwargs: {{token: false, data_files: {files}}}
test_split: {split}
output_type: generate_until
doc_to_visual: !function travlr.harness.lmms.pictures
doc_to_text: !function travlr.harness.lmms.text
doc_to_target: !function travlr.harness.lmms.target
lmms_eval_specific_kwargs: {{default: {request}}}
model_specific_target_kwargs: {{default: {form}}}
generation_kwargs: {{max_new_tokens: {tokens}, temperature: 0, do_sample: false}}
process_results: !function travlr.harness.lmms.results_{form}
metric_list:
{metrics}cluster_key: scene
metadata: [{{version: {version}, dataset: {digest}}}]
"""
_METRIC = "- {{metric: {0}, aggregation: !function travlr.harness.lmms.{0}, higher_is_better: {1}}}\n"


def metrics_of(form: str) -> tuple[str, ...]:
    return (*METRICS, *(OBJECTS if form == "read" else ()))


def pictures(doc: Doc, request: Mapping[str, Any]) -> list[Any]:
    """The pictures of a request: one or none."""
    return [] if request["setting"] == "caption" else [doc["image"].convert("RGB")]


def text(doc: Doc, request: Mapping[str, Any]) -> str:
    """The text of a request."""
    example, grid = example_of(doc, b""), request["grid"] and tuple(request["grid"])
    question = questions.make_question(example, request["form"])
    (message,) = questions.messages(question, example, request["setting"], request["prompt"], grid)
    return "\n\n".join(part["text"] for part in message["content"] if part["type"] == "text")


def target(doc: Doc, form: str) -> str:
    return questions.score(None, questions.make_question(example_of(doc, b""), form)).answer


def results(form: str, doc: Doc, replies: Sequence[str]) -> dict[str, Record]:
    """Metric -> the record that it aggregates. That of `accuracy` has a score, for its standard error by scenes."""
    example = example_of(doc, b"")
    outcome = questions.score_reply(replies[0], questions.make_question(example, form))
    record = {"id": example.id, **example_facts(example), **asdict(outcome)}
    return dict.fromkeys(metrics_of(form), record) | {"accuracy": record | {"score": float(outcome.right)}}


def aggregate(metric: str, records: Sequence[Record]) -> float:
    return measure_records(records)[metric]


# The names that the YAML files give, which can have no arguments.
results_true_false, results_choice, results_open, results_read = (
    functools.partial(results, form) for form in ("true_false", "choice", "open", "read")
)
accuracy, macro_f1, unparsed, couples_right = (functools.partial(aggregate, name) for name in METRICS)
found, missed, invented, misplaced, miscoloured, misshaped = (functools.partial(aggregate, name) for name in OBJECTS)
