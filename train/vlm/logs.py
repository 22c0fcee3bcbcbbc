"""Logs of Inspect as evaluations: `python evaluate.py log=FILE` makes the same folder as an evaluation of the model.

Replies are parsed and scored anew by `travlr.questions`, so they are comparable with those of other evaluations.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train.results.answers import AnswerFile
from train.results.columns import Row
from train.results.store import read_results, start_run, write_results
from train.vlm.config import Evaluation, LogSettings, fingerprint
from train.vlm.evaluation import SceneStyle, answer_of, requests, result_rows
from train.vlm.requests import Reply
from travlr.cli import Log
from travlr.dataset import Dataset, open_dataset
from travlr.files import locked, regular
from travlr.questions import WORDING_VERSION
from travlr.questions.forms import SETTINGS
from travlr.scene import SPLITS

FINISH = {"max_tokens": "length"}  # Inspect's reason why a reply ended -> ours, if they differ
FACTS = ("task", "form", "prompt", "wording", "dataset", "data")  # names in the metadata of our tasks


def import_log(settings: LogSettings, log: Log = print) -> list[Row]:
    """Make an evaluation of a log: one row for each setting and split. Raises `ValueError`, in one line."""
    record = read_log(Path(settings.log))
    facts = _facts(settings.log, record)
    try:
        dataset = open_dataset(settings.data or facts["data"])
    except ValueError as error:
        raise ValueError(f"data={error}; give data=FOLDER, the dataset that the log is about") from None
    if dataset.manifest["content_digest"] != facts["dataset"]:
        raise ValueError(f"data={dataset.folder}: is another dataset than that of log={settings.log}; give data=FOLDER")
    replies = _replies(settings.log, record)
    config, resolved = _evaluation(settings, record, facts, dataset, replies)
    style = SceneStyle(config, dataset)
    resolved["style"] = asdict(style.style)
    values = fingerprint(config, **resolved, wording=WORDING_VERSION, dataset=facts["dataset"], setting=None)
    values["harness"] = f"inspect_ai {record['eval'].get('packages', {}).get('inspect_ai', '')}".strip()
    folder = start_run(Path(settings.runs), values, data=str(dataset.folder))
    with locked(folder):
        asked = requests(config, dataset, style)
        answers = [answer_of(request, replies[request.split, request.setting][request.id]) for request in asked]
        with AnswerFile(folder) as file:
            for answer in answers:
                if file.answers.get((answer.split, answer.setting, answer.id)) != answer:
                    file.append(answer)
        write_results(folder, result_rows(config, resolved, dataset, folder))
    left_out = sum(map(len, replies.values())) - len(answers)
    rest = f"; {left_out:,} left out, whose couples are not whole in every setting and split" if left_out else ""
    log(f"{folder}: {len(answers):,} replies of {settings.log}{rest}")
    if (status := record.get("status", "success")) != "success":
        log(f"log={settings.log}: has status {status}, so it may lack replies")
    return read_results(folder)


def read_log(path: Path) -> dict[str, Any]:
    """A log as a dictionary. Raises `ValueError` if it is no log; a log in the format .eval needs Inspect."""
    if not path.is_file():
        raise ValueError(
            f"log={path}: {'is a folder; give one of its logs' if path.is_dir() else 'there is no such file'}"
        )
    if path.suffix not in (".eval", ".json"):
        raise ValueError(f"log={path}: is no log of Inspect, which end in .eval or .json")
    try:
        if path.suffix == ".json":
            record = json.loads(regular(path).read_text(encoding="utf-8"))
        else:
            from inspect_ai.log import read_eval_log

            record = json.loads(read_eval_log(str(path)).model_dump_json())
    except ImportError:
        raise ValueError(
            f"log={path}: this format needs inspect-ai; install it, or: inspect log dump {path} > LOG.json"
        ) from None
    except Exception as error:  # Inspect's reader can fail in any way
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"log={path}: is no log of Inspect ({type(error).__name__}: {reason})") from None
    if not isinstance(record, dict) or not isinstance(record.get("eval"), dict):
        raise ValueError(f"log={path}: is no log of Inspect")
    return record


def _facts(path: str, record: dict[str, Any]) -> dict[str, Any]:
    """The metadata of our task in the log."""
    facts = record["eval"].get("metadata") or {}
    if not set(FACTS) <= facts.keys():
        raise ValueError(f"log={path}: is of task {record['eval'].get('task')}, not one of travlr/TASK")
    if facts["wording"] != WORDING_VERSION:
        raise ValueError(
            f"log={path}: has the questions of wording {facts['wording']}, not this version's {WORDING_VERSION}; "
            "use the version of TraVLR that asked"
        )
    return facts


LoggedReplies = dict[tuple[str, str], dict[str, Reply]]  # (split, setting) -> id -> reply


def _replies(path: str, record: dict[str, Any]) -> LoggedReplies:
    replies: LoggedReplies = {}
    for number, sample in enumerate(record.get("samples") or ()):
        if not _is_sample(sample):
            raise ValueError(f"log={path}: sample number {number} lacks id, metadata or output; write the log again")
        place = sample["metadata"]
        if sample.get("error") is not None or not sample["output"]["choices"]:
            raise ValueError(f"log={path}: sample {sample['id']} has no reply; run inspect eval-retry on it first")
        by_id = replies.setdefault((place["split"], place["setting"]), {})
        if place["id"] in by_id:
            raise ValueError(f"log={path}: asks sample {sample['id']} several times; use epochs=1")
        by_id[place["id"]] = _reply(sample["output"])
    if not replies:
        raise ValueError(f"log={path}: has no samples")
    return replies


def _is_sample(sample: Any) -> bool:
    """Whether a sample has what `inspect eval travlr/TASK` writes."""
    if not isinstance(sample, dict) or "id" not in sample:
        return False
    place, output = sample.get("metadata"), sample.get("output")
    has_place = isinstance(place, dict) and {"split", "setting", "id"} <= place.keys()
    return has_place and isinstance(output, dict) and isinstance(output.get("choices"), list)


def _reply(output: dict[str, Any]) -> Reply:
    reason, usage = output["choices"][0].get("stop_reason"), output.get("usage") or {}
    text = output.get("completion") or ""
    return Reply(text, FINISH.get(reason, reason), usage.get("input_tokens"), usage.get("output_tokens"))


def _evaluation(
    settings: LogSettings, record: dict[str, Any], facts: dict[str, Any], dataset: Dataset, replies: LoggedReplies
) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation of a log, and what identifies its model."""
    splits = sorted({split for split, _ in replies}, key=SPLITS.index)
    names = sorted({setting for _, setting in replies}, key=SETTINGS.index)
    limit = min(_answered_count(dataset, split, replies.get((split, name), {})) for split in splits for name in names)
    if limit < 2:
        raise ValueError(f"log={settings.log}: has no whole couple of examples in every setting and split")
    options = {**(record.get("plan", {}).get("config") or {}), **(record["eval"].get("model_generate_config") or {})}
    config = Evaluation(
        model=record["eval"]["model"],
        task=facts["task"],
        data=str(dataset.folder),
        setting=names,
        split=splits,
        limit=limit,
        form=facts["form"],
        prompt=facts["prompt"],
        max_tokens=options.get("max_tokens"),
        temperature=float(options.get("temperature") or 0.0),
        seed=options.get("seed") or 0,
        runs=settings.runs,
    )
    weights = record["eval"].get("model_base_url") or record["eval"]["model"]
    return config, {"origin": "zero-shot", "weights": weights}


def _answered_count(dataset: Dataset, split: str, replies: dict[str, Reply]) -> int:
    """The number of examples of a split before the first one without a reply, in whole couples."""
    ids = dataset[split].columns("id")["id"].to_pylist()
    count = next((number for number, name in enumerate(ids) if name not in replies), len(ids))
    return count - count % 2
