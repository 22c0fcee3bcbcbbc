"""Make docs/results.md and docs/transfer.png from the runs in docs/results/.

    python scripts/make_results.py

A run is trained into that folder by `python train.py runs=docs/results ...`; of its files, settings.yaml, results.json
and curve.csv are committed. So a sweep with `runs=docs/results` trains what is missing, on any machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pandas as pd
import seaborn
from matplotlib import pyplot

from analysis.frames import read_runs
from analysis.tables.paper import published
from train.config import Run
from train.results.columns import TEST_SPLITS
from train.results.store import read_config
from train.results.tables import flat_settings, score_text, settings_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
CELL = ["task", "model", "setting"]
DEFAULTS = flat_settings(Run().model_dump())


def main() -> None:
    results = read_runs(DOCS / "results").results
    if results.empty:
        raise SystemExit("docs/results: has no finished run; train some with python train.py runs=docs/results ...")
    rows = own_columns(results)
    is_default, is_supervised = rows["preset"] == "default", rows["method"] == "supervised"
    of_uniter = rows[is_default & (rows["model"] == "uniter")]
    page = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (DOCS / "results.md.j2").read_text(encoding="utf-8")
    )
    parts = {
        "default": own_table(rows[is_supervised & is_default]),
        "strict": own_table(rows[is_supervised & ~is_default]),
        "transfer": other_modality_table(of_uniter),
        "paper": paper_table(),
        "runs": runs_table(rows),
        "hardware": hardware_list(rows),
    }
    (DOCS / "results.md").write_text(page.render(parts), encoding="utf-8")
    save_transfer_figure(of_uniter)


def own_columns(results: pd.DataFrame) -> pd.DataFrame:
    """Results with the preset of the dataset, the other modality (missing for image+caption), and the number of
    different unlabelled pairs that a run chooses from."""
    folders = {name: Path(read_config(DOCS / "results" / name)["data"]).name for name in results["name"].unique()}
    presets = results["name"].map(lambda name: "strict" if folders[name].endswith("-strict") else "default")
    other = results["setting"].map({"image": "caption", "caption": "image"})
    pairs = results.apply(unlabelled_pairs, axis=1)
    return results.assign(
        preset=presets, data=results["name"].map(folders), other=results["test_setting"] == other, pairs=pairs
    )


def unlabelled_pairs(row: pd.Series) -> str:
    if row["method"] not in ("consistency", "mismatched"):
        return ""
    number = json.loads(row["config"])["training"]["unlabelled"]
    return "new in every step" if number is None else f"{number:,}"


def spread(values: pd.Series) -> str:
    """The mean of several seeds, and the lowest and highest."""
    mean = score_text(values.mean())
    return mean if len(values) == 1 else f"{mean} [{score_text(values.min())}, {score_text(values.max())}]"


def own_table(rows: pd.DataFrame) -> str:
    """Scores in the setting of training."""
    own = rows[rows["own"]]
    if own.empty:
        return "(no runs yet)\n"
    values = {"F1": "macro_f1", "couples": "couples_right", "best unbound rule": "baseline_unbound"}
    lines = []
    for cell, of_cell in own.groupby(CELL, sort=False):
        line = dict(zip(("task", "model", "trained on"), cell, strict=True)) | {"seeds": of_cell["seed"].nunique()}
        for head, column in values.items():
            for split in TEST_SPLITS:
                of_split = of_cell.loc[of_cell["split"] == split, column]
                line[f"{head}, {split}"] = (
                    spread(of_split) if column != "baseline_unbound" else score_text(of_split.max())
                )
        lines.append(line)
    return format_table(pd.DataFrame(lines))


def other_modality_table(rows: pd.DataFrame) -> str:
    """Scores in the modality of training and in the other one, by method."""
    single = rows[rows["setting"].isin(["image", "caption"]) & (rows["own"] | rows["other"])]
    lines = []
    for (task, setting, method, pairs), cell in single.groupby(["task", "setting", "method", "pairs"], sort=False):
        line = {"task": task, "trained on": setting, "method": method, "pairs": pairs, "seeds": cell["seed"].nunique()}
        for head, chosen in (("own", cell["own"]), ("other", cell["other"])):
            for split in TEST_SPLITS:
                line[f"{head}, {split}"] = spread(cell.loc[chosen & (cell["split"] == split), "macro_f1"])
        lines.append(line)
    return format_table(pd.DataFrame(lines)) if lines else "(no runs yet)\n"


def paper_table() -> str:
    """Table 2 of the paper, in the setting of training, of pretrained models of base size."""
    table = published("table2")
    own = table[table["setting"] == table["test_setting"]]
    frame = own.pivot_table(index=["task", "model"], columns="setting", values="mean", sort=False).reset_index()
    return format_table(frame.map(lambda value: value if isinstance(value, str) else score_text(value)))


def runs_table(rows: pd.DataFrame) -> str:
    """Every run: its command, its scores, and what it took."""
    machines = list(dict.fromkeys(rows["hardware"]))
    lines = []
    for _, run in rows[rows["own"]].groupby("name", sort=True):
        first = run.iloc[0]
        scores = run.set_index("split")["macro_f1"]
        lines.append({
            "command": f"`{command_of(first)}`",
            "own setting": " / ".join(score_text(scores[split]) for split in TEST_SPLITS),
            "steps": f"{first['steps']:,}",
            "minutes": f"{first['train_seconds'] / 60:.1f}",
            "machine": "ABCDEFGH"[machines.index(first["hardware"])] + f", {first['precision']}",
            "date": first["created"][:10],
            "commit": first["commit"][:7],
        })  # fmt: skip
    return format_table(pd.DataFrame(lines))


def hardware_list(rows: pd.DataFrame) -> str:
    return "".join(
        f"- {letter}: {name}\n" for letter, name in zip("ABCDEFGH", dict.fromkeys(rows["hardware"]), strict=False)
    )


def command_of(row: pd.Series) -> str:
    """The command of a run: the settings that are not the defaults, and the folder of strict data."""
    settings = flat_settings(json.loads(row["config"]))
    changed = {name: value for name, value in settings.items() if name in DEFAULTS and value != DEFAULTS[name]}
    always = {name: settings[name] for name in ("task", "model", "setting", "seed")}
    data = {"data": f"data/{row['data']}"} if row["preset"] == "strict" else {}
    return "python train.py " + settings_text(always | changed | data).replace(", ", " ")


def format_table(frame: pd.DataFrame) -> str:
    return str(frame.to_markdown(index=False, disable_numparse=True)) + "\n"


def save_transfer_figure(rows: pd.DataFrame) -> None:
    """docs/transfer.png: scores in the other modality, out of distribution, with and without consistency."""
    whole = rows["pairs"].isin(["", "new in every step"])
    other = rows[rows["other"] & (rows["split"] == "test_ood") & whole]
    if other.empty:
        return
    other = other.assign(trained="trained on " + other["setting"].astype(str) + "s")
    grid = seaborn.catplot(
        other,
        kind="bar",
        x="task",
        y="macro_f1",
        hue="method",
        col="trained",
        errorbar=("pi", 100),
        height=3,
        aspect=1.4,
    )
    grid.set_titles("{col_name}").set_axis_labels("", "macro-F1 in the other modality")
    grid.savefig(DOCS / "transfer.png", dpi=110)
    pyplot.close("all")


if __name__ == "__main__":
    main()
