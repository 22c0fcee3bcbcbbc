"""`python train.py` as a person meets it: settings, experiments, sweeps, refusals of one line."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import train.run
from tests.helpers import ROOT, called, interruptible, last_of, one_line
from train.command import main as train_main
from train.config import Run
from train.results.store import collect_results, read_results
from train.settings import settings, with_start
from train.sweep import combinations, expand, job_list
from travlr import Cardinality, Count, Image, cli, generate_dataset
from travlr.cli import UsageError
from travlr.generate import GenerateArguments as Writing

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited")

TINY = [
    "size=tiny",
    "training.steps=3",
    "training.check_every=3",
    "training.validation=20",
    "optimiser.batch_size=8",
    "precision=float32",
    "device=cpu",
]
NAME = "two words, a=b"  # of the dataset's folder
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
SIZES = {
    "table2": 144,
    "text_only": 24,
    "subsets": 168,
    "frozen": 56,
    "mixed": 48,
    "few_shot": 10,
    "volta": 36,
    "transfer": 48,
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small dataset in it."""
    folder = tmp_path_factory.mktemp("work")
    config = Cardinality(count=Count(train=400, validation=40, test_ind=40, test_ood=40), image=Image(cell=8))
    generate_dataset(config, Writing(out=str(folder / NAME), workers=1), lambda _: None)
    return folder


