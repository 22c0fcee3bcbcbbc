"""The four layouts as others read them: Hugging Face `datasets`, pandas, pyarrow, `webdataset`, plain csv and json."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as pillow

from tests.helpers import COUNTS, FORMATS, NULLS, ROOT, SMALL, flip, put_null, write
from travlr import Comparison, Count, Example, Image, Quantifiers, Spatiality, make_example
from travlr.config import Config
from travlr.convert import convert_dataset
from travlr.formats import LAYOUTS
from travlr.formats.card import _size
from travlr.formats.columns import COLUMNS, SCHEMA
from travlr.formats.foreign import PUBLISHED_SPLITS, published_counts
from travlr.generate import settings
from travlr.tasks import PAPER, TASKS

TEXT = [name for name in COLUMNS if name != "image"]
PUBLISHED = tuple(PUBLISHED_SPLITS.values())


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "dataset.json").read_text())


def expected(split: str, index: int) -> dict[str, Any]:
    """A row as `make_example` gives it, without the picture."""
    e = make_example(SMALL, split, index)
    row = {name: getattr(e, name) for name in TEXT if name not in ("pair", "objects")}
    return row | {"pair": list(e.pair), "objects": [vars(o) for o in e.scene]}


# Hugging Face datasets ----------------------------------------------------------------------------------------------

LOAD = """
import io, json, sys
import datasets
datasets.disable_progress_bars()
kind, folder, cache = sys.argv[1:]
ds = datasets.load_dataset(folder, cache_dir=cache) if kind == "folder" else datasets.load_dataset(
    kind, data_dir=folder, cache_dir=cache)
told = {"features": {name: str(feature) for name, feature in next(iter(ds.values())).features.items()}, "rows": {}}
for split, rows in ds.items():
    told["rows"][split] = found = []
    for row in rows:
        for name in ("image", "png"):
            if name in row:
                row[name] = [row[name].mode, *row[name].size, row[name].convert("RGB").tobytes().hex()]
        found.append(row)
print(json.dumps(told, default=str))
"""


def load(kind: str, folder: Path, cache: Path) -> dict[str, Any]:
    """What `load_dataset` makes of a folder, in a process of its own, as it reads HF_HUB_OFFLINE when imported."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, kind, str(folder), str(cache)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pixels(split: str, index: int, mode: str = "RGB") -> list[Any]:
    picture = pillow.open(io.BytesIO(make_example(SMALL, split, index).image))
    return [mode, *picture.size, picture.convert("RGB").tobytes().hex()]


def test_load_dataset_opens_parquet_with_splits_types_and_pictures(by_format: dict[str, Path], tmp_path: Path) -> None:
    told = load("folder", by_format["parquet"], tmp_path)
    assert {split: len(rows) for split, rows in told["rows"].items()} == COUNTS
    assert list(told["features"]) == list(COLUMNS)
    assert told["features"]["image"].startswith("Image(")
    assert told["features"]["answer"] == "Value('bool')"
    assert told["features"]["pair"] == "List(Value('string'))"
    assert told["features"]["objects"] == (
        "List({'colour': Value('string'), 'shape': Value('string'), 'size': Value('string'), "
        "'row': Value('int32'), 'column': Value('int32'), 'queried': Value('bool')})"
    )
    for split, rows in told["rows"].items():
        for index in (0, 1, len(rows) - 1):
            assert rows[index].pop("image") == pixels(split, index)
            assert rows[index] == expected(split, index)


def test_load_dataset_opens_imagefolder_with_the_splits_of_its_card(by_format: dict[str, Path], tmp_path: Path) -> None:
    told = load("folder", by_format["imagefolder"], tmp_path)
    assert set(told["features"]) == set(COLUMNS)
    assert told["features"]["image"].startswith("Image(") and told["features"]["answer"] == "Value('bool')"
    assert {split: len(rows) for split, rows in told["rows"].items()} == COUNTS
    for split, rows in told["rows"].items():
        for index in (0, len(rows) - 1):
            assert rows[index].pop("image") == pixels(split, index)
            assert rows[index] == expected(split, index)


def test_load_dataset_opens_imagefolder_by_its_layout_alone(by_format: dict[str, Path], tmp_path: Path) -> None:
    told = load("imagefolder", by_format["imagefolder"], tmp_path)  # it knows no splits but train, validation and test
    assert {split: len(rows) for split, rows in told["rows"].items()} == {"train": 100, "validation": 50, "test": 110}
    for rows in told["rows"].values():
        for row in rows[:: len(rows) - 1]:
            split, index = row["id"].split("-")[1:]
            assert row.pop("image") == pixels(split, int(index), mode="P")  # it does not read the card
            assert row == expected(split, int(index))


