"""The audit: sound datasets pass, each kind of damage fails the check that is for it and no other, nothing crashes."""

from __future__ import annotations

import hashlib
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
from render.text import parse_caption
from tests.helpers import called, command, one_line, write
from travlr import Cardinality, Comparison, Count, Image, Object, Quantifiers, Query, Spatiality, World, cli
from travlr.audit.__main__ import main
from travlr.audit.checks import audit, lower_bound
from travlr.audit.examine import GENERATED
from travlr.audit.pictures import inked_cells
from travlr.audit.report import Check
from travlr.audit.rows import recount
from travlr.columns import SCHEMA, content_digest, rows_digest
from travlr.config import Config
from travlr.files import hashed
from travlr.manifest import MANIFEST, UNFINISHED
from travlr.tasks import parse_query, query_text, truth
from travlr.tasks.comparison import COMPARISONS
from travlr.tasks.quantifiers import QUANTIFIERS
from travlr.tasks.spatiality import RELATIONS

pytestmark = pytest.mark.usefixtures("tables_made_once")
FEW: dict[str, Any] = {"count": Count(200, 60, 60, 80), "image": Image(cell=8)}
CONFIGS: dict[str, Config] = {
    "spatiality": Spatiality(**FEW),
    "cardinality": Cardinality(**FEW),
    "quantifiers": Quantifiers(**FEW),
    "comparison": Comparison(**FEW),
}
MANY: dict[str, Any] = {"count": Count(1501, 751, 750, 100), "image": Image(cell=8)}
MORE = MANY | {"count": Count(3001, 1501, 1500, 100)}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound dataset of each task, never changed."""
    folder = tmp_path_factory.mktemp("clean")
    for task, config in CONFIGS.items():
        write(folder / task, config, rows_per_shard=100)
    return folder


def failed(folder: Path) -> set[str]:
    """The independent checks that fail; those that make the dataset again find every change."""
    return independent(audit(folder, workers=1))


def independent(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if check.status == "FAIL"} - {GENERATED, "manifest"}


def check_of(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def forge(folder: Path, split: str, change: Callable[[Rows], None]) -> None:
    """Change the rows of a split's first file, and make the manifest agree, so that only what they say can be wrong."""
    path = folder / f"{split}-00000-of-{len(list(folder.glob(f'{split}-*'))):05d}.parquet"
    rows = pq.read_table(path).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    mend(folder)


def mend(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    sums = dict.fromkeys(manifest["splits"], 0)
    true = dict.fromkeys(manifest["splits"], 0)
    for file in manifest["files"]:
        table = pq.read_table(folder / file["name"])
        total, answers = rows_digest(table), sum(table["answer"].to_pylist())
        sums[file["split"]] += total
        true[file["split"]] += answers
        file.update(hashed(folder / file["name"]))
    for split, counts in manifest["splits"].items():
        counts["true"] = true[split]
    digest = content_digest({split: n % (1 << 256) for split, n in sums.items()}, manifest["pixels"])
    put(folder, {**manifest, "content_digest": digest})


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text())


def put(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest))


# Sound datasets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", CONFIGS)
def test_a_sound_dataset_passes_every_check(task: str, clean: Path) -> None:
    checks = audit(clean / task, workers=1)
    assert {check.status for check in checks} <= {"ok", "note"}
    assert check_of(checks, "answer").checked == check_of(checks, "image").checked == 400
    assert ("held-out numbers in scenes" in {check.name for check in checks}) == (task == "cardinality")


def test_other_worlds_pass(tmp_path: Path) -> None:
    world = World(("red", "pink", "black"), ("star", "trapezium", "circle"), ("small", "large"), columns=9, rows=5)
    few: dict[str, Any] = {"count": Count(101, 51, 33, 41), "world": world}
    write(tmp_path / "s", Spatiality(**few, query_by="shape", image=Image(cell=9), distractors=[0, 4]))
    write(tmp_path / "q", Quantifiers(**few, query_by="both", image=Image(cell=14)))
    write(tmp_path / "c", Comparison(**few, query_by="colour", numbers=[1, 6]))
    for name in "sqc":
        assert not failed(tmp_path / name)


def test_many_workers_find_the_same(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "quantifiers", tmp_path / "d")
    for split in ("train", "validation"):
        forge(folder, split, wrong_pair)
    assert audit(folder, workers=1) == audit(folder, workers=3)


