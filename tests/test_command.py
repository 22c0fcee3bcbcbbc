"""`python -m travlr.generate` as a person meets it: settings, refusals of one line, progress, nothing left behind."""

from __future__ import annotations

import dataclasses
import os
import pty
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import SETTINGS, SMALL, command, hashes, last_of, one_line, start, write
from travlr import Cardinality, Comparison, Count, Image, Quantifiers, Spatiality, World, cli
from travlr.cli import UsageError
from travlr.generate import GenerateArguments, settings
from travlr.tasks import TASKS
from travlr.tasks.comparison import HeldOutComparisons
from travlr.tasks.quantifiers import HeldOutQuantified
from travlr.tasks.spatiality import HeldOutPositions

TINY = ["count.train=4", "count.validation=0", "count.test_ind=0", "count.test_ood=2", "image.cell=8"]


def test_it_writes_where_it_is_told_and_leaves_nothing_else(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    code, out, err = command("generate", *SETTINGS, cwd=work)
    assert (code, err) == (0, "")
    assert os.listdir(work) == ["data"] and os.listdir(work / "data") == ["cardinality"]  # no outputs/, no .hydra/
    write(tmp_path / "expected", rows_per_shard=8000)
    assert hashes(work / "data" / "cardinality") == hashes(tmp_path / "expected")
    assert "train            100 examples         50 true" in out
    assert "data/cardinality: content " in out and "python -m travlr.audit data/cardinality" in out


NAMES = [
    "two words",
    "a,b",
    "k=v",
    "(x)",
    "~tilde",
    "it's",
    'say "hi"',
    "back\\slash\\'",
    "${x}",
    "[1,2",
    "é{",
    "x:y #z",
]


@pytest.mark.parametrize("name", NAMES)
def test_paths_are_taken_to_the_letter(name: str, tmp_path: Path) -> None:
    _, job = settings([*SETTINGS, f"out={tmp_path / name}"])
    assert job.out == str(tmp_path / name)


def test_a_path_with_everything_works_with_workers(tmp_path: Path) -> None:
    name = "a b,c=d (e) ~f 'g' \\h"
    assert command("generate", *SETTINGS, f"out={name}", "workers=2", cwd=tmp_path)[0] == 0
    assert os.listdir(tmp_path) == [name]
    assert command("generate", *SETTINGS, f"out={name}", cwd=tmp_path)[1].startswith(f"{name} is complete")


def test_null_means_the_default_path() -> None:
    assert settings([*SETTINGS, "out=null"])[1].out is None


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^out=: is empty"):
        settings([*SETTINGS, "out="])


def test_settings_become_config_and_job() -> None:
    config, job = settings(
        [*SETTINGS, "held_out.circle=[2,3]", "world.colours=[red,blue]", "overwrite=true", "workers=3"]
    )
    world = dataclasses.replace(SMALL.world, colours=("red", "blue"))
    assert config == dataclasses.replace(SMALL, held_out={"circle": [2, 3]}, world=world)
    assert job == GenerateArguments(workers=3, overwrite=True)


# Wrong usage -------------------------------------------------------------------------------------------------------

C = "task=cardinality"
USAGE: dict[str, tuple[list[str], str]] = {
    "no task": ([], "task= is missing; choose one of spatiality, cardinality, quantifiers, comparison"),
    "unknown task": (["task=spatial"], "task=spatial: choose one of spatiality, cardinality"),
    "unknown preset": ([C, "preset=papre"], "preset=papre: choose one of paper, released, strict"),
    "negative seed": ([C, "seed=-1"], "seed=-1: must be at least 0"),
    "two seeds": ([C, "seed=0,1"], "seed=0,1: one value is needed; a list is written [a,b]"),
    "a list of each name is due": ([C, "held_out.circle=2"], "held_out.circle=2: must be a list of whole numbers"),
    "near miss": ([C, "sed=3"], "there is no setting 'sed'; did you mean seed?"),
    "near miss inside": ([C, "world.colums=3"], "there is no setting 'world.colums'; did you mean world.columns"),
    "another task's": ([C, "third_region=empty"], "there is no setting 'third_region'"),
    "no match": ([C, "zzz=3"], "there is no setting 'zzz'; --help lists them all"),
    "a name without its group": ([C, "test_od=3"], "there is no setting 'test_od'; did you mean count.test_ood"),
    "no number": ([C, "count.train=many"], "count.train=many: must be a whole number"),
    "below zero": ([C, "count.train=-1"], "count.train=-1: must be at least 0"),
    "no examples": (last_of([C, *TINY, "count.train=0", "count.test_ood=0"]), "count: every split is empty"),
    "no value": ([C, "seed="], "seed=: must be a whole number"),
    "null": ([C, "seed=null"], "seed=null: must be a whole number"),
    "question marks for a path": ([C, "out=???"], "'out=???': its value cannot be read"),
    "question marks": ([C, "seed=???"], "'seed=???': its value cannot be read"),
    "a list is due": ([C, "world.colours=red"], "world.colours=red: must be a list of words"),
    "a list of lists is due": (
        ["task=spatiality", "held_out.columns=[A,B]"],
        "held_out.columns=[A,B]: must be a list of lists of words",
    ),
    "a number in a list of lists": (
        ["task=spatiality", "held_out.rows=[[x,y]]"],
        "held_out.rows=[[x,y]]: must be a list of lists of whole ",
    ),
    "a group for a path": ([C, "out.x=3"], "out={x:3}: must be a word or null"),
    "other letters without quotes": ([C, "world.colours=[röt]"], 'and "" around words with other letters'),
    "unbalanced brackets": (
        [C, "numbers=[1,2"],
        "'numbers=[1,2': its value cannot be read; write a word, a number or a",
    ),
    "stray quote": ([C, "scope=it's"], "its value cannot be read"),
    "two lines": ([C, "seed=1\n2"], "its value cannot be read"),
    "a group": ([C, "count=3"], "count=3: is a group of settings; choose from count.train, count.validation"),
    "a group of names": ([C, "held_out=3"], "held_out"),
    "unknown colour": ([C, "world.colours=[red,mauve]"], "world.colours=mauve: choose from red, blue"),
    "unknown choice": ([C, "scope=all"], "scope=all: choose one of scene, queried"),
    "unknown format": ([C, "format=zip"], "format=zip: choose one of parquet, imagefolder, webdataset, original"),
    "workers": ([C, "workers=many"], "workers=many: must be a whole number of 0 or more, or ray"),
    "backwards": ([C, "numbers=[6,1]"], "numbers=[6, 1]: needs [lowest, highest]"),
    "does not fit": (["task=spatiality", "distractors=[1,99]"], "enlarge the grid or lower the ranges"),
    "too many": (last_of(["task=spatiality", *TINY, "count.train=100000000000000"]), "count.train=100000000000000: "),
    "twice": ([C, "seed=0", "workers=1", "seed=1"], "seed: given twice, as seed=0 and seed=1"),
    "two presets": ([C, "preset=paper", "+preset=released"], "preset: given twice"),
    "columns": ([C, "world.columns=27"], "world.columns=27: must be 1 to 26"),
    "too small": ([C, "image.cell=7"], "image.cell=7: must be at least 8 "),
    "hundreds of digits": ([C, "count.train=-" + "9" * 400], "must be at least 0"),
    "no bool": ([C, "overwrite=maybe"], "overwrite=maybe: must be true or false"),
    "no setting": (["cardinality"], "'cardinality' is not a setting; write it as name=value (see --help)"),
    "an option": (["--task=cardinality"], "'--task=cardinality' is not a setting"),
    "hydra's": ([C, "hydra.run.dir=x"], "'hydra.run.dir=x' is not a setting"),
    "hydra's grammar": ([C, "+seed=3"], "'+seed=3' is not a setting"),
    "hydra's sweep": ([C, "seed=1,2"], "seed"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_one_line_that_says_what_would_be_right(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from travlr import generate

    arguments, message = USAGE[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["generate", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process goes on
    monkeypatch.setattr(cli, "without_pandas", lambda: None)
    with pytest.raises(SystemExit) as caught:
        cli.run("generate", generate.main)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert one_line(err).startswith("generate: ") and message in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([C, "sed=3"], 2, "generate: there is no setting 'sed'; did you mean seed?"),
        ([*SETTINGS, "out=file"], 1, "generate: file: is a file; name a folder"),
    ],
)
def test_the_process_ends_with_its_code(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert command("generate", *arguments, cwd=tmp_path) == (code, "", message + "\n")


def failures() -> dict[str, tuple[BaseException, int, str]]:
    return {
        "a file": (PermissionError(13, "Permission denied", "d/x"), 1, "x: d/x: Permission denied; mend it and run"),
        "no file": (OSError(28, "No space left on device"), 1, "x: output: No space left on device; mend it and run"),
        "value": (ValueError("d: is damaged"), 1, "x: d: is damaged"),
        "memory": (MemoryError(), 1, "x: out of memory; use fewer workers="),
        "interrupt": (KeyboardInterrupt(), 130, "x: stopped; run the same command again to go on"),
        "usage": (cli.UsageError("no"), 2, "x: no"),
    }


@pytest.mark.parametrize("case", failures())
def test_every_failure_has_its_line_and_code(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, code, message = failures()[case]

    def main(_: list[str]) -> int:
        raise error

    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        cli.run("x", main)
    assert caught.value.code == code
    assert one_line(capsys.readouterr().err).startswith(message)


# From Python ---------------------------------------------------------------------------------------------------------

WRONG_TYPES: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
    "seed": (lambda value: Cardinality(seed=value), ["abc", 1.5, None, True, np.int64(3), [1]]),
    "query_by": (lambda value: Comparison(query_by=value), [None, 3, ["shape"]]),
    "count.train": (lambda value: Count(train=value), ["8", 1.0, None, True]),
    "image.cell": (lambda value: Image(cell=value), [64.0, "64", None]),
    "image.small": (lambda value: Image(small=value), ["0.3", None, True]),
    "world.columns": (lambda value: World(columns=value), ["6", 6.0, None]),
    "world.colours": (lambda value: World(colours=value), ["red", [1, 2], None, {"red": 1}, [["red"]]]),
    "numbers": (lambda value: Quantifiers(numbers=value), [5, "15", [1, "5"], [1, 5.0], None]),
    "distractors": (lambda value: Spatiality(distractors=value), [1, None]),
    "world": (lambda value: Spatiality(world=value), [None, 6, {"columns": 6}]),
    "count": (lambda value: Cardinality(count=value), [None, 100]),
    "held_out": (lambda value: Cardinality(held_out=value), [None, {"circle": 3}, {3: [1, 2]}, [["circle", 1]]]),
    "held_out.columns": (lambda value: HeldOutPositions(columns=value), ["AB", ["AB"], [[1, 2]]]),
    "held_out.objects": (lambda value: HeldOutPositions(objects=value), ["0.2", None]),
    "held_out.differences_above": (lambda value: HeldOutComparisons(differences_above=value), [None, 3.0]),
    "held_out.attributes": (lambda value: HeldOutQuantified(attributes=value), ["star", [["star", 3]]]),
    "workers": (lambda value: GenerateArguments(workers=value), ["2", 1.5, None, True]),
    "out": (lambda value: GenerateArguments(out=value), [3, True]),
    "overwrite": (lambda value: GenerateArguments(overwrite=value), [1, "true", None]),
}


def test_another_default_of_an_inherited_setting_has_its_rules() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other(Cardinality):
        seed: int = 3
        query_by: str = "both"

    assert Other().seed == 3
    for wrong, message in (
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"query_by": "size"}, "choose one of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            Other(**wrong)


@pytest.mark.parametrize("setting", WRONG_TYPES)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_setting(setting: str) -> None:
    make, values = WRONG_TYPES[setting]
    for value in values:
        with pytest.raises(ValueError, match=rf"^{re.escape(setting)}=.*: must be ") as caught:
            make(value)
        one_line(str(caught.value))


def test_lists_tuples_and_whole_numbers_are_taken_for_one_another(tmp_path: Path) -> None:
    config = Cardinality(numbers=(1, 6), world=World(colours=["red", "blue"]), image=Image(large=1))  # type: ignore[arg-type]
    assert config.world == World(colours=("red", "blue")) and list(config.numbers) == [1, 6]
    assert GenerateArguments(out=tmp_path).out == str(tmp_path)  # type: ignore[arg-type]


# Help, progress ------------------------------------------------------------------------------------------------------


def names_in(values: Any, prefix: str) -> Iterator[str]:
    """The settings of a dataclass as they are written on the command line."""
    for name, value in vars(values).items():
        if dataclasses.is_dataclass(value):
            yield from names_in(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_help_names_every_setting(tmp_path: Path) -> None:
    code, out, err = command("generate", "--help", cwd=tmp_path)
    assert (code, err) == (0, "") and not any(tmp_path.iterdir())
    defaults = GenerateArguments(), *(task.Config() for task in TASKS.values())
    for name in {name for values in defaults for name in names_in(values, "")} - {"task"}:
        assert f"\n  {name}=" in out, name
    assert all(f"task={task}" in out for task in TASKS) and "preset=" in out


def test_progress_is_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    _, out, err = command("generate", *SETTINGS, "out=d", "workers=1", cwd=tmp_path)
    assert err == "" and "\r" not in out and "\x1b" not in out
    assert out.splitlines()[0].startswith("260 of 260 examples, ") and "/s, 0:00 left" in out


def test_progress_is_a_bar_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start("generate", *SETTINGS, "out=d", "workers=1", cwd=tmp_path, stderr=theirs)
    os.close(theirs)
    out, _ = process.communicate(timeout=300)
    shown = read_all(ours)
    assert process.returncode == 0 and "examples, " not in out
    assert "[" + "." * 30 + "] 0 of 260 examples" in shown
    assert shown.count("\r[") == 4 and "\r[" + "#" * 30 + "] 260 of 260 examples, " in shown
    assert shown.endswith("\r\n")


def read_all(terminal: int) -> str:
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            os.close(terminal)
            return shown.decode()


def test_a_reader_that_goes_away_is_told_in_one_line(tmp_path: Path) -> None:
    process: Any = start("generate", "--help", cwd=tmp_path)
    process.stdout.close()
    assert process.wait(300) == 1
    assert process.stderr.read() == "generate: stopped, as its output was closed; run the same command again to go on\n"


@pytest.mark.parametrize("task", TASKS)
def test_every_preset_of_a_task_composes(task: str) -> None:
    for preset, changes in {"paper": {}, **TASKS[task].presets}.items():
        config, _ = settings([f"task={task}", f"preset={preset}"])
        assert (config == TASKS[task].Config()) == (not changes)


@pytest.mark.parametrize("task", TASKS)
def test_yaml_and_python_defaults_are_the_same(task: str) -> None:
    assert settings([f"task={task}"])[0] == TASKS[task].Config()


def test_the_released_preset_sets_every_released_way() -> None:
    cardinality = vars(settings(["task=cardinality", "preset=released"])[0])
    assert (cardinality["scope"], cardinality["total"]) == ("queried", "released")
    assert cardinality["held_out"] == {"pentagon": [4, 6]}
    quantifiers = vars(settings(["task=quantifiers", "preset=released"])[0])
    assert (quantifiers["third_region"], quantifiers["total"]) == ("empty", "released")
