"""Which settings make one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import write
from train.config import Run
from train.fingerprint import fingerprint
from train.results.store import run_id, start_run
from train.run import run_folder


def same(first: Run, second: Run) -> bool:
    return run_id(fingerprint(first, "d")) == run_id(fingerprint(second, "d"))


def test_fingerprint_leaves_out_paths_and_devices() -> None:
    elsewhere = {"runs": "x", "data": "y", "experiment": "z", "device": "cpu", "devices": 2, "strategy": "ddp"}
    assert same(Run(), Run(**elsewhere, logger=["wandb"]))
    for change in (Run(seed=1), Run(model="albef"), Run(precision="bf16")):
        assert not same(Run(), change)
    assert fingerprint(Run(), "d") != fingerprint(Run(), "e")


def test_fingerprint_names_files_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        Path(name).write_text(text)
    assert same(Run(pretrained="a"), Run(pretrained=f"{tmp_path}/b")) and not same(
        Run(pretrained="a"), Run(pretrained="c")
    )
    assert not same(Run(pretrained="some/hub-name"), Run(pretrained="some/other"))


@pytest.mark.parametrize("name", ["preprocessor_config.json", "tokenizer.json", "vocab.txt"])
def test_fingerprint_includes_files_beside_weights(name: str, tmp_path: Path) -> None:
    for folder, text in (("a", "1"), ("b", "1"), ("c", "2"), ("none", None)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "weights.pt").write_text("weights")
        (tmp_path / folder / "unread.txt").write_text(folder)
        if text is not None:
            (tmp_path / folder / name).write_text(text)
    a, b, c, none = (Run(pretrained=f"{tmp_path}/{folder}/weights.pt") for folder in ("a", "b", "c", "none"))
    assert same(a, b) and not same(a, c) and not same(a, none)


def test_fingerprint_names_start_by_its_run(tmp_path: Path) -> None:
    first, other = (start_run(tmp_path, fingerprint(Run(seed=seed), "d")) for seed in (0, 1))
    assert fingerprint(Run(start=str(first)), "d")["start"] == run_id(fingerprint(Run(), "d"))
    assert not same(Run(start=str(first)), Run(start=str(other)))
    with pytest.raises(ValueError, match="not a run"):
        fingerprint(Run(start=str(tmp_path / "none")), "d")


def test_run_folder_is_that_of_the_run(tmp_path: Path) -> None:
    run = Run(data=str(tmp_path / "d"), runs=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match="there is no such folder"):
        run_folder(run)
    manifest, _ = write(tmp_path / "d")
    assert run_folder(run) == start_run(tmp_path / "runs", fingerprint(run, manifest["content_digest"]))
