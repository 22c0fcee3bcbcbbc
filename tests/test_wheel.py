"""A wheel holds the whole project: every command runs from it, in a folder without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import ROOT

PACKAGES = ("analysis", "conf", "render", "splits", "train", "travlr")
NO_FILES = ("__pycache__", ".pyc", ".ipynb_checkpoints")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of a wheel, made without the network."""
    base = tmp_path_factory.mktemp("wheel")
    run(base, "-m", "hatchling", "build", "-t", "wheel", "-d", str(base / "dist"), cwd=ROOT)
    (wheel,) = (base / "dist").glob("*.whl")
    run(base, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(base / "site"), str(wheel))
    with zipfile.ZipFile(wheel) as archive:
        (base / "names.txt").write_text("\n".join(archive.namelist()))
    return base


def run(base: Path, *arguments: str, cwd: Path | None = None) -> str:
    """Run Python with the installed packages before all others; what it prints. Fails where it does."""
    settings = {
        "PYTHONPATH": str(base / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_NO_INDEX": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_wheel_has_every_file(installed: Path) -> None:
    names = {name for name in (installed / "names.txt").read_text().splitlines() if ".dist-info/" not in name}
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    due = {path.relative_to(ROOT).as_posix() for path in paths}
    assert names == {name for name in due if not any(part in name for part in NO_FILES)} | {"travlr_taskset.py"}


def test_commands_run_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        return run(installed, "-m", *arguments, cwd=tmp_path)

    code = "import analysis, render, splits, train, travlr; print(travlr.__file__)"
    assert run(installed, "-c", code, cwd=tmp_path).startswith(str(installed))
    counts = [f"count.{split}=20" for split in ("train", "validation", "test_ind", "test_ood")]
    command("travlr.generate", "task=cardinality", "out=d", "image.cell=8", "workers=1", *counts)
    tiny = ("size=tiny", "training.steps=2", "training.check_every=2", "optimiser.batch_size=8", "device=cpu")
    one_job = ("-m", "experiment=text_only", "model=bert", "task=cardinality", "seed=0")  # a file of conf/
    with ThreadPoolExecutor(2) as pool:
        of_data = [("travlr.audit", "d"), ("travlr.browse", "d"), ("travlr.convert", "d", "e", "format=trl")]
        of_data.append(("travlr.publish", "d", "repo=d"))
        jobs = [("train", *one_job, "data=d", *tiny), *of_data, ("travlr.baselines", "d")]
        assert "FAIL" not in "".join(pool.map(lambda job: command(*job), jobs))
        (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/results.json"))
        ask = ("train.ask", f"model=runs/{folder.name}", "data=d", "limit=4", "split=test_ind")
        of_runs = [ask, ("analysis.report", "runs"), ("travlr.publish", f"runs/{folder.name}", "repo=run")]
        list(pool.map(lambda job: command(*job), of_runs))
    assert list(tmp_path.rglob("report.html"))