def test_pictures_compressed_otherwise_are_noted_and_other_pixels_fail(clean: Path, tmp_path: Path) -> None:
    def compress(rows: Rows) -> None:
        for row in rows:
            buffer = io.BytesIO()
            pillow.open(io.BytesIO(row["image"]["bytes"])).save(buffer, "PNG", compress_level=9)
            row["image"]["bytes"] = buffer.getvalue()

    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    forge(folder, "train", compress)
    checks = audit(folder, workers=1)
    assert not [check for check in checks if check.status == "FAIL"]
    assert "100 pictures have the same pixels" in check_of(checks, GENERATED).detail


# Forged rows -------------------------------------------------------------------------------------------------------


def flip_answer(rows: Rows) -> None:
    rows[5]["answer"] = not rows[5]["answer"]


def swap_mentions(rows: Rows) -> None:
    objects = rows[5]["objects"]
    rows[5]["caption"] = Captioner(World()).caption(scene_of([objects[1], objects[0], *objects[2:]]))


def swap_images(rows: Rows) -> None:
    first, second = rows[5]["image"], rows[6]["image"]
    first["bytes"], second["bytes"] = second["bytes"], first["bytes"]


def say_size(rows: Rows) -> None:
    rows[5]["caption"] = rows[5]["caption"].replace(" is a ", " is a medium ").replace(" is an ", " is a medium ")


def move_object(rows: Rows) -> None:
    """In the objects column alone: a distractor goes to an empty cell."""
    moved, cell = distractor_and_empty_cell(rows[5])
    moved["row"], moved["column"] = cell


def move_object_and_caption(rows: Rows) -> None:
    move_object(rows)
    rows[5]["caption"] = Captioner(World()).caption(scene_of(rows[5]["objects"]))


def distractor_and_empty_cell(row: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, int]]:
    taken = {(o["row"], o["column"]) for o in row["objects"]}
    empty = next((r, c) for r in range(6) for c in range(6) if (r, c) not in taken)
    return next(o for o in row["objects"] if not o["queried"]), empty


def move_outside(rows: Rows) -> None:
    distractor_and_empty_cell(rows[5])[0]["column"] = 6


def swap_ids(rows: Rows) -> None:
    rows[5]["id"], rows[6]["id"] = rows[6]["id"], rows[5]["id"]


def wrong_task(rows: Rows) -> None:
    rows[5]["task"] = "comparison"


def wrong_pair(rows: Rows) -> None:
    rows[5]["pair"][1] = "7"


def wrong_form(rows: Rows) -> None:
    rows[5]["query_form"] = rows[5]["query_form"].replace('"args": [', '"args": [7, ')


def unmarked(rows: Rows) -> None:
    next(o for o in rows[5]["objects"] if o["queried"])["queried"] = False


def no_picture(rows: Rows) -> None:
    rows[5]["image"]["bytes"] = rows[5]["image"]["bytes"][:-40]


def repeat(rows: Rows) -> None:
    """One row again, its objects in another order, in place of one with the same query, pair and answer."""
    kept = {(row["query"], *row["pair"], row["answer"]): row for row in rows[20:]}
    for row in rows[:20]:
        if other := kept.get((row["query"], *row["pair"], row["answer"])):
            objects = other["objects"][::-1]
            caption = Captioner(World()).caption(scene_of(objects))
            picture = other["image"] | {"path": row["image"]["path"]}
            row.update(objects=objects, caption=caption, image=picture)
            return
    raise AssertionError("no two rows of one query, pair and answer")


