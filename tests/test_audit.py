"""The audit: sound datasets pass, and each kind of corruption fails the check that is for it."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as pillow

from render.captions.sentences import Captioner
from tests.helpers import command, one_line, write
from travlr import Cardinality, Comparison, Count, Image, Object, Quantifiers, Query, Spatiality, World
from travlr.audit.__main__ import main as audit_command
from travlr.audit.checks import GENERATED, audit, lower_bound
from travlr.audit.corpus import Check
from travlr.audit.rows import cells_of
from travlr.config import Config
from travlr.files import file_hash
from travlr.formats.columns import SCHEMA, content_digest, rows_digest, scene_of
from travlr.formats.manifest import MANIFEST
from travlr.scene import Scene
from travlr.tasks import TASKS, query_text, truth
from travlr.tasks.comparison import COMPARISONS
from travlr.tasks.quantifiers import QUANTIFIERS
from travlr.tasks.spatiality import RELATIONS

pytestmark = pytest.mark.usefixtures("tables_made_once")
FEW: dict[str, Any] = {"count": Count(train=200, validation=60, test_ind=60, test_ood=80), "image": Image(cell=8)}
CONFIGS: dict[str, Config] = {
    "spatiality": Spatiality(**FEW),
    "cardinality": Cardinality(**FEW),
    "quantifiers": Quantifiers(**FEW),
    "comparison": Comparison(**FEW),
}
MANY: dict[str, Any] = {"count": Count(train=1501, validation=751, test_ind=750, test_ood=100), "image": Image(cell=8)}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound dataset of each task, never changed."""
    folder = tmp_path_factory.mktemp("clean")
    for task, config in CONFIGS.items():
        write(folder / task, config, rows_per_shard=100)
    return folder


def failed(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if check.status == "FAIL"}