def test_load_dataset_opens_webdataset_with_its_own_columns(by_format: dict[str, Path], tmp_path: Path) -> None:
    told = load("folder", by_format["webdataset"], tmp_path)
    assert set(told["features"]) == {"__key__", "__url__", "json", "png"}
    assert {split: len(rows) for split, rows in told["rows"].items()} == COUNTS
    for split, rows in told["rows"].items():
        assert [row["__key__"] for row in rows] == [expected(split, i)["id"] for i in range(len(rows))]
        assert rows[-1]["json"] == expected(split, len(rows) - 1)
        assert rows[-1]["png"] == pixels(split, len(rows) - 1)


# Other readers ------------------------------------------------------------------------------------------------------


def test_pyarrow_and_pandas_read_parquet(by_format: dict[str, Path]) -> None:
    pandas = import_module("pandas")
    for split, count in COUNTS.items():
        paths = sorted(by_format["parquet"].glob(f"{split}-*.parquet"))
        assert [path.name for path in paths] == [
            f"{split}-{i:05d}-of-{len(paths):05d}.parquet" for i in range(len(paths))
        ]
        table = pa.concat_tables([pq.read_table(path) for path in paths])
        frame = pandas.concat([pandas.read_parquet(path) for path in paths], ignore_index=True)
        assert table.num_rows == len(frame) == count
        assert table.schema.equals(SCHEMA) and frame["answer"].dtype == bool
        row = table.slice(count - 1, 1).to_pylist()[0]
        assert row.pop("image") == {
            "bytes": make_example(SMALL, split, count - 1).image,
            "path": f"cardinality-{split}-{count - 1:08d}.png",
        }
        assert row == expected(split, count - 1)


def test_parquet_rows_come_a_thousand_to_a_group_and_pictures_are_not_compressed_again(tmp_path: Path) -> None:
    write(tmp_path / "d", Comparison(count=Count(2500, 0, 0, 1), image=Image(cell=8)), rows_per_file=2200)
    metadata = pq.ParquetFile(next(tmp_path.glob("d/train-00000-*.parquet"))).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 200]
    group = metadata.row_group(0)
    compression = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert compression["image.bytes"] == "UNCOMPRESSED" and compression["caption"] == "ZSTD"


def test_the_webdataset_library_reads_the_shards(by_format: dict[str, Path]) -> None:
    webdataset = import_module("webdataset")
    shards = sorted(map(str, by_format["webdataset"].glob("train-*.tar")))
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
    assert [sample["json"] for sample in samples] == [expected("train", i) for i in range(COUNTS["train"])]
    assert samples[0]["png"] and samples[0]["__key__"] == samples[0]["json"]["id"]


def test_tars_tell_no_time_and_no_user(by_format: dict[str, Path]) -> None:
    for path in by_format["webdataset"].glob("*.tar"):
        with tarfile.open(path) as tar:
            assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in tar} == {(0, 0, 0, "", 0o644)}


# The card -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", FORMATS)
def test_the_card_says_what_is_there(layout: str, by_format: dict[str, Path]) -> None:
    yaml = import_module("yaml")
    folder, manifest = by_format[layout], manifest_of(by_format[layout])
    _, head, body = (folder / "README.md").read_text().split("---\n", 2)
    header = yaml.safe_load(head)
    if layout == "original":
        assert "configs" not in header
    else:
        found = {item["split"]: item["path"] for item in header["configs"][0]["data_files"]}
        for split in COUNTS:
            files = {path.name for path in folder.glob(found[split])}
            assert files and all(split in name or name == "metadata.jsonl" for name in files)
    if layout == "parquet":
        assert {s["name"]: s["num_examples"] for s in header["dataset_info"]["splits"]} == COUNTS
        assert [f["name"] for f in header["dataset_info"]["features"]] == list(COLUMNS)
    for split, count in COUNTS.items():
        true = sum(expected(split, i)["answer"] for i in range(count))
        assert f"| {split} | {count:,} | {true} | {count - true} |" in body
    for pair in manifest["held_out"]["pairs"]:
        assert f"`{' '.join(pair)}`" in body
    assert manifest["content_digest"] in body
    first = expected("train", 0)
    assert first["query"] in body and first["caption"] in body and "(example.png)" in body
    assert pillow.open(folder / "example.png").size == (48, 48)


def header_of(folder: Path) -> dict[str, Any]:
    return import_module("yaml").safe_load((folder / "README.md").read_text().split("---\n")[1])