def scene_of(objects: Rows) -> tuple[Object, ...]:
    return tuple(Object(**o) for o in objects)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (flip_answer, {"answer", "balance by pair", "balance by query text"}),
        (swap_mentions, {"caption"}),
        (say_size, {"caption"}),
        (swap_images, {"image"}),
        (move_object, {"caption", "image"}),
        (move_object_and_caption, {"image"}),
        (move_outside, {"caption", "image"}),
        (swap_ids, {"ids"}),
        (wrong_task, {"ids"}),
        (wrong_pair, {"pair"}),
        (wrong_form, {"query"}),
        (unmarked, {"queried"}),
        (no_picture, {"image"}),
        (repeat, {"duplicates"}),
    ],
)
def test_a_forged_row_fails_the_check_for_it(
    change: Callable[[Rows], None], expected: set[str], clean: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    forge(folder, "train", change)
    checks = audit(folder, workers=1)
    assert independent(checks) == expected and check_of(checks, GENERATED).status == "FAIL"
    if len(expected) == 1 and change is not repeat:
        assert (
            "train" in check_of(checks, *expected).detail
            and "cardinality-train-0000000" in check_of(checks, *expected).detail
        )


@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("caption", "A red circle.", "caption"),
        ("caption", "", "caption"),
        ("query", "Is there a circle?", "query"),
        ("query_form", "[1, 2", "query"),
        ("query_form", '{"task": "spatiality", "args": 5}', "query"),
        ("pair", [], "pair"),
        ("objects", [], "caption"),
        ("answer", None, "columns"),
        ("objects", None, "columns"),
        ("pair", ["circle", None], "columns"),
        ("image", {"bytes": b"GIF89a", "path": "x"}, "image"),
        ("image", {"bytes": b"", "path": ""}, "image"),
        ("image", {"bytes": None, "path": "x"}, "columns"),
    ],
)
def test_whatever_a_row_holds_is_reported(column: str, value: Any, check: str, clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    path = folder / "train-00000-of-00002.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[7][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    assert {check, "files"} <= failed(folder)


def test_a_moved_object_makes_a_spatial_query_void(clean: Path, tmp_path: Path) -> None:
    def repaint(rows: Rows) -> None:
        row = rows[5]
        target = next(o for o in row["objects"] if o["queried"])
        target["colour"] = next(c for c in World().colours if c not in {o["colour"] for o in row["objects"]})
        row["caption"] = Captioner(World()).caption(scene_of(row["objects"]))

    folder = shutil.copytree(clean / "spatiality", tmp_path / "d")
    forge(folder, "train", repaint)
    assert failed(folder) >= {"image", "queried", "answer"}


def test_one_example_in_two_splits(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    rows = pq.read_table(folder / "train-00000-of-00002.parquet").to_pylist()

    def take_one(others: Rows) -> None:
        for other in others:
            for row in rows:
                if (row["query"], row["pair"], row["answer"]) == (other["query"], other["pair"], other["answer"]):
                    other.update(row | {"id": other["id"], "image": row["image"] | {"path": other["image"]["path"]}})
                    return

    forge(folder, "test_ind", take_one)
    checks = audit(folder, workers=1)
    assert independent(checks) == {"duplicates"}
    assert "test_ind" in check_of(checks, "duplicates").detail and "train" in check_of(checks, "duplicates").detail


# Held-out pairs ----------------------------------------------------------------------------------------------------


def test_a_test_example_among_the_training_examples(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d")
    rows = pq.read_table(folder / "test_ood-00000-of-00001.parquet").to_pylist()

    def leak(train: Rows) -> None:
        for place, row in enumerate(rows[:2]):
            train[place] = row | {
                "id": train[place]["id"],
                "image": row["image"] | {"path": train[place]["image"]["path"]},
            }

    forge(folder, "train", leak)
    leaks = {"held-out pairs", "held-out numbers in scenes", "held-out queries", "query texts", "duplicates"}
    assert leaks <= failed(folder) <= leaks | {"balance by pair", "balance by query text", "pair totals"}


@pytest.mark.parametrize("task", CONFIGS)
def test_what_the_manifest_holds_out_is_what_counts(task: str, clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / task, tmp_path / "d")
    manifest = manifest_of(folder)
    shown = pq.read_table(folder / "train-00000-of-00002.parquet")["pair"].to_pylist()[0]
    manifest["held_out"]["pairs"].append(shown)
    put(folder, manifest)
    assert failed(folder) == {"held-out pairs"} | ({"held-out numbers in scenes"} if task == "cardinality" else set())

    manifest["held_out"]["pairs"].pop()
    asked = {frozenset(map(str, q)) for q in manifest["held_out"]["queries"]}
    manifest["held_out"]["queries"] = manifest["held_out"]["queries"][1:]
    put(folder, manifest)
    assert failed(folder) <= {"held-out queries"}
    manifest["held_out"]["queries"] = [["no", "such"]]
    put(folder, manifest)
    assert asked and failed(folder) == {"held-out queries"}


def test_rows_of_other_settings_are_found(clean: Path, tmp_path: Path) -> None:
    for task, setting in {
        "spatiality": {"distractors": [2, 3]},
        "cardinality": {"total_objects": [7, 8]},
        "quantifiers": {"third_region": "empty"},
        "comparison": {"numbers": [1, 8]},
    }.items():
        folder = shutil.copytree(clean / task, tmp_path / task)
        manifest = manifest_of(folder)
        manifest["config"].update(setting)
        put(folder, manifest)
        assert check_of(audit(folder, workers=1), GENERATED).status == "FAIL", task
    manifest = manifest_of(clean / "comparison")
    manifest["config"]["world"]["colours"] = ["red", "blue"]
    put(tmp_path / "comparison", manifest)
    assert "world" in failed(tmp_path / "comparison")


# Shortcuts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Cardinality(**MANY), set()),
        (
            Cardinality(scope="queried", total="released", **MANY),
            {"held-out numbers in scenes", "shortcut: query text and number of objects"},
        ),
        (Quantifiers(**MANY), set()),
        (
            Quantifiers(third_region="empty", total="released", **MANY),
            {"shortcut: set not asked about", "shortcut: set not asked about, empty or not"},
        ),
        (Quantifiers(total="released", **MORE), {"shortcut: query text and number of objects"}),
    ],
    ids=["cardinality", "cardinality as released", "quantifiers", "quantifiers as released", "quantifiers, half"],
)
def test_shortcuts_of_the_released_generator_fail(config: Config, expected: set[str], tmp_path: Path) -> None:
    write(tmp_path / "d", config, rows_per_shard=8000)
    checks = audit(tmp_path / "d", workers=1)
    assert independent(checks) == expected
    if expected == {"shortcut: set not asked about", "shortcut: set not asked about, empty or not"}:
        assert "accuracy 100.0%" in check_of(checks, "shortcut: set not asked about").detail
    if config == Quantifiers(**MANY):
        assert check_of(checks, "shortcut: X without Y").status == "note"


def test_lower_bound() -> None:
    assert 0.93 > lower_bound(100, 100) > 0.9
    assert lower_bound(10_400, 20_000) < 0.51 < lower_bound(10_450, 20_000)
    assert 0 <= lower_bound(0, 1) <= lower_bound(0.5, 1) < 0.1
    rng = np.random.default_rng(0)
    too_high = sum(lower_bound(float(k), 500) > 0.51 for k in rng.binomial(500, 0.51, 20_000))
    assert too_high / 20_000 < 0.003


# Files -------------------------------------------------------------------------------------------------------------


def test_other_columns(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "comparison", tmp_path / "d")
    pq.write_table(pa.table({"id": ["a"]}), folder / "validation-00000-of-00001.parquet")
    checks = audit(folder, workers=1)
    assert "has no column image" in check_of(checks, "rows").detail
    assert {"files", "rows", "content digest"} == failed(folder)


def test_counts_and_digests_of_the_manifest(clean: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(clean / "comparison", tmp_path / "d")
    manifest = manifest_of(folder)
    manifest["splits"]["train"]["true"] += 1
    put(folder, manifest)
    assert failed(folder) == {"rows"}
    put(folder, manifest_of(clean / "comparison") | {"content_digest": "0" * 64})
    assert failed(folder) == {"content digest"}
    manifest = manifest_of(clean / "comparison")
    manifest["config"]["count"]["train"] = 300
    put(folder, manifest)
    assert failed(folder) == {"rows"}
    for key, value in {"rows": 7, "bytes": 7, "sha256": "0"}.items():
        manifest = manifest_of(clean / "comparison")
        manifest["files"][0][key] = value
        put(folder, manifest)
        assert failed(folder) & {"files", "rows"}, key
    manifest = manifest_of(clean / "comparison")
    del manifest["splits"]["test_ind"]
    put(folder, manifest)
    assert {"rows"} <= failed(folder)
    manifest = manifest_of(clean / "comparison")
    manifest["files"] = manifest["files"][1:]
    put(folder, manifest)
    assert {"rows", "content digest", "ids"} <= failed(folder)


def test_inked_cells() -> None:
    picture = np.full((50, 40, 3), 255, np.uint8)
    picture[0:9, 30:40] = (230, 230, 250)  # the lavender of the released purple
    picture[41:50, 1:9] = 0
    picture[25, 15] = 0  # a speck
    assert inked_cells(picture, columns=4, rows=5) == {(0, 3), (4, 0)}


# Answers -----------------------------------------------------------------------------------------------------------

SCENE = parse_caption(
    "Columns, left to right, are ordered A to F. Rows, top to bottom, are ordered 1 to 6. "
    "There is a red circle at A 1, a red circle at B 3, a blue circle at F 2, a red square at C 3, "
    "an orange star at D 6 and a red star at E 6."
)[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There are 3 circle objects.", (True, ("circle", "3"))),
        ("There is 1 circle object.", (False, ("circle", "3"))),
        ("There are 2 red circle objects.", (True, ("red circle", "2"))),
        ("There are more circles than stars.", (True, ("comparison", "3", "2"))),
        ("There are fewer red objects than stars.", (False, ("comparison", "4", "2"))),
        ("The blue circle is to the right of the red square.", (True, ("horizontal", "F", "C"))),
        ("The blue circle is below the red square.", (False, ("vertical", "2", "3"))),
        ("The red square is above the orange star.", (True, ("vertical", "3", "6"))),
        ("The orange star is below the red star.", (False, ("vertical", "6", "6"))),
        ("All the circle objects are red objects.", (False, ("not all", "2", "1"))),
        ("Not all the circle objects are red objects.", (True, ("not all", "2", "1"))),
        ("All the square objects are red objects.", (True, ("all", "1", "3"))),
        ("Some of the star objects are red objects.", (True, ("some", "1", "1"))),
        ("None of the star objects are blue objects.", (True, ("none", "2", "1"))),
        ("Some of the star objects are blue objects.", (False, ("none", "2", "1"))),
        ("Only the star objects are orange objects.", (True, ("only", "1", "1"))),
        ("Only the circle objects are red objects.", (False, ("not only", "2", "2"))),
        ("Not only the circle objects are red objects.", (True, ("not only", "2", "2"))),
    ],
)
def test_answers_and_pairs_worked_by_hand(text: str, expected: tuple[bool, tuple[str, ...]]) -> None:
    assert recount(parse_query(text), SCENE) == expected


def test_the_generator_defines_answers_and_pairs_the_same_way() -> None:
    chance = random.Random(3)
    world, agreed = World(("red", "blue"), ("star", "circle", "square"), columns=4, rows=4), 0
    attributes = [*world.colours, *world.shapes, *world.attributes("both")]
    for _ in range(3000):
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
                with pytest.raises(ValueError, match="not one each"):
                    recount(query, scene)
                continue
            assert recount(query, scene) == expected, query_text(query)
            agreed += 1
    assert agreed > 9000


# The command -------------------------------------------------------------------------------------------------------


def test_report_and_json(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = command("audit", str(clean / "spatiality"), "--workers", "1")
    assert code == 0 and "every check passed" in out.splitlines()[-1] and not err
    assert all(line.split()[0] in ("ok", "note") for line in out.partition("\n\n")[0].splitlines())
    folder = shutil.copytree(clean / "cardinality", tmp_path / "d, (e) = f")
    forge(folder, "validation", flip_answer)
    monkeypatch.setattr(cli, "without_pandas", lambda: None)  # other tests in this process need it
    code = called(monkeypatch, str(folder), "--json", "--workers", "1", name="travlr.audit", main=main)
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert code == 1 and not report["ok"] and not err and report["dataset"] == str(folder)
    wrong = {check["name"]: check for check in report["checks"] if check["status"] == "FAIL"}
    assert set(wrong) == {"answer", "balance by pair", "balance by query text", GENERATED}
    assert "validation row 5: answer is" in wrong[GENERATED]["detail"]
    assert wrong["answer"]["checked"] == 400 and "cardinality-validation-00000005" in wrong["answer"]["detail"]


def leaving(manifest: dict[str, Any]) -> None:
    manifest["files"][0]["name"] = "../elsewhere.parquet"


def no_digest(manifest: dict[str, Any]) -> None:
    del manifest["content_digest"]


def strange_config(manifest: dict[str, Any]) -> None:
    manifest["config"]["world"]["columns"] = 99


def strange_pairs(manifest: dict[str, Any]) -> None:
    manifest["held_out"]["pairs"] = 5


@pytest.mark.parametrize("change", [leaving, no_digest, strange_config, strange_pairs])
def test_a_manifest_that_cannot_be_used_is_one_line(
    change: Callable[[dict[str, Any]], None], clean: Path, tmp_path: Path
) -> None:
    manifest = manifest_of(clean / "cardinality")
    change(manifest)
    put(tmp_path, manifest)
    with pytest.raises(ValueError, match=f"{MANIFEST}.*") as raised:
        audit(tmp_path)
    one_line(str(raised.value))


def test_folders_without_a_dataset_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / UNFINISHED).write_text("{}")
    (tmp_path / "file").write_text("")
    lines = {"none": "no such", "empty": "not a dataset", "begun": "unfinished", "file": "is a file"}
    for name, words in lines.items():
        with pytest.raises(ValueError, match=words) as raised:
            audit(tmp_path / name)
        one_line(str(raised.value))
    code, out, err = command("audit", str(tmp_path / "begun"))
    assert code == 1 and not out and one_line(err).startswith("audit: ") and "unfinished" in err


def test_wrong_usage_is_one_line_and_status_2() -> None:
    code, out, err = command("audit")
    assert code == 2 and not out and one_line(err).startswith("audit: ") and "DIR" in err


def test_nothing_is_written(clean: Path) -> None:
    def state() -> dict[str, str]:
        files = (path for path in (clean / "comparison").rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = state()
    audit(clean / "comparison", workers=2)
    assert state() == before