def check_of(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


# Sound datasets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", CONFIGS)
def test_audit_passes_a_sound_dataset(task: str, clean: Path) -> None:
    checks = audit(clean / task, workers=1)
    assert {check.status for check in checks} <= {"ok", "note"}
    assert check_of(checks, "answer").checked == check_of(checks, "image").checked == 400
    assert ("held-out numbers in scenes" in {check.name for check in checks}) == (task == "cardinality")


# Corruptions -------------------------------------------------------------------------------------------------------


def flip_answer(rows: Rows) -> None:
    rows[5]["answer"] = not rows[5]["answer"]


def swap_mentions(rows: Rows) -> None:
    objects = scene_of(rows[5]["objects"])
    rows[5]["caption"] = Captioner(World()).caption((objects[1], objects[0], *objects[2:]))


def move_object(rows: Rows) -> None:
    """In the caption and the objects column: a distractor goes to an empty cell."""
    objects = rows[5]["objects"]
    taken = {(o["row"], o["column"]) for o in objects}
    empty = next((r, c) for r in range(6) for c in range(6) if (r, c) not in taken)
    next(o for o in objects if not o["queried"]).update(row=empty[0], column=empty[1])
    rows[5]["caption"] = Captioner(World()).caption(scene_of(objects))


def cut_picture(rows: Rows) -> None:
    rows[5]["image"]["bytes"] = rows[5]["image"]["bytes"][:-40]


def swap_ids(rows: Rows) -> None:
    rows[5]["id"], rows[6]["id"] = rows[6]["id"], rows[5]["id"]


def swap_couples(rows: Rows) -> None:
    """The second examples of two couples, with the ids of their new places."""
    places = [(row["id"], row["image"]["path"]) for row in rows]
    rows[5], rows[7] = rows[7], rows[5]
    for row, (name, path) in zip(rows, places, strict=True):
        row["id"], row["image"]["path"] = name, path


def wrong_pair(rows: Rows) -> None:
    rows[5]["pair"][1] = "7"


def wrong_form(rows: Rows) -> None:
    rows[5]["query_form"] = rows[5]["query_form"].replace('"args": [', '"args": [7, ')


def unmarked(rows: Rows) -> None:
    next(o for o in rows[5]["objects"] if o["queried"])["queried"] = False


def null(rows: Rows) -> None:
    rows[5]["objects"] = None


def repeat(rows: Rows) -> None:
    """One row again, its objects in another order, in place of one with the same query, pair and answer."""
    others = {(row["query"], *row["pair"], row["answer"]): row for row in rows[20:]}
    row = next(row for row in rows[:20] if (row["query"], *row["pair"], row["answer"]) in others)
    other = others[row["query"], *row["pair"], row["answer"]]
    objects, picture = other["objects"][::-1], other["image"] | {"path": row["image"]["path"]}
    row.update(objects=objects, caption=Captioner(World()).caption(scene_of(objects)), image=picture)


ROWS: dict[Callable[[Rows], None], set[str]] = {
    flip_answer: {"answer", "couples", "balance by pair", "balance by query text"},
    swap_mentions: {"caption"},
    move_object: {"image"},
    cut_picture: {"image"},
    swap_ids: {"ids"},
    swap_couples: {"couples"},
    wrong_pair: {"pair"},
    wrong_form: {"query"},
    unmarked: {"queried"},
    repeat: {"duplicates"},
    null: {"rows", "content digest", "balance by pair", "balance by query text", "pair totals"},
}


def change_rows(folder: Path, split: str, change: Callable[[Rows], None]) -> None:
    """Change the rows of a split's first file, and make the manifest agree, so that only what they say can be wrong."""
    path = next(folder.glob(f"{split}-00000-*"))
    rows = pq.read_table(path).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    if change is null:
        return
    manifest = json.loads((folder / MANIFEST).read_text())
    sums = dict.fromkeys(manifest["splits"], 0)
    true = dict.fromkeys(manifest["splits"], 0)
    for file in manifest["files"]:
        table = pq.read_table(folder / file["name"])
        sums[file["split"]] += rows_digest(table)
        true[file["split"]] += sum(table["answer"].to_pylist())
        file.update(file_hash(folder / file["name"]))
    for split, counts in manifest["splits"].items():
        counts["true"] = true[split]
    digest = content_digest({split: n % (1 << 256) for split, n in sums.items()}, manifest["pixels"])
    (folder / MANIFEST).write_text(json.dumps(manifest | {"content_digest": digest}))


@pytest.mark.parametrize("change", ROWS)
def test_audit_finds_a_changed_row(change: Callable[[Rows], None], clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    change_rows(folder, "train", change)
    checks = audit(folder, workers=1)
    if change is null:
        assert {"files", "rows", GENERATED} <= failed(checks)
    else:
        assert failed(checks) == ROWS[change] | {GENERATED}
    assert change is repeat or "train row 5: " in check_of(checks, GENERATED).detail


def test_audit_finds_a_test_example_in_training(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    rows = pq.read_table(folder / "test_ood-00000-of-00001.parquet").to_pylist()

    def leak(train: Rows) -> None:
        for place, row in enumerate(rows[:2]):
            picture = row["image"] | {"path": train[place]["image"]["path"]}
            train[place] = row | {"id": train[place]["id"], "image": picture}

    change_rows(folder, "train", leak)
    leaks = {"held-out pairs", "held-out numbers in scenes", "held-out queries", "pairs", "query texts", "duplicates"}
    assert leaks <= failed(audit(folder, workers=1))


def test_audit_finds_a_shard_that_the_manifest_does_not_name(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    shutil.copy(folder / "train-00001-of-00002.parquet", folder / "train-00002-of-00003.parquet")
    checks = audit(folder, workers=1)
    assert failed(checks) == {"files"} and "train-00002-of-00003.parquet" in check_of(checks, "files").detail


def other_pairs(manifest: dict[str, Any]) -> None:
    manifest["held_out"]["pairs"].append(["circle", "3"])


def other_settings(manifest: dict[str, Any]) -> None:
    manifest["config"]["total_objects"] = [7, 8]


def other_world(manifest: dict[str, Any]) -> None:
    manifest["config"]["world"]["colours"] = ["red", "blue"]


def other_counts(manifest: dict[str, Any]) -> None:
    manifest["splits"]["train"]["true"] += 1


def other_digest(manifest: dict[str, Any]) -> None:
    manifest["content_digest"] = "0" * 64


MANIFESTS: dict[Callable[[dict[str, Any]], None], set[str]] = {
    other_pairs: {"manifest", "held-out pairs"},
    other_settings: {GENERATED},
    other_world: {"world", GENERATED},
    other_counts: {"rows"},
    other_digest: {"content digest"},
}


@pytest.mark.parametrize("change", MANIFESTS)
def test_audit_finds_a_changed_manifest(change: Callable[[dict[str, Any]], None], clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert MANIFESTS[change] <= failed(audit(folder, workers=1))


def test_audit_notes_pictures_that_are_compressed_otherwise(clean: Path, tmp_path: Path) -> None:
    def compress(rows: Rows) -> None:
        for row in rows:
            buffer = io.BytesIO()
            pillow.open(io.BytesIO(row["image"]["bytes"])).save(buffer, "PNG", compress_level=9)
            row["image"]["bytes"] = buffer.getvalue()

    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    change_rows(folder, "train", compress)
    checks = audit(folder, workers=2)
    assert not failed(checks) and "100 pictures" in check_of(checks, GENERATED).detail


# Shortcuts ---------------------------------------------------------------------------------------------------------

TOTAL, SET = "shortcut: query text and number of objects", "shortcut: set not asked about"


@pytest.mark.parametrize(
    ("config", "expected"),
    [(Cardinality(**MANY), set()), (Cardinality(preset="released", **MANY), {"held-out numbers in scenes", TOTAL}),
     (Quantifiers(**MANY), set()), (Quantifiers(preset="released", **MANY), {SET, f"{SET}, empty or not"})],
    ids=["cardinality", "cardinality as released", "quantifiers", "quantifiers as released"],
)  # fmt: skip
def test_audit_finds_the_shortcuts_of_the_released_generator(
    config: Config, expected: set[str], tmp_path: Path
) -> None:
    write(tmp_path / "d", config, rows_per_shard=8000)
    checks = audit(tmp_path / "d", workers=1)
    assert failed(checks) == expected
    if SET in expected:
        assert "accuracy 100.0%" in check_of(checks, SET).detail
    if config == Quantifiers(**MANY):
        assert check_of(checks, "shortcut: X without Y").status == "note"


def test_audit_lower_bound_passes_by_chance_once_in_a_thousand() -> None:
    assert 0.93 > lower_bound(100, 100) > 0.9
    assert lower_bound(10_400, 20_000) < 0.51 < lower_bound(10_450, 20_000)
    assert 0 <= lower_bound(0, 1) <= lower_bound(0.5, 1) < 0.1
    rng = np.random.default_rng(0)
    too_high = sum(lower_bound(float(k), 500) > 0.51 for k in rng.binomial(500, 0.51, 20_000))
    assert too_high / 20_000 < 0.003


# Answers -----------------------------------------------------------------------------------------------------------


def recount(query: Query, scene: Scene) -> tuple[bool, tuple[str, ...]] | None:
    task = TASKS[query.task]
    return task.recount(cells_of(scene), **task.by_name(query.args))


def test_recount_agrees_with_truth() -> None:
    chance = random.Random(3)
    world, agreed = World(colours=("red", "blue"), shapes=("star", "circle", "square"), columns=4, rows=4), 0
    attributes = [*world.colours, *world.shapes, *world.attributes("both")]
    for _ in range(1500):
        cells = chance.sample(range(16), chance.randint(1, 9))
        scene = tuple(
            Object(chance.choice(world.colours), chance.choice(world.shapes), "medium", *divmod(cell, 4))
            for cell in cells
        )
        first, second = chance.sample(attributes, 2)
        for query in (
            Query("spatiality", (first, chance.choice(list(RELATIONS)), second)),
            Query("cardinality", (chance.randint(1, 4), first)),
            Query("comparison", (chance.choice(list(COMPARISONS)), first, second)),
            Query("quantifiers", (chance.choice(QUANTIFIERS), first, second)),
        ):
            try:
                expected = truth(scene, query)
            except ValueError:
                with pytest.raises(ValueError, match="one each"):
                    recount(query, scene)
                continue
            assert recount(query, scene) == expected, query_text(query)
            agreed += 1
    assert agreed > 4500


# The command -------------------------------------------------------------------------------------------------------


def test_audit_command_prints_lines_and_a_status(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rules_not_fitted: None
) -> None:
    assert audit_command([str(clean / "spatiality")]) == 0
    assert "passed" in capsys.readouterr().out.splitlines()[-1]
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    change_rows(folder, "validation", flip_answer)
    assert audit_command([str(folder)]) == 1
    out = capsys.readouterr().out
    wrong = [line.removeprefix("FAIL").lstrip() for line in out.splitlines() if line.startswith("FAIL")]
    names = ("answer", "couples", "balance by pair", "balance by query text", GENERATED)
    assert all(any(line.startswith(name) for line in wrong) for name in names)
    assert len(wrong) == 5 and "cardinality-validation-00000005" in out
    code, out, err = command("audit", str(tmp_path))
    assert code == 2 and not out and "not a dataset" in one_line(err)