def test_the_card_has_licence_size_citation_and_shortcuts(by_format: dict[str, Path], tmp_path: Path) -> None:
    for layout, folder in by_format.items():
        assert header_of(folder)["license"] == "apache-2.0", layout
        assert header_of(folder)["size_categories"] == ["n<1K"]
        body = (folder / "README.md").read_text()
        assert "10.18653/v1/2023.eacl-main.242" in body and "## Known shortcuts" in body and "right up to 94 %" in body
    other = dataclasses.replace(SMALL, total="released", distractors=[1, 5], count=Count(1000, 10, 0, 10))
    write(tmp_path / "d", other)
    body = (tmp_path / "d" / "README.md").read_text()
    assert header_of(tmp_path / "d")["size_categories"] == ["1K<n<10K"]
    assert "right up to" not in body and "travlr.baselines" in body.partition("## Known shortcuts")[2]


@pytest.mark.parametrize("preset", ["paper", "strict"])
@pytest.mark.parametrize("task", PAPER)
def test_the_card_of_a_preset_says_what_rules_reach(task: str, preset: str, tmp_path: Path) -> None:
    config, _ = settings([f"task={task}", f"preset={preset}", "seed=7", "image.cell=8", "style.image=plain"])
    write(tmp_path / "d", dataclasses.replace(config, count=SMALL.count))
    shown = (tmp_path / "d" / "README.md").read_text().partition("## Known shortcuts")[2].partition("##")[0]
    assert f"right up to {TASKS[task].best_unbound[preset]} of the time" in " ".join(shown.split())
    shows_all_others = "`train`, `validation` and `test_ind` show all others" in (tmp_path / "d/README.md").read_text()
    balanced = preset == "strict" and task in ("spatiality", "comparison")  # larger differences are in no split
    assert shows_all_others != balanced