@pytest.fixture(scope="module")
def finished(work: Path) -> tuple[Path, str]:
    """One run, made by the command; its folder of runs, and what was printed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.chdir(work)
        assert called(patch, f"data={NAME}", "runs=my runs", "setting=image+caption", "seed=0", *TINY) == 0
    return work / "my runs", out.getvalue()


@functools.cache
def runs_of(*arguments: str) -> list[Run]:
    return list(expand(arguments).values())


# Settings ------------------------------------------------------------------------------------------------------------


def dotted(values: dict[str, Any], prefix: str = "") -> set[str]:
    inner = [dotted(value, f"{prefix}{name}.") for name, value in values.items() if isinstance(value, dict)]
    return {f"{prefix}{name}" for name in values}.union(*inner)


def test_no_arguments_are_the_defaults() -> None:
    assert settings([]) == Run()


def test_every_setting_has_help_but_where_its_name_says_it() -> None:
    silent = {line.partition("=")[0] for line in cli.help_lines(Run) if "#" not in line}
    assert silent <= {"seed", "experiment", "scale", "optimiser.weight_decay"}


def test_settings_become_a_run() -> None:
    job = settings(
        ["setting=image+caption", "model=lxmert", "optimiser.betas=[0.8,0.9]", "regions.number=36", "seed=7"]
    )
    expected = Run(
        model="lxmert",
        setting="image+caption",
        seed=7,
        optimiser=dataclasses.replace(Run().optimiser, betas=[0.8, 0.9]),
        regions=dataclasses.replace(Run().regions, number=36),
    )
    assert job == expected


def test_a_logger_needs_no_brackets() -> None:
    assert settings(["logger=wandb"]).logger == ["wandb"]
    assert settings(["logger=[wandb,tensorboard]"]).logger == ["wandb", "tensorboard"]
    assert settings(["logger=null"]).logger == []


@pytest.mark.parametrize(
    "name", ["two words", "a,b", "k=v", "(x)", "~tilde", "it's", "${x}", "[1,2", "x:y #z", "a\\${x}", "range(1,2)"]
)
def test_paths_are_taken_to_the_letter(name: str) -> None:
    for key in ("data", "pretrained", "tokenizer", "start", "runs"):
        assert getattr(settings([f"{key}={name}"]), key) == name
        assert [getattr(run, key) for run in runs_of(f"{key}={name}")] == [name]
    regions = settings(["training.stream=false", "regions.source=file", f"regions.file={name}"]).regions
    assert (regions.source, regions.file) == ("file", name)


def test_a_scale_may_have_its_plus() -> None:
    assert settings(["+scale=paper"]) == settings(["scale=paper"])
    assert settings(["+experiment=mixed"]).setting == "mixed"


# What the paper says: model -> batch, rate, decay of weights, clipping, schedule and its end, loss.
PAPER = {
    "visualbert": (64, 2e-5, 0.01, 5.0, "linear", 0.0, "binary"),
    "uniter": (32, 5e-6, 0.01, 5.0, "linear", 0.0, "binary"),
    "lxmert": (32, 5e-6, 0.01, 5.0, "linear", 0.0, "binary"),
    "albef": (256, 2e-5, 0.02, None, "cosine", 1e-6, "distillation"),
}


@pytest.mark.parametrize("model", PAPER)
def test_the_paper_s_scale(model: str) -> None:
    run = settings([f"model={model}", "+scale=paper"])
    optimiser, training = run.optimiser, run.training
    schedule = (optimiser.decay, optimiser.final_rate)
    found = (run.batch_size, run.learning_rate, optimiser.weight_decay, optimiser.clip, *schedule, training.loss)
    assert found == PAPER[model]
    assert (run.size, run.scale, run.regions.number, optimiser.betas) == ("base", "paper", 36, [0.9, 0.999])
    assert (training.epochs, training.steps, training.stream) == (80, None, False)
    assert (run.training.auxiliary_targets, run.positions) == (False, "random")
    assert settings(["model=lxmert", "task=spatiality", "+scale=paper"]).learning_rate == 5e-5


def test_the_command_line_has_the_last_word() -> None:
    run = settings(["training.epochs=3", "model=albef", "optimiser.clip=2", "+scale=paper", "size=tiny"])
    assert (run.training.epochs, run.optimiser.clip, run.size) == (3, 2.0, "tiny")
    assert settings(["experiment=few_shot", "+scale=paper", "start=x"]).training.epochs == 20


# Wrong usage ---------------------------------------------------------------------------------------------------------

USAGE: dict[str, tuple[list[str], str]] = {
    "model": (["model=unter"], "model=unter: choose one of visualbert, uniter, lxmert, albef, bert, roberta"),
    "model at scale": (["model=unter", "+scale=paper"], "model=unter: choose one of visualbert, uniter"),
    "setting": (["setting=images"], "setting=images: choose one of image, caption, image+caption, mixed"),
    "task": (["task=spatial"], "task=spatial: choose one of "),
    "experiment": (["experiment=table3"], "experiment=table3: choose one of few_shot, frozen, mixed, subsets, table2"),
    "scale": (["+scale=papre"], "scale=papre: choose one of paper\n"),
    "controlled": (
        ["model=albef", "controlled=true"],
        "controlled=true: model=albef has none; leave it out, or give model=visualbert or model=uniter or model=lxmert",
    ),
    "another command's group": (["preset=paper"], "there is no setting 'preset'"),
    "near miss": (["modle=uniter"], "there is no setting 'modle'; did you mean model"),
    "near miss inside": (["optimiser.learningrate=1"], "did you mean optimiser.learning_rate"),
    "a name without its group": (
        ["batch_size=8"],
        "there is no setting 'batch_size'; did you mean optimiser.batch_size?",
    ),
    "nothing like it": (["zzz=8"], "there is no setting 'zzz'; --help lists them all"),
    "plus": (["+seed=1"], "'+seed=1' is not a setting; write it as name=value"),
    "no number": (["seed=x"], "seed=x: must be a whole number"),
    "negative": (["seed=-1"], "seed=-1: must be at least 0 "),
    "a group": (["optimiser=3"], "optimiser=3: is a group of settings; choose from optimiser.batch_size"),
    "both lengths": (["training.epochs=3"], "give one of training.steps and training.epochs"),
    "text only": (["model=bert", "setting=image"], "setting=image: model=bert sees text alone"),
    "logger": (["logger=tensorbord"], "logger=tensorbord: choose one of csv, tensorboard, wandb"),
    "a sweep without -m": (["seed=0,1"], "seed=0,1: one value is needed; give -m for a run of each"),
    "unreadable": (["optimiser.betas=[1,2"], "its value cannot be read"),
    "no setting": (["uniter"], "'uniter' is not a setting; write it as name=value (see --help)"),
    "option": (["--dry-run"], "there is no option --dry-run; there are -m, --list and --help"),
    "list alone": (["--list"], "--list is for -m"),
    "one of many": (["-m", "model=uniter,unter"], "model=unter: choose one of"),
    "one of many fits not": (["-m", "model=uniter,bert", "setting=image"], "sees text alone; use setting=caption (in "),
    "experiments": (["-m", "experiment=table2,table3"], "experiment=table3: choose one of"),
    "final rate": (["optimiser.final_rate=1"], "optimiser.final_rate=1.0: must not be above the rate it falls from"),
    "streamed": (
        ["regions.source=file", "regions.file=x"],
        "regions.source=file: has no features of new scenes; use training.stream=false",
    ),
    "empty": (["data="], "data=: is empty"),
    "list": (["task=[spatiality,cardinality]"], "task=[spatiality,cardinality]: must be a word"),
    "devices": (["devices=3"], "devices=3: must divide optimiser.batch_size=64"),
    "devices of a sweep": (["-m", "seed=0,1", "devices=2"], "devices=2: -m gives each run one; start the command once"),
    "grid": (["grid=[{seed:1}]"], "there is no setting 'grid'; --help lists them all"),
    "grid of a sweep": (["-m", "grid=3"], "there is no setting 'grid'"),
    "recipe": (["recipe.uniter.clip=3", "+scale=paper"], "there is no setting 'recipe.uniter.clip'"),
    "seed": (["seed=18446744073709551616"], "seed=18446744073709551616: must be "),
    "infinite part": (["training.examples=inf", "training.stream=false"], "training.examples=inf: must be a finite "),
    "infinite rate": (["optimiser.learning_rate=inf"], "optimiser.learning_rate=inf: must be a finite number"),
    "endless": (["training.steps=100000000000"], "training.steps=100000000000: must be "),
    "batch": (["optimiser.batch_size=100000000"], "optimiser.batch_size=100000000: must be "),
    "memory": (
        ["optimiser.batch_size=60000"],
        "optimiser.batch_size=60000: 15,000,000 examples would be streamed at once",
    ),
    "values": (["-m", "seed=range(0,1000000000)", "--list"], "more than 1,000 values; give fewer"),
    "runs": (["-m", "optimiser.warmup=0.1,0.2", "seed=range(0,900)"], "more than 1,000 runs; give seed fewer values"),
    "runs of a grid": (["-m", "experiment=table2", "seed=range(0,30)", "--list"], "more than 1,000 runs; give seed "),
    "no line": (["-m", "experiment=few_shot", "model=albef", "setting=caption"], "nothing to run"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_one_line_that_says_what_would_be_right(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = USAGE[case]
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and one_line(err).startswith("train: ") and message in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("many", [[], ["-m"]], ids=["one", "many"])
def test_a_setting_that_is_given_twice_is_refused(many: list[str]) -> None:
    for given in (["seed=0", "model=uniter", "seed=1"], ["data=a", "data=b"], ["+scale=paper", "scale=paper"]):
        name = given[-1].partition("=")[0]
        with pytest.raises(UsageError, match=f"^{name}: given twice"):
            train_main([*many, *given])


def test_help_needs_nothing_heavy_and_names_every_setting(tmp_path: Path) -> None:
    heavy = "{'torch', 'lightning', 'transformers', 'hydra', 'pyarrow'}"
    code = f"import sys; from train.command import main; main(['--help']); print(sorted(set(sys.modules) & {heavy}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.splitlines()[-1] == "[]"
    groups = {"experiment", "scale", "regions", "optimiser", "training", "reader"}
    for name in dotted(dataclasses.asdict(Run())) - groups:
        assert f" {name}=" in done.stdout, name
    for name, size in SIZES.items():
        line = next(line for line in done.stdout.splitlines() if line.strip().startswith(f"{name} "))
        assert f"({size} runs)" in line
    assert "+scale=" in done.stdout and " paper " in done.stdout and max(map(len, done.stdout.splitlines())) <= 120


def test_a_wrong_setting_is_answered_without_the_deep_learning_stack(tmp_path: Path) -> None:
    heavy = "{'torch', 'lightning', 'transformers', 'sklearn', 'pyarrow'}"
    code = (
        "import sys\nfrom train.command import main\nfrom travlr.cli import UsageError\n"
        "for wrong in (['model=foo'], ['+scale=paper', 'regions.source=foo'], ['-m', 'size=tiny,foo'], ['seeed=1']):\n"
        "    try:\n        main(wrong)\n    except UsageError as error:\n        print(error)\n"
        f"print(sorted(set(sys.modules) & {heavy}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    answers = done.stdout.splitlines()
    assert done.stderr == "" and len(answers) == 5 and answers[-1] == "[]"


# Experiments ---------------------------------------------------------------------------------------------------------


def test_there_is_a_size_for_every_experiment() -> None:
    assert sorted(SIZES) == EXPERIMENTS


@pytest.mark.parametrize("scale", [[], ["+scale=paper"]], ids=["default", "paper"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_of_every_experiment_is_valid(name: str, scale: list[str]) -> None:
    size = SIZES[name]
    if scale and name != "few_shot":  # whose grid names its tasks; elsewhere the scale does not depend on the task
        scale = [*scale, "task=cardinality"]
        size = sum(run.task == "cardinality" for run in runs_of(f"experiment={name}"))
    runs = runs_of(f"experiment={name}", *scale)
    assert len({repr(run) for run in runs}) == len(runs) == size > 0
    assert {run.experiment for run in runs} == {name}
    assert {run.scale for run in runs} == {"paper" if scale else None}


def test_the_grids_are_the_paper_s() -> None:
    models = Counter((run.model, run.setting, run.seed) for run in runs_of("experiment=table2"))
    assert len(models) == 36 and set(models.values()) == {4}  # each on every task
    parts = Counter((run.training.examples, run.model) for run in runs_of("experiment=subsets"))
    assert parts[0.125, "albef"] == 12 and parts[0.5, "roberta"] == 4
    assert all(not run.training.stream for run in runs_of("experiment=subsets"))
    assert all(run.training.frozen for run in runs_of("experiment=frozen"))
    assert {run.setting for run in runs_of("experiment=mixed")} == {"mixed"}
    volta = Counter((r.controlled, r.task, r.setting, r.training.examples) for r in runs_of("experiment=volta"))
    spatial, cardinal = (True, "spatiality", "image"), (True, "cardinality")
    expected = [(*spatial, 1.0), (*spatial, 8000.0), (*cardinal, "image", 1.0), (*cardinal, "caption", 1.0)]
    assert volta == dict.fromkeys(expected, 9)


def seen_by_start(job: Run) -> str:
    """The modality of the run that a run of `few_shot` starts from."""
    return str(job.start).partition("{model}-")[2].partition("-")[0]


def test_few_shot_is_table_9() -> None:
    jobs = expand(["experiment=few_shot"]).values()
    found = {(seen_by_start(job), job.task, job.model, job.seed) for job in jobs}
    assert found == {
        ("image", "spatiality", "uniter", 0),
        ("image", "spatiality", "lxmert", 0),
        ("image", "quantifiers", "visualbert", 2),
        ("image", "quantifiers", "uniter", 2),
        ("image", "quantifiers", "lxmert", 2),
        ("caption", "spatiality", "uniter", 0),
        ("caption", "spatiality", "albef", 2),
        ("caption", "quantifiers", "visualbert", 2),
        ("caption", "quantifiers", "uniter", 2),
        ("caption", "quantifiers", "albef", 2),
    }
    assert {(seen_by_start(job), job.setting) for job in jobs} == {("image", "caption"), ("caption", "image")}
    assert {(j.training.examples, j.training.epochs) for j in jobs} == {(200, 20)}


def test_a_setting_beside_an_experiment_takes_the_place_of_the_grid_s() -> None:
    assert len(runs_of("experiment=table2", "model=uniter")) == 36
    assert len(runs_of("experiment=table2", "model=uniter,albef", "seed=5")) == 4 * 3 * 2
    assert len(runs_of("experiment=subsets", "model=bert")) == 12  # the line of the text-only models alone
    assert len(runs_of("experiment=subsets", "model=uniter,bert", "training.examples=0.5")) == 12 + 4
    assert {run.size for run in runs_of("experiment=mixed", "size=tiny")} == {"tiny"}


def test_combinations() -> None:
    grid = [{"a": [1, 2], "b": 0}, {"a": 3, "c": [0, 1]}]
    assert list(combinations(grid, {"a": [2, 9]})) == [
        {"a": 2, "b": 0},
        {"a": 9, "b": 0},
        {"a": 9, "c": 0},
        {"a": 9, "c": 1},
    ]
    assert list(combinations(grid, {"c": [1]})) == [{"a": 3, "c": 1}]
    assert list(combinations([{}], {"d": [4, 5]})) == [{"d": 4}, {"d": 5}]


def test_hydra_s_sweeps() -> None:
    runs = runs_of("model=uniter,lxmert", "seed=range(0,3)", "setting=image+caption,image", "experiment=table2")
    assert {(run.model, run.seed, run.setting) for run in runs} == {
        (m, s, setting) for m in ("uniter", "lxmert") for s in (0, 1, 2) for setting in ("image+caption", "image")
    }
    assert len(runs_of("seed=0,1")) == 2 and len(runs_of("seed=0")) == 1
    assert [run.optimiser.betas for run in runs_of("optimiser.betas=[0.8,0.9],[0.7,0.9]")] == [[0.8, 0.9], [0.7, 0.9]]


# Running -------------------------------------------------------------------------------------------------------------


def test_a_run_from_the_command_line(finished: tuple[Path, str]) -> None:
    runs, out = finished
    (folder,) = [path for path in runs.iterdir() if path.is_dir() and path.name[0] != "."]
    rows = read_results(folder)
    assert {(row["setting"], row["seed"], row["size"], row["steps"]) for row in rows} == {
        ("image+caption", 0, "tiny", 3)
    }
    assert len(rows) == 6 and "image+caption (own)" in out and f"my runs/{folder.name}" in out
    assert sorted(path.name for path in runs.parent.iterdir()) == ["my runs", NAME]  # no outputs/, no lightning_logs/


def here(work: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(work)
    return [f"data={NAME}", "runs=my runs", *TINY]


def test_a_finished_run_is_not_run_again(
    finished: tuple[Path, str], work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*here(work, monkeypatch), "setting=image+caption"]
    monkeypatch.setattr(train.run, "train_and_test", lambda *_: pytest.fail("trained again"))
    assert called(monkeypatch, *arguments) == 0
    assert "finished before" in capsys.readouterr().out
    assert called(monkeypatch, "-m", *arguments) == 0
    out = capsys.readouterr().out
    assert "1 of 1 runs are finished already" in out and "trained in image+caption" in out
    assert called(monkeypatch, "-m", "seed=0,1", *arguments, "--list") == 0
    states = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert states == ["finished", "to", "2"]


def test_a_failing_run_does_not_stop_the_others(
    finished: tuple[Path, str], work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*here(work, monkeypatch), "training.stream=false", "training.examples=1000,0.5"]
    assert called(monkeypatch, "-m", *arguments, "runs=others") == 1
    out, err = capsys.readouterr()
    assert "failed: training.examples=1000" in out and "1 of 2 runs (1 failed), " in out
    assert "2 of 2 runs (1 failed), " in out and "trained in caption, tested in" in out
    assert one_line(err).startswith("train: 1 of 2 runs failed: model=uniter task=cardinality setting=caption seed=0 ")
    assert "training.examples=1000" in err and "0.5" not in err
    assert len({row["run"] for row in collect_results(work / "others")}) == 1
    assert job_list(expand(last_of([*arguments, "runs=others"]))).endswith("2 runs: 1 to do, 1 finished")
    shutil.rmtree(work / "others")


def test_few_shot_starts_from_the_one_run_that_fits(
    finished: tuple[Path, str], work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = "start={runs}/{model}-image+caption-{task}-s{seed}-*"
    arguments = [*here(work, monkeypatch)[:3], "setting=image", "model=uniter", pattern]
    job = with_start(settings(arguments))
    assert job.start == str(next(Path("my runs").glob("uniter-image+caption-*")))
    other = Path(f"{job.start}x")
    other.mkdir()
    with pytest.raises(ValueError, match=r"several runs fit; give one of my runs/uniter-image\+caption"):
        with_start(settings(arguments))
    other.rmdir()
    with pytest.raises(ValueError, match="no run fits; train it first"):
        with_start(settings([*arguments, "seed=3"]))
    assert job_list({"x": settings([*arguments, "seed=3"])}).startswith("no start  x")
    assert called(monkeypatch, *arguments, "seed=3") == 1
    assert "no run fits; train it first" in one_line(capsys.readouterr().err)


def test_a_setting_that_a_grid_has_narrows_it_to_those_runs() -> None:
    for consistency, count in (("true", 24), ("false", 24)):
        jobs = expand(["experiment=transfer", f"training.consistency={consistency}"])
        assert len(jobs) == count
        assert {job.training.consistency for job in jobs.values()} == {consistency == "true"}


def test_runs_are_listed_as_settings_are_typed() -> None:
    names = list(expand(["experiment=transfer", "task=cardinality", "setting=image", "seed=0"]))
    assert sum("training.consistency=true" in name for name in names) == 1
    assert not any("True" in name or "False" in name or "None" in name for name in names)


def test_an_experiment_without_m_says_how_many_runs_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("train.command.run_job", lambda config: [])
    assert called(monkeypatch, "experiment=transfer") == 0
    assert capsys.readouterr().out == "experiment=transfer: this is one run; -m trains all 48 of its grid\n"
    one = ["experiment=table2", "model=uniter", "task=cardinality", "setting=image", "seed=0"]
    for arguments in (one, ["model=uniter"], ["experiment=table2", "devices=2"]):
        assert called(monkeypatch, *arguments) == 0
        assert capsys.readouterr().out == ""


# Of each experiment the runs that are tried: those with this model, of the task and setting of the small dataset.
TRIED: dict[str, list[str]] = {
    "table2": ["model=visualbert", "setting=image", "seed=0"],
    "text_only": ["model=bert", "seed=0"],
    "subsets": ["model=roberta", "training.examples=0.25"],
    "frozen": ["model=lxmert", "setting=image"],
    "mixed": ["model=albef", "seed=2"],
    "volta": ["model=uniter", "setting=caption", "seed=0"],
    "transfer": ["setting=image", "training.consistency=true", "seed=0"],
    "few_shot": [
        "model=uniter",
        "start={runs}/{model}-image+caption-{task}-s{seed}-*",
        "setting=image",
        "seed=0",
        "training.epochs=1",
    ],
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs(
    name: str,
    finished: tuple[Path, str],
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*here(work, monkeypatch), f"experiment={name}", "task=cardinality", *TRIED[name]]
    if name == "few_shot":
        arguments.remove("training.steps=3")
    jobs = expand(arguments)
    assert len(jobs) == 1
    assert called(monkeypatch, "-m", *arguments) == 0
    assert "1 of 1 runs" in capsys.readouterr().out
    (job,) = jobs.values()
    rows = read_results(train.run.run_folder(with_start(job)))
    assert len(rows) == 2 * len(job.test_settings) and {row["experiment"] for row in rows} == {name}
    assert {row["setting"] for row in rows} == {job.setting}
    shutil.rmtree(Path("my runs") / rows[0]["name"])


FAILURES: dict[str, tuple[BaseException, int, str]] = {
    "memory": (torch.OutOfMemoryError("CUDA out of memory"), 1, "optimiser.batch_size=64: out of memory"),
    "ctrl-c in Lightning": (SystemExit(1), 130, "stopped; run the same command again to go on"),
    "disk": (OSError(28, "No space left on device", "x"), 1, "x: No space left on device"),
}


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("many", [[], ["-m"]], ids=["one", "many"])
def test_failures_have_their_line_and_code(
    case: str, many: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, code, message = FAILURES[case]

    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train.run, "run", breaks)
    assert called(monkeypatch, *many) == code
    out, err = capsys.readouterr()
    assert message in (out if many and code == 1 else err) and "Traceback" not in out + one_line(err)


def test_ctrl_c_stops_the_whole_sweep_in_one_line(work: Path) -> None:
    steps = ["training.steps=100000", "training.check_every=2"]
    line = [str(ROOT / "train.py"), *last_of(["-m", "seed=0,1", f"data={NAME}", "runs=stopped", *TINY, *steps])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    started: Any = subprocess.Popen(
        [sys.executable, *line],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    next(line for line in started.stdout if line.startswith("step "))
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=300)
    assert started.returncode == 130
    assert one_line(err) == "train: stopped; run the same command again to go on"
    assert len(list((work / "stopped").glob("*-s*"))) == 1  # the second was not begun
