"""What TensorBoard and Weights & Biases are given, read back from the files that they write."""

from __future__ import annotations

import json
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from wandb.proto import wandb_internal_pb2

from train.config import Optimiser, Run, Training
from train.learning.logs import open_loggers
from train.learning.module import Learner
from train.results.store import read_config, read_curve
from train.results.tables import flat_settings
from train.run import run
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, generate_dataset

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 30
RECORD: Any = vars(wandb_internal_pb2)["Record"]  # made when it is imported
BOTH = ["tensorboard", "wandb"]


class LogKilled(Exception):
    """Ends a run in the middle of a step."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("data") / "cardinality")
    count = Count(train=80, validation=40, test_ind=40, test_ood=40)
    generate_dataset(Cardinality(count=count), GenerateArguments(out=folder, workers=1), log=lambda line: None)
    return folder


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of W&B, and a clock by which each event file is named after those before it."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    seconds = count(1_700_000_000)
    clock = SimpleNamespace(time=lambda: next(seconds))
    monkeypatch.setattr("tensorboard.summary.writer.event_file_writer.time", clock)


def tiny(data: str, runs: Path, **changes: Any) -> Run:
    values: dict[str, Any] = {"size": "tiny", "precision": "float32", "device": "cpu", "logger": BOTH}
    training = Training(steps=STEPS, check_every=15, validation=40)
    return Run(data=data, runs=str(runs), optimiser=Optimiser(batch_size=5), training=training, **(values | changes))


def finished(config: Run) -> tuple[Path, list[dict[str, Any]]]:
    rows = run(config, log=lambda line: None)
    return Path(config.runs) / rows[0]["name"], rows


def stopped(config: Run, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A run that fails in the step that follows so many."""
    learn = Learner.training_step

    def step(self: Learner, *given: Any) -> Any:
        if self.trainer.global_step == after:
            raise LogKilled
        return learn(self, *given)

    with monkeypatch.context() as patched, pytest.raises(LogKilled):
        patched.setattr(Learner, "training_step", step)
        run(config, log=lambda line: None)
    wandb.teardown()  # as when the process ends


# What the logs hold --------------------------------------------------------------------------------------------------

Points = dict[str, list[tuple[int, float]]]  # of each name: steps and values


def tensorboard(folder: Path) -> tuple[dict[str, Any], set[str], Points]:
    """The hyperparameters, the names by which runs are compared, and the scalars."""
    read = EventAccumulator(str(folder / "tensorboard")).Reload()
    begun, compared = (
        HParamsPluginData.FromString(read.summary_metadata[f"_hparams_/{name}"].plugin_data.content)
        for name in ("session_start_info", "experiment")
    )
    config = {
        name: getattr(value, value.WhichOneof("kind")) for name, value in begun.session_start_info.hparams.items()
    }
    points = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    return config, {metric.name.tag for metric in compared.experiment.metric_infos}, points


def records(path: Path) -> Iterator[Any]:
    """Of a .wandb file: 7 bytes, then LevelDB's log, whose records lie in pieces in blocks of 32 KiB."""
    content, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (left := -place % 32768) < 7 and left:
            place += left
            continue
        size, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield RECORD.FromString(whole)
            whole = b""


def files(folder: Path) -> list[Path]:
    wandb.teardown()  # the process that writes these files goes on for a moment after the end of a run
    return sorted(folder.glob(f"wandb/offline-run-*/run-{folder.name}.wandb"), key=lambda path: path.stat().st_mtime)


def weights_and_biases(path: Path) -> tuple[dict[str, Any], Points, dict[str, Any], list[int]]:
    """The config, the points, the summary, and the exit code, if the run was finished."""
    config: dict[str, Any] = {}
    points: Points = defaultdict(list)
    summary: dict[str, Any] = {}
    codes = []
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "history":
            row = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            for name in row:
                points[name].append((row["_step"], row[name]))
        elif kind == "summary":
            summary |= {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.summary.update}
        elif kind == "exit":
            codes.append(record.exit.exit_code)
    return config, points, summary, codes


def scores_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    scores = {}
    for row in rows:
        scores[f"test/{row['test_setting']}/{row['split']}/f1"] = row["macro_f1"]
        scores[f"test/{row['test_setting']}/{row['split']}/accuracy"] = row["accuracy"]
    return scores


def rates(config: Run, steps: list[int]) -> list[float]:
    """Of a linear schedule, by hand: a tenth of the steps up, the others down to 0."""
    rise = STEPS // 10
    factors = [s / rise if s <= rise else 1 - (s - 1 - rise) / (STEPS - rise) for s in steps]
    return [config.learning_rate * factor for factor in factors]


