"""Which runs are the same, wherever their files lie and however they are spelt."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.helpers import write
from train.config import ARCHITECTURES, RegionSettings, Run, Training
from train.fingerprint import fingerprint, run_folder
from train.results.store import run_id, start_run
from travlr.files import path_digest


def same(first: Run, second: Run) -> bool:
    return run_id(fingerprint(first)) == run_id(fingerprint(second))


def test_where_a_run_lies_and_runs_is_no_part_of_it() -> None:
    elsewhere = {
        "runs": "x",
        "data": "y",
        "audit": False,
        "experiment": "z",
        "device": "cpu",
        "devices": 2,
        "strategy": "ddp",
    }
    assert same(Run(), Run(**elsewhere, logger=["wandb"]))  # type: ignore[arg-type]
    for change in (replace(Run(), seed=1), replace(Run(), model="albef"), replace(Run(), precision="bf16")):
        assert not same(Run(), change)
    assert set(fingerprint(Run(), dataset="d")) == {f.name for f in fields(Run)} - {*elsewhere, "logger"} | {
        "dataset",
        "inputs",
    }


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_context_auto_is_the_context_that_the_model_is_given(model: str) -> None:
    none, auto, whole = (
        Run(model=model, regions=RegionSettings(context=c)) for c in ("none", "auto", "receptive_field")
    )
    assert same(auto, whole if model == "visualbert" else none) and not same(none, whole)


def test_the_vocabulary_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(Run())
    monkeypatch.setattr("train.data.text.SPECIAL", ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[NEW]"))
    assert fingerprint(Run())["inputs"] != before["inputs"]


@pytest.mark.parametrize("name", ["pretrained", "tokenizer", "regions.file"])
def test_files_count_by_content(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(place: str) -> Run:
        if name == "regions.file":
            return Run(regions=RegionSettings(source="file", file=place), training=Training(stream=False))
        return Run(**{name: place})  # type: ignore[arg-type]

    for folder, text in (("a", "1"), ("b", "1"), ("c", "2")):
        Path(folder, "inner").mkdir(parents=True)
        Path(folder, "inner", "x.npz").write_text(text)
    for inner in ("inner/x.npz", ""):
        first = run(os.path.join("a", inner))
        for spelt in (f"./a/{inner}", f"{tmp_path}/a/{inner}", f"c/../a/{inner}", f"b/{inner}"):
            assert same(first, run(spelt)), spelt
        assert not same(first, run(f"c/{inner}"))
    Path("a/inner/x.npz").rename("a/inner/y.npz")
    assert not same(run("a"), run("b"))
    assert fingerprint(run("some/hub-name")) != fingerprint(run("some/other"))
    before = fingerprint(run("b/inner/x.npz"))
    Path("b/inner/x.npz").write_text("3 now")
    assert fingerprint(run("b/inner/x.npz")) != before


def test_a_file_s_content_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert path_digest(str(tmp_path / "x")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert path_digest("not/there") == "not/there" and path_digest(None) is None


def test_a_start_counts_by_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, other = (start_run(Path("runs"), fingerprint(Run(seed=seed), dataset="d")) for seed in (0, 1))
    start = Run(start=str(first))
    assert fingerprint(start)["start"] == run_id(fingerprint(Run(), dataset="d"))
    assert same(start, Run(start=str(first.resolve()))) and not same(start, Run(start=str(other)))
    Path("runs").rename("elsewhere")
    assert same(Run(start=f"elsewhere/{first.name}"), Run(start=f"./elsewhere/{first.name}/"))
    with pytest.raises(ValueError, match=rf"^start=runs/{first.name}: no config.json, so not a run"):
        fingerprint(start)


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    run = Run(data=str(tmp_path / "d"), runs=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match="there is no such folder"):
        run_folder(run)
    manifest, _ = write(tmp_path / "d")
    assert run_folder(run) == start_run(tmp_path / "runs", fingerprint(run, dataset=manifest["content_digest"]))
