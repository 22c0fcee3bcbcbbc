"""Which settings make one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.config import Run
from train.fingerprint import fingerprint
from train.results.store import run_id, start_run


def same(first: Run, second: Run) -> bool:
    return run_id(fingerprint(first, "d")) == run_id(fingerprint(second, "d"))


def test_fingerprint_leaves_out_paths_and_devices() -> None:
    trainer = {"devices": 2, "strategy": "ddp", "logger": ["wandb"], "callbacks": ["module:Class"]}
    assert same(Run(), Run(runs="x", data="y", device="cpu", trainer=trainer))
    accumulates = Run(trainer={"accumulate_grad_batches": 2})
    for change in (Run(seed=1), Run(model="albef"), Run(precision="bf16"), accumulates):
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