def test_two_runs_of_a_process_have_two_logs_of_all_that_they_are(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folders of the runs, and without a network."""
    monkeypatch.chdir(tmp_path)
    network = socket.create_server(("127.0.0.1", 0))  # what asks for anything from outside asks here
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{network.getsockname()[1]}")
    for seed in (0, 1):
        config = tiny(data, Path("runs"), seed=seed)
        folder, rows = finished(config)
        known, scores = read_config(folder)["config"], scores_of(rows)
        assert len(scores) == 12 and known["seed"] == seed
        curve: dict[str, Any] = defaultdict(list)
        for point in read_curve(folder):
            for name, value in point.items():
                if value is not None:
                    curve[name].append((point["step"], pytest.approx(value)))

        hyperparameters, compared, points = tensorboard(folder)
        assert hyperparameters == {
            name: "null" if value is None else value for name, value in flat_settings(known).items()
        }
        assert compared == scores.keys()
        for name, score in scores.items():
            ((step, value),) = points[name]
            assert step == STEPS and value == pytest.approx(score)
        (file,) = files(folder)
        settings, logged, summary, codes = weights_and_biases(file)
        assert settings | known == settings and codes == [0]
        assert {name: summary[name] for name in scores} == scores

        for log in (points, logged):
            assert [step for step, _ in log["learning_rate"]] == [10, 20, 30]
            assert [rate for _, rate in log["learning_rate"]] == pytest.approx(rates(config, [10, 20, 30]))
            assert log["loss"] == curve["loss"] and log["word_loss"] == curve["word_loss"]
            assert log["f1"] == curve["validation_f1"] and len(log["f1"]) == 2
    network.setblocking(False)
    with network, pytest.raises(BlockingIOError):
        network.accept()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"] and wandb.run is None


def test_a_resumed_run_goes_on_in_its_logs(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points after its checkpoint, at step 15, are not there twice."""
    whole, _ = finished(tiny(data, tmp_path / "whole"))
    config = tiny(data, tmp_path / "stopped")
    stopped(config, monkeypatch, after=5)  # before any checkpoint
    stopped(config, monkeypatch, after=25)
    folder, rows = finished(config)
    assert tensorboard(folder)[2] == tensorboard(whole)[2]
    parts = [weights_and_biases(file) for file in files(folder)]
    assert [codes for *_, codes in parts] == [[1], [1], [0]]
    steps = [[step for step, _ in points["loss"]] for _, points, _, _ in parts]
    assert steps == [[], [10, 20], [20, 30]]  # offline W&B does not know what it logged
    assert parts[1][1]["loss"][1] == parts[2][1]["loss"][0]
    assert {name: parts[2][2][name] for name in scores_of(rows)} == scores_of(rows)


def logged_names(folder: Path) -> set[str]:
    return {name for file in files(folder) for name in weights_and_biases(file)[1]}


# How long they are open ----------------------------------------------------------------------------------------------


def test_a_finished_run_that_is_read_logs_nothing(data: str, tmp_path: Path) -> None:
    config = tiny(data, tmp_path)

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "lock" not in path.name}

    folder, rows = finished(config)
    assert len(files(folder)) == 1
    before = contents()
    assert finished(config) == (folder, rows) and contents() == before


def test_a_run_of_the_calling_program_is_left_alone(data: str, tmp_path: Path) -> None:
    settings = wandb.Settings(silent=True, console="off")
    with wandb.init(project="own", id="own", dir=tmp_path, mode="offline", settings=settings) as own:
        folder, _ = finished(tiny(data, tmp_path / "runs", logger=["wandb"]))
        assert wandb.run is own
        own.log({"its": 1})
    (file,) = files(folder)
    assert weights_and_biases(file)[3] == [0]
    (file,) = tmp_path.glob("wandb/offline-run-*/run-own.wandb")
    _, points, _, codes = weights_and_biases(file)
    assert points["its"] == [(0, 1)] and "loss" not in points and codes == [0]


def test_a_run_that_fails_does_not_go_on_in_the_next(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.run.test_matrix", lambda *_: pytest.fail("in its tests"))
    with pytest.raises(pytest.fail.Exception):
        run(tiny(data, tmp_path, logger=["wandb"]), log=lambda line: None)
    assert wandb.run is None
    (folder,) = (path.parent for path in tmp_path.glob("*/wandb"))
    (file,) = files(folder)
    assert weights_and_biases(file)[3] == [1]


def test_a_process_that_does_not_lead_opens_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.learning.logs.is_main_process", lambda: False)
    with open_loggers(Run(logger=BOTH), tmp_path, {}) as loggers:
        assert loggers == []
    assert not list(tmp_path.iterdir())


def test_wandb_mode_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with open_loggers(Run(logger=["wandb"]), tmp_path, {"seed": 0}) as (logger,):
        logger.log_metrics({"loss": 1.0}, step=1)
    assert not list(tmp_path.rglob("*.wandb"))
    monkeypatch.setenv("WANDB_MODE", "ofline")
    with (
        pytest.raises(ValueError, match=r"^WANDB_MODE=ofline: choose one of offline, online, disabled$"),
        open_loggers(Run(logger=BOTH), tmp_path, {}),
    ):
        pass
