"""The same replies have the same scores in evaluate.py, Inspect and lmms-eval."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from render.png import decode
from tests.chat_server import ChatServer, text_and_picture
from tests.harness_environments import environment, run_in
from tests.helpers import command, generated
from tests.oracle import CELL, answer
from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from train.results.columns import Row
from travlr import Cardinality
from travlr.config import Count, Image
from travlr.convert import main as convert_main
from travlr.dataset import open_dataset
from travlr.harness import lmms, records
from travlr.questions import FORMS
from travlr.tasks import PAPER, TASKS

SETTINGS = ("image", "caption", "image+caption")
SPLITS = ("test_ind", "test_ood")
METRICS = ("accuracy", "macro_f1", "unparsed", "couples_right")
ASKED = ("true_false", "choice", "open", "read")  # the forms that all harnesses are asked in
OBJECTS = ("found", "missed", "invented", "misplaced", "miscoloured", "misshaped")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    count = Count(train=50, validation=10, test_ind=20, test_ood=20)
    config = Cardinality(count=count, image=Image(cell=CELL))
    return generated(tmp_path_factory.mktemp("data") / "cardinality", config)


def respond(body: dict[str, Any]) -> str:
    """A right, a wrong or no answer, as the request's text and picture decide; some in a sentence."""
    text, picture = text_and_picture(body)
    right = answer(text, picture)
    pixels = decode(picture).tobytes() if picture else b""  # harnesses write other files of the same pixels
    kind = hashlib.sha256(f"{text} {right} ".encode() + pixels).digest()[0] % 6
    if kind == 0:
        return "I cannot tell."
    if kind == 1:
        wrong = {"true": "false", "false": "True.", "A": "B", "B": "D", "C": "A", "D": "C"}
        return wrong.get(right) or (str(int(right) + 1) if right.isdigit() else right.rpartition("\n")[0])
    if kind == 2 and (question := re.search(r"How many (.*) are there", text)):
        return f"There are {right} {question[1]}."  # an answer only to this question
    return f"The answer is **{right}**." if kind == 2 and "\n" not in right else right


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(respond) as running:
        yield running


@pytest.fixture(scope="module")
def ours(
    data: Path, server: ChatServer, tmp_path_factory: pytest.TempPathFactory, rules_not_fitted: None
) -> dict[str, list[Row]]:
    """The rows of evaluate.py, by form."""
    evaluations, runs = {}, tmp_path_factory.mktemp("runs")
    for form in ASKED:
        config = Evaluation(model="m", server=server.url, data=str(data), runs=str(runs), form=form, limit=None)
        evaluations[form] = evaluate(config, log=lambda _: None)
    return evaluations


def fractions(row: Row) -> dict[str, float]:
    """The scores of a row as harnesses give them."""
    approximately: Any = pytest.approx
    return {name: approximately(row[name] / 100, abs=1e-12) for name in METRICS}


def test_replies_are_of_all_kinds(ours: dict[str, list[Row]]) -> None:
    for rows in ours.values():
        assert all(0 < row["accuracy"] < 100 and row["couples_right"] < row["accuracy"] for row in rows)
        assert sum(row["unparsed"] > 0 for row in rows) >= 3
        assert sum(row["unparsed"] + row["accuracy"] < 100 for row in rows) >= 3
        assert len({row["macro_f1"] for row in rows} - {row["accuracy"] for row in rows}) >= 3


# Inspect -------------------------------------------------------------------------------------------------------------

WRONG = ("setting=picture", "split=test", "form=essay", "prompt=none")
SEVERAL = """
import json, sys
from inspect_ai import eval
from inspect_ai._util.error import PrerequisiteError
from travlr.harness.inspect_tasks import tasks
data, *wrong = sys.argv[1:]
made = [tasks["cardinality"](form=form, data=data, examples=None) for form in ("true_false", "open", "read")]
eval(made, model="openai-api/local/m", display="none", log_dir="logs", log_format="json")
refused = []
for name, value in (setting.split("=") for setting in wrong):
    try:
        tasks["cardinality"](**{"data": data, name: value})
    except PrerequisiteError as error:
        refused.append(error.message.removeprefix("ERROR: "))
json.dump([refused, sorted(tasks)], open("refused", "w"))
"""


