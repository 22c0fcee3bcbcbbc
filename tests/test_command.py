"""`python -m travlr.generate` as a person meets it: what it writes, its refusals, its help."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import SETTINGS, command, config_of, hashes, write
from travlr import Cardinality, GenerateArguments, generate
from travlr.scene import SPLITS
from travlr.settings import in_one_line
from travlr.tasks import TASKS

C = "task=cardinality"


def test_generate_writes_the_same_dataset_as_python_and_nothing_else(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    code, out, _ = command("generate", *SETTINGS, cwd=work)
    assert code == 0 and os.listdir(work) == ["data"] and os.listdir(work / "data") == ["cardinality"]
    write(tmp_path / "expected", rows_per_shard=8000)
    assert hashes(work / "data" / "cardinality") == hashes(tmp_path / "expected")
    assert "100 examples" in out and "python -m travlr.audit data/cardinality" in out


def test_generate_sweep_continues_after_a_refused_job(tmp_path: Path) -> None:
    sizes = [setting for setting in SETTINGS if setting != C]
    code, _, err = command("generate", "-m", "task=cardinality,quantifiers", "seed=-1,0", *sizes, cwd=tmp_path)
    assert code == 2 and "seed=-1" in err
    assert sorted(path.parent.name for path in tmp_path.glob("data/*/dataset.json")) == ["cardinality", "quantifiers"]


def test_generate_sweeps_through_a_launcher(tmp_path: Path) -> None:
    sizes = [setting for setting in SETTINGS if setting != C]
    code, _, err = command(
        "generate", "-m", "hydra/launcher=joblib", "task=cardinality,spatiality", "workers=1", *sizes, cwd=tmp_path
    )
    assert code == 0, err
    assert all((tmp_path / "data" / task / "dataset.json").is_file() for task in ("cardinality", "spatiality"))


USAGE = {
    "no task": ([], "task="),
    "unknown task": (["task=spatial"], "cardinality"),
    "unknown setting": ([C, "sed=3"], "sed"),
    "no examples": ([C, *(f"count.{split}=0" for split in SPLITS)], "count"),
    "unknown colour": ([C, "world.colours=[red,mauve]"], "world.colours"),
    "null": ([C, "count.train=null"], "count.train=null"),
    "backwards": ([C, "numbers=[6,1]"], "numbers"),
    "does not fit": (["task=spatiality", "distractors=[1,99]"], "distractors"),
    "too many": (["task=spatiality", "count.train=100000000000000"], "count.train"),
    "an unknown option": (["--task=cardinality"], "task"),
}


@pytest.mark.parametrize("case", USAGE)
def test_generate_names_the_wrong_setting_in_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, name = USAGE[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["generate", *arguments])
    with pytest.raises(SystemExit) as caught:
        generate.command()
    err = capsys.readouterr().err
    assert caught.value.code == 2 and name in err.splitlines()[-1]
    assert case == "an unknown option" or len(err.splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_generate_refuses_a_file_as_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = command("generate", *SETTINGS, "out=file", cwd=tmp_path)
    assert code == 2 and err.startswith("generate: out=file: ") and len(err.splitlines()) == 1
    _, _, err = command("generate", *SETTINGS, "out=file", cwd=tmp_path, env={"HYDRA_FULL_ERROR": "1"})
    assert "Traceback" in err


def test_generate_help_names_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["generate", "--help"])
    with contextlib.suppress(SystemExit):
        generate.command()
    out = capsys.readouterr().out
    assert not any(tmp_path.iterdir())
    for task in TASKS.values():
        values: dict[str, Any] = task.Config().model_dump() | GenerateArguments().model_dump()
        for name, value in values.items():
            assert f"\n  {name}" in out or (isinstance(value, dict) and f"\n  {name}." in out), name


@pytest.mark.parametrize("task", TASKS)
def test_presets_are_different_configs(task: str) -> None:
    kind = TASKS[task].Config
    configs = [config_of(f"task={task}", f"preset={preset}") for preset in ("paper", *kind.presets)]
    assert configs[0] == kind() and len({config.model_dump_json() for config in configs}) == len(configs)


def test_presets_give_way_to_a_setting() -> None:
    assert config_of("task=cardinality", "preset=released", "held_out={circle: [2, 3]}").model_dump()["held_out"] == {
        "circle": (2, 3),
        "pentagon": (4, 6),
    }
    assert config_of("task=quantifiers", "preset=strict", "distractors=[3,9]").model_dump()["distractors"] == (3, 9)


def test_in_one_line_joins_all_wrong_settings() -> None:
    with pytest.raises(ValueError) as caught:
        Cardinality(seed=-1, world={"columns": 0})
    line = in_one_line(caught.value)
    assert "seed=-1" in line and "world.columns=0" in line and "\n" not in line