@pytest.mark.parametrize(
    ("rows", "category"), [(1, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (48_000, "10K<n<100K"), (10**13, "n>1T")]
)
def test_size_categories_are_those_of_the_hub(rows: int, category: str) -> None:
    assert _size(rows) == category


def test_published_data_keep_their_licence(by_format: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(by_format["original"], tmp_path / "published")
    for name in ("dataset.json", "README.md", "example.png"):
        (tmp_path / "published" / name).unlink()
    convert_dataset(tmp_path / "published", tmp_path / "d", "parquet", workers=1, log=lambda line: None)
    assert "license" not in header_of(tmp_path / "d") and "## Citation" in (tmp_path / "d" / "README.md").read_text()


def test_the_project_has_a_licence_and_a_citation() -> None:
    yaml, tomllib = import_module("yaml"), import_module("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    licence = (ROOT / "LICENSE").read_text()
    assert licence.split()[:4] == ["Apache", "License", "Version", "2.0,"] and "END OF TERMS AND CONDITIONS" in licence
    assert project["license"] == citation["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE"]
    assert citation["version"] == project["version"]
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == ["Chow", "Tan", "Kan"]


def test_all_formats_hold_the_same_content(by_format: dict[str, Path]) -> None:
    manifests = {layout: manifest_of(folder) for layout, folder in by_format.items()}
    assert len({manifests[layout]["content_digest"] for layout in FORMATS if layout != "original"}) == 1
    assert manifests["original"]["pixels"] is None  # JPEG loses some
    for split, count in COUNTS.items():
        rows = {
            layout: pa.concat_tables(LAYOUTS[layout].read(folder, manifests[layout], split)).to_pylist()
            for layout, folder in by_format.items()
        }
        assert len(rows["parquet"]) == count
        assert rows["imagefolder"] == rows["webdataset"] == rows["parquet"]
        assert [{name: row[name] for name in TEXT} for row in rows["original"]] == [
            {name: row[name] for name in TEXT} for row in rows["parquet"]
        ]


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (30, 80), (50, 100), (99, 100), (0, 100), (40, None)])
def test_any_rows_of_a_split_can_be_read_alone(
    layout: str, start: int, stop: int | None, by_format: dict[str, Path]
) -> None:
    tables = LAYOUTS[layout].read(by_format[layout], manifest_of(by_format[layout]), "train", start, stop)
    ids = [name for table in tables for name in table["id"].to_pylist()]
    assert ids == [f"cardinality-train-{i:08d}" for i in range(start, stop or 100)]


# The published layout -----------------------------------------------------------------------------------------------

CONFIGS: dict[str, Config] = {
    "spatiality": Spatiality(count=Count(30, 8, 8, 8), image=Image(cell=8)),
    "cardinality": SMALL,
    "quantifiers": Quantifiers(count=Count(60, 8, 8, 8), image=Image(cell=8)),
    "comparison": Comparison(count=Count(30, 8, 8, 8), image=Image(cell=8)),
}


def published(folder: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    with open(folder / "index.csv", newline="") as file:
        return list(csv.DictReader(file)), json.loads((folder / "metadata.jsonl").read_text())


@pytest.mark.parametrize("task", CONFIGS)
def test_original_is_the_published_layout(task: str, tmp_path: Path) -> None:
    pandas = import_module("pandas")
    config = CONFIGS[task]
    write(tmp_path / "d", config, format="original")
    index, entries = published(tmp_path / "d")
    frame = pandas.read_csv(tmp_path / "d" / "index.csv", index_col=0)
    assert list(frame.columns) == ["caption", "query", "answer", "image", "split"] and frame["answer"].dtype == bool
    assert frame.to_csv(lineterminator="\n") == (tmp_path / "d" / "index.csv").read_text()  # as pandas writes it
    assert list(entries) == [line[""] for line in index] == [str(i) for i in range(len(index))]
    assert [name for i, name in enumerate(frame["split"]) if not i or frame["split"][i - 1] != name] == list(PUBLISHED)
    assert published_counts(tmp_path / "d") == {s: getattr(config.count, s) for s in PUBLISHED_SPLITS}
    seen: dict[str, int] = dict.fromkeys(PUBLISHED, 0)
    for line in index:
        entry, split = entries[line[""]], line["split"]
        ours = next(ours for ours, theirs in PUBLISHED_SPLITS.items() if theirs == split)
        example = make_example(config, ours, seen[split])
        seen[split] += 1
        assert (entry["query"], entry["answer"], entry["split"]) == (line["query"], line["answer"] == "True", split)
        assert (line["caption"], line["query"]) == (example.caption, example.query)
        assert [{k: v for k, v in o.items() if k != "pattern"} for o in entry["objects"]] == [
            vars(o) for o in example.scene
        ]
        assert [list(o)[:3] for o in entry["objects"]] == [["shape", "colour", "pattern"]] * len(example.scene)
        assert entry["caption_abstract"] == list(range(len(example.scene)))
        assert pillow.open(tmp_path / "d" / "images" / f"{line['image']}.jpg").format == "JPEG"
        check_query(task, entry, example)


def check_query(task: str, entry: dict[str, Any], example: Example) -> None:
    """`case` and `query_abstract`, whose meaning was read off the published data."""
    query, args = entry["query_abstract"], json.loads(example.query_form)["args"]
    shapes = [o["shape"] for o in entry["objects"]]
    if task == "spatiality":
        assert entry["relationship"] == ("left/right" if args[1].startswith("to the") else "above/below")
        named = [" ".join(entry["objects"][i][k] for k in ("colour", "shape")) for i in query[::2]]
        assert [named[0], query[1], named[1]] == args and "case" not in entry
    elif task == "cardinality":
        assert entry["case"] == args[::-1] and query == {"attr": args[1], "number": args[0], "rel": "equal"}
    elif task == "comparison":
        numbers = [shapes.count(args[1]), shapes.count(args[2])]
        assert entry["case"] == [*args, *numbers, len(shapes) - sum(numbers)]
        assert query == {"attr1": args[1], "attr2": args[2], "rel": args[0]}
    else:
        name = {"some": "some of", "none": "none of"}.get(args[0], args[0])
        assert query == {"rel": name, "attr1": args[1], "attr2": args[2]} and entry["case"][:3] == [name, *args[1:]]
        kinds = [(o["shape"], o["colour"]) for o in entry["objects"]]
        groups = entry["case"][3]
        assert all(number == kinds.count((shape, colour)) for number, shape, colour in groups)
        assert all(shape == args[1] or colour == args[2] for _, shape, colour in groups)
        assert sum(number for number, *_ in groups) == int(example.pair[1]) + int(example.pair[2])


# Damage -------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert re.search(old, text)
        path.write_text(re.sub(old, new, text, count=1))

    return change


BROKEN: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "parquet missing": ("parquet", "train-00001-of-00002.parquet", Path.unlink),
    "parquet cut": ("parquet", "train-00001-of-00002.parquet", cut),
    "parquet empty": ("parquet", "train-00000-of-00002.parquet", lambda path: path.write_bytes(b"")),
    "parquet of another schema": (
        "parquet",
        "train-00000-of-00002.parquet",
        lambda path: pq.write_table(pa.table({"a": [1]}), path),
    ),
    "tar cut": ("webdataset", "train-00000-of-00002.tar", cut),
    "tar missing": ("webdataset", "train-00000-of-00002.tar", Path.unlink),
    "lines cut": ("imagefolder", "train/metadata.jsonl", cut),
    "a line is no row": ("imagefolder", "train/metadata.jsonl", replaced("^.*\n", "[1]\n")),
    "a column is missing": ("imagefolder", "train/metadata.jsonl", replaced('"caption"', '"legend"')),
    "a column of another type": ("imagefolder", "train/metadata.jsonl", replaced('"answer": \\w+', '"answer": "yes"')),
    "a number too large": ("imagefolder", "train/metadata.jsonl", replaced('"row": \\d', '"row": 9e99')),
    "a picture outside": ("imagefolder", "train/metadata.jsonl", replaced('"file_name": "', '"file_name": "../')),
    "deep nesting": ("imagefolder", "train/metadata.jsonl", replaced("^.*\n", "[" * 100_000 + "\n")),
    "picture missing": ("imagefolder", "train/cardinality-train-00000003.png", Path.unlink),
    "index missing": ("original", "index.csv", Path.unlink),
    "index cut": ("original", "index.csv", cut),
    "metadata cut": ("original", "metadata.jsonl", cut),
    "metadata is a list": ("original", "metadata.jsonl", lambda path: path.write_text("[]")),
    "entry missing": ("original", "metadata.jsonl", replaced('"7": ', '"seven": ')),
    "no caption": ("original", "index.csv", replaced("There is", "There was")),
    "no answer": ("original", "index.csv", replaced("True", "Maybe")),
    "another header": ("original", "index.csv", replaced("caption", "legend")),
    "image outside": ("original", "index.csv", replaced(",(\\d+),train", ",../7,train")),
    "jpeg missing": ("original", "images/7.jpg", Path.unlink),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_dataset_is_one_line_that_names_the_file(case: str, tmp_path: Path) -> None:
    layout, name, damage = BROKEN[case]
    manifest, _ = write(tmp_path / "d", format=layout)
    damage(tmp_path / "d" / name)
    with pytest.raises(ValueError, match=r"damaged or missing|column id is missing") as caught:
        for split in manifest["splits"]:
            list(LAYOUTS[layout].read(tmp_path / "d", manifest, split))
    assert str(caught.value).startswith(str(tmp_path / "d")) and "\n" not in str(caught.value)


def null_in_lines(path: Path, *place: str | int) -> None:
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    put_null(row, *place)
    path.write_text("\n".join([json.dumps(row), *others]))


def null_in_tar(path: Path, *place: str | int) -> None:
    with tarfile.open(path) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    row = json.loads(members[1][1])
    put_null(row, *place)
    members[1] = members[1][0], json.dumps(row).encode()
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("place", [name for name in NULLS if not name.startswith("image")])
@pytest.mark.parametrize(
    ("layout", "name", "change"),
    [
        ("imagefolder", "train/metadata.jsonl", null_in_lines),
        ("webdataset", "train-00000-of-00002.tar", null_in_tar),
    ],
)
def test_a_null_in_json_is_refused_by_its_column(
    layout: str, name: str, change: Callable[..., None], place: str, by_format: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(by_format[layout], tmp_path / "d")
    change(tmp_path / "d" / name, *NULLS[place])
    column = ".".join(part for part in place.split(".") if part != "0")
    with pytest.raises(ValueError, match=rf"{name}: damaged \(column {column} has a null\)$"):
        list(LAYOUTS[layout].read(tmp_path / "d", manifest_of(tmp_path / "d"), "train"))


@pytest.mark.parametrize("name", ["colour", "shape", "size", "row", "column", "queried"])
def test_a_null_in_the_published_layout_is_refused(name: str, by_format: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(by_format["original"], tmp_path / "d")
    replaced(rf'"{name}": [^,}}]+', f'"{name}": null')(tmp_path / "d" / "metadata.jsonl")
    with pytest.raises(ValueError, match=r"index\.csv: damaged") as caught:
        list(LAYOUTS["original"].read(tmp_path / "d", manifest_of(tmp_path / "d"), "train"))
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_in_a_parquet_picture_is_found(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path / "d")
    path = tmp_path / "d" / "train-00000-of-00002.parquet"
    flip(path, path.read_bytes().index(b"\x89PNG") + 60)
    with pytest.raises(ValueError, match=f"{path}: damaged or missing"):
        list(LAYOUTS["parquet"].read(tmp_path / "d", manifest, "train"))