@pytest.fixture(scope="module")
def inspected(data: Path, server: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what Inspect has written."""
    folder = tmp_path_factory.mktemp("inspect")
    programs = environment("inspect")
    variables = {"LOCAL_API_KEY": "none", "LOCAL_BASE_URL": server.url}
    arguments = ["eval", "travlr/cardinality", "--model", "openai-api/local/m", "--display", "plain"]
    arguments += ["-T", "form=choice", "-T", f"data={data}", "-T", "setting=image,caption,image+caption"]
    run_in(programs, "inspect", *arguments, "--log-format", "json", "--log-dir", "logs", folder=folder, **variables)
    run_in(programs, "python", "-c", SEVERAL, str(data), *WRONG, f"data={folder}", folder=folder, **variables)
    return folder


@pytest.mark.parametrize("form", ASKED)
def test_inspect_scores_equal_ours(form: str, inspected: Path, ours: dict[str, list[Row]]) -> None:
    logs = [json.loads(path.read_text()) for path in inspected.glob("logs/*.json")]
    (results,) = [log["results"] for log in logs if log["eval"]["metadata"]["form"] == form]
    (scores,) = results["scores"]
    values = {name: metric["value"] for name, metric in scores["metrics"].items()}
    for row in ours[form]:
        where = f"{row['test_setting']}, {row['split']}"
        assert {name: values[f"{name}, {where}"] for name in METRICS} == fractions(row)
        if form == "read":
            counts = {name: values[f"{name}, {where}"] for name in OBJECTS}
            assert {name: n for name, n in counts.items() if n} == json.loads(row["objects"])
    assert values["accuracy"] == pytest.approx(sum(row["accuracy"] for row in ours[form]) / len(ours[form]) / 100)


def test_inspect_refuses_wrong_settings(inspected: Path) -> None:
    refused, names = json.loads((inspected / "refused").read_text())
    assert [line.partition(":")[0] for line in refused[:4]] == list(WRONG)
    assert str(inspected) in refused[4] and names == sorted([*TASKS, "match"])


# lmms-eval -----------------------------------------------------------------------------------------------------------


def export(data: Path, folder: Path, *settings: str) -> Path:
    assert convert_main([str(data), str(folder), *settings]) == 0
    return folder


def lmms_results(folder: Path, *arguments: str, **variables: str) -> dict[str, dict[str, Any]]:
    """The scores of lmms-eval by the names of its tasks."""
    common = ["-m", "lmms_eval", "--include_path", str(folder), "--batch_size", "1", "--output_path", str(folder)]
    run_in(environment("lmms_eval"), "python", *common, *arguments, folder=folder, **variables)
    (path,) = folder.rglob("*_results.json")
    results = json.loads(path.read_text())["results"]
    return {name: {key.removesuffix(",none"): v for key, v in values.items()} for name, values in results.items()}


def lmms_name(row: Row) -> str:
    form = "" if row["form"] == "true_false" else f"_{row['form']}"
    return f"travlr_cardinality_{row['test_setting'].replace('+', '_and_')}_{row['split']}{form}"


def test_lmms_eval_scores_equal_ours(
    data: Path, server: ChatServer, ours: dict[str, list[Row]], tmp_path: Path
) -> None:
    for form in ASKED:
        export(data, tmp_path / "tasks", "format=lmms_eval", f"form={form}")
    tasks = "travlr_cardinality," + ",".join(f"travlr_cardinality_{form}" for form in ASKED[1:])
    model = ["--model", "async_openai", "--model_args", f"model_version=m,base_url={server.url},api_key=none"]
    results = lmms_results(tmp_path, *model, "--tasks", tasks)
    for rows in ours.values():
        for row in rows:
            scores = results[lmms_name(row)]
            assert {name: scores[name] for name in METRICS} == fractions(row)
            assert scores["accuracy_stderr_clustered"] > 0
            if row["form"] == "read":
                assert {name: scores[name] for name in OBJECTS if scores[name]} == json.loads(row["objects"])


def doc_of(data: Path, number: int) -> dict[str, Any]:
    """A row as lmms-eval gets it."""
    row = open_dataset(data)["test_ood"].columns().slice(number, 1).to_pylist()[0]
    return {**row, "image": decode(row["image"]["bytes"])}


@pytest.mark.parametrize("task", PAPER)
def test_lmms_eval_takes_every_task_and_form(task: str, tmp_path: Path) -> None:
    count = Count(train=20, validation=0, test_ind=0, test_ood=2)
    data = generated(tmp_path / task, TASKS[task].Config(count=count))
    for form in FORMS:
        folder = export(data, tmp_path / form, "format=lmms_eval", f"form={form}", "split=test_ood", "prompt=reason")
        loader: Any = type("Loader", (yaml.SafeLoader,), {})
        loader.add_constructor("!function", lambda _, node: node.value)
        for path in folder.glob("*.yaml"):
            values = yaml.load(path.read_text(), loader)
            assert path.stem == values.get("task") or path.stem == values["group"]
        doc = doc_of(data, 0)
        example = open_dataset(data)["test_ood"][0]
        requests = [{"form": form, "setting": one, "prompt": "reason", "grid": [6, 6]} for one in SETTINGS]
        assert [len(lmms.pictures(doc, request)) for request in requests] == [1, 0, 1]
        reply = answer(lmms.text(doc, requests[1]), None)
        results = lmms.results(form, doc, [reply])
        assert results["accuracy"]["right"] and results["accuracy"]["answer"] == lmms.target(doc, form)
        assert results["macro_f1"]["scene"] == records.scene_key(example.scene)


# Wrong use -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [(("format=lmms",), "format"), (("format=lmms_eval", "form=essay"), "form"),
     (("format=lmms_eval", "setting=picture"), "setting"), (("format=lmms_eval", "workers=2"), "workers"),
     (("format=parquet", "form=read"), "form")],
)  # fmt: skip
def test_convert_refuses_wrong_settings_of_an_export(
    settings: tuple[str, ...], problem: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        convert_main([str(data), str(tmp_path / "out"), *settings])
    assert not (tmp_path / "out").exists()


def test_export_leaves_nothing_of_a_damaged_dataset(data: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(data, tmp_path / "damaged")
    next(damaged.glob("test_ood-*")).write_bytes(b"PAR1")
    code, _, text = command("convert", str(damaged), str(tmp_path / "out"), "format=lmms_eval")
    assert code == 1 and len(text.splitlines()) == 1
    assert not (tmp_path / "out").exists()
