"""`travlr.convert`: all columns and picture bytes survive, the source stays as it is, and it goes on after a kill."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers import COUNTS, FORMATS, SMALL, command, exit_code, flip, hashes, one_line, unfinish, write
from travlr import Count, Image, Quantifiers, Spatiality, open_dataset
from travlr.convert import convert_dataset, main
from travlr.files import WORK, hashed
from travlr.formats import LAYOUTS
from travlr.formats.foreign import PUBLISHED_SPLITS
from travlr.formats.manifest import FORMAT_VERSION, MANIFEST
from travlr.scene import SPLITS

LOSSLESS = [layout for layout in FORMATS if layout != "original"]


def convert(source: Path, folder: Path, layout: str, **options: Any) -> dict[str, Any]:
    return convert_dataset(source, folder, layout, **{"workers": 1, "log": lambda _: None, **options})


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    manifest = json.loads((folder / MANIFEST).read_text())
    layout = LAYOUTS[manifest["layout"]]
    return {split: pa.concat_tables(layout.read(folder, manifest, split)).to_pylist() for split in manifest["splits"]}


def without_pictures(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {split: [{k: v for k, v in row.items() if k != "image"} for row in found] for split, found in rows.items()}


def data(folder: Path) -> dict[str, str]:
    """Hashes of all files but the manifest, which says what the dataset was converted from."""
    return {name: value for name, value in hashes(folder).items() if name != MANIFEST}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", LOSSLESS)
def test_a_lossless_dataset_becomes_what_generate_writes_in_the_other_format(
    source: str, target: str, by_format: dict[str, Path], tmp_path: Path
) -> None:
    before = hashes(by_format[source])
    manifest = convert(by_format[source], tmp_path / "d", target)
    assert data(tmp_path / "d") == data(by_format[target])
    written = json.loads((by_format[target] / MANIFEST).read_text())
    assert {k: v for k, v in manifest.items() if k != "source"} == {k: v for k, v in written.items() if k != "source"}
    assert manifest["source"]["layout"] == source and str(tmp_path) not in json.dumps(manifest)
    assert hashes(by_format[source]) == before


def test_there_and_back_gives_the_same_files_whatever_the_rows_per_file(tmp_path: Path) -> None:
    config = Quantifiers(count=Count(1100, 0, 0, 40), image=Image(cell=8))
    first = write(tmp_path / "a", config, rows_per_file=1050)[0]
    convert(tmp_path / "a", tmp_path / "b", "imagefolder", rows_per_file=70, workers=2)
    convert(tmp_path / "b", tmp_path / "c", "webdataset", rows_per_file=1_000_000)
    last = convert(tmp_path / "c", tmp_path / "d", "parquet", rows_per_file=1050)
    assert data(tmp_path / "d") == data(tmp_path / "a")
    assert last["content_digest"] == first["content_digest"] and last["pixels"] == first["pixels"]
    assert last["source"]["source"]["source"]["layout"] == "parquet"


@pytest.mark.parametrize("target", LOSSLESS)
def test_from_original_all_columns_survive_and_pictures_stay_jpeg(
    target: str, by_format: dict[str, Path], tmp_path: Path
) -> None:
    manifest = convert(by_format["original"], tmp_path / "d", target)
    rows = rows_of(tmp_path / "d")
    assert without_pictures(rows) == without_pictures(rows_of(by_format["parquet"]))
    number = 0
    for split in SPLITS:
        for row in rows[split]:
            assert row["image"]["bytes"] == (by_format["original"] / "images" / f"{number}.jpg").read_bytes()
            assert row["image"]["path"] == f"{row['id']}.jpg"
            number += 1
    assert manifest["pixels"] is None
    assert manifest["content_digest"] == json.loads((by_format["original"] / MANIFEST).read_text())["content_digest"]
    convert(tmp_path / "d", tmp_path / "back", "original")
    assert data(tmp_path / "back") == data(by_format["original"])


def test_webdataset_of_jpegs_names_them_so(by_format: dict[str, Path], tmp_path: Path) -> None:
    convert(by_format["original"], tmp_path / "d", "webdataset")
    with tarfile.open(tmp_path / "d" / "train-00000-of-00002.tar") as tar:
        assert {name.split(".")[1] for name in tar.getnames()} == {"jpg", "json"}


# The published dataset ----------------------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A dataset as published: no manifest, columns in another order and one more, images numbered anyhow, and
    metadata.jsonl in the order of its own."""
    folder = tmp_path / "published"
    write(folder, Spatiality(count=Count(30, 8, 8, 8), image=Image(cell=8)), format="original")
    for name in (MANIFEST, "README.md", "example.png"):
        (folder / name).unlink()
    with open(folder / "index.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        number = int(line["image"])
        (folder / "images" / f"{number}.jpg").rename(folder / "images" / f"{number + 1000}.jpg")
        line |= {"image": str(number + 1000), "positions": "[(0, 0), (2, 5), (1, 5)]"}
    with open(folder / "index.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["", "caption", "query", "answer", "positions", "split", "image"])
        writer.writeheader()
        writer.writerows(lines)
    entries = json.loads((folder / "metadata.jsonl").read_text())
    for entry in entries.values():
        entry["objects"].sort(key=lambda o: not o["queried"])  # not in caption order
    (folder / "metadata.jsonl").write_text(json.dumps(dict(sorted(entries.items()))) + "\n")
    return folder


@pytest.mark.parametrize("target", FORMATS)
def test_the_published_layout_is_read(target: str, published: Path, tmp_path: Path) -> None:
    before = hashes(published)
    manifest = convert(published, tmp_path / "d", target, workers=2)
    assert manifest["config"] is None and manifest["held_out"] is None and manifest["pixels"] is None
    assert set(manifest["source"]) == {"layout", "index.csv", "metadata.jsonl"}
    write(tmp_path / "ours", Spatiality(count=Count(30, 8, 8, 8), image=Image(cell=8)), format="original")
    assert without_pictures(rows_of(tmp_path / "d")) == without_pictures(rows_of(tmp_path / "ours"))
    assert "Converted from a dataset" in (tmp_path / "d" / "README.md").read_text()
    assert hashes(published) == before


def test_splits_that_the_published_layout_lacks_are_not_written(published: Path, tmp_path: Path) -> None:
    lines = (published / "index.csv").read_text().splitlines(keepends=True)
    (published / "index.csv").write_text("".join(line for line in lines if ",val," not in line))
    assert list(convert(published, tmp_path / "d", "parquet")["splits"]) == ["train", "test_ind", "test_ood"]
    assert len(open_dataset(tmp_path / "d")["train"]) == 30


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("index.csv", "", "index.csv: damaged or missing .not in the published layout"),
        ("index.csv", ",caption,query,answer,image,split\n", "has no rows"),
        ("index.csv", ",caption,query,answer,image,split\n0,a,b,True,0,dev\n", "unknown split 'dev'"),
        ("index.csv", ",caption,query,answer,image,split\n0,a,b,True,0,val\n", "not a caption: 'a'"),
        ("metadata.jsonl", None, "metadata.jsonl: damaged or missing"),
        ("metadata.jsonl", "{}", "is not in metadata.jsonl|no JSON object"),
    ],
)
def test_what_is_not_in_the_published_layout_is_one_line(
    name: str, text: str | None, message: str, published: Path, tmp_path: Path
) -> None:
    (published / name).unlink() if text is None else (published / name).write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        convert(published, tmp_path / "d", "parquet")
    one_line(str(caught.value))


# Refused ------------------------------------------------------------------------------------------------------------


def test_a_damaged_or_unfinished_source_is_refused_before_anything_is_written(
    by_format: dict[str, Path], tmp_path: Path
) -> None:
    unfinish(tmp_path / "unfinished")
    (tmp_path / "empty").mkdir()
    for name in ("damaged", "newer"):
        shutil.copytree(by_format["parquet"], tmp_path / name)
    flip(tmp_path / "damaged" / "test_ood-00001-of-00002.parquet")
    newer = json.loads((tmp_path / "newer" / MANIFEST).read_text()) | {"format_version": FORMAT_VERSION + 1}
    (tmp_path / "newer" / MANIFEST).write_text(json.dumps(newer))
    messages = {
        "unfinished": "unfinished; run the command that began it again",
        "empty": "not a dataset",
        "nowhere": "there is no such folder",
        "damaged": r"test_ood-00001-of-00002.parquet: damaged or missing",
        "newer": "newer than this program's",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message) as caught:
            convert(tmp_path / name, tmp_path / "d", "imagefolder")
        one_line(str(caught.value))
        assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("where", [".", "inside", "..", "./link"])
def test_source_and_target_must_be_apart(where: str, tmp_path: Path) -> None:
    source = tmp_path / "base" / "source"
    write(source)
    (source / "link").symlink_to(source)
    before = hashes(tmp_path)
    with pytest.raises(ValueError, match="is, holds or lies in"):
        convert(source, source / where, "imagefolder", overwrite=True)
    assert hashes(tmp_path) == before


def test_ids_that_do_not_count_the_rows_are_refused(by_format: dict[str, Path], tmp_path: Path) -> None:
    """Files are named after ids, so one such as `../x` would be written elsewhere."""
    source = tmp_path / "source"
    shutil.copytree(by_format["imagefolder"], source)
    path = source / "train" / "metadata.jsonl"
    path.write_text(path.read_text().replace('"id": "cardinality-train-00000005"', '"id": "../../../x"'))
    manifest = json.loads((source / MANIFEST).read_text())
    entry = next(file for file in manifest["files"] if file["name"] == "train/metadata.jsonl")
    entry |= hashed([path])
    (source / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"row 5 of train has the id '../../../x'"):
        convert(source, tmp_path / "d", "imagefolder")


def test_another_source_in_the_target_is_refused_or_replaced(by_format: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    convert(by_format["webdataset"], folder, "parquet")
    before = hashes(folder)
    with pytest.raises(ValueError, match=r'd: holds a dataset with source.layout="webdataset"; name another folder'):
        convert(by_format["imagefolder"], folder, "parquet")
    with pytest.raises(ValueError, match="d: holds a dataset with source"):
        write(folder)
    assert hashes(folder) == before
    convert(by_format["imagefolder"], folder, "parquet", overwrite=True)
    assert data(folder) == data(by_format["parquet"])


# The command --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from travlr import convert
seen = 0
def watch(event, values):
    global seen
    if event == "os.rename":
        seen += 1
    if event == "os.rename" and seen == 7:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
convert.main(sys.argv[1:])
"""


def test_the_command_goes_on_after_a_kill(by_format: dict[str, Path], tmp_path: Path) -> None:
    source, folder = tmp_path / "a source, (1)", tmp_path / "it's = ~here"
    shutil.copytree(by_format["imagefolder"], source)
    arguments = [str(source), str(folder), "format=parquet"]
    code, _, err = command("", *arguments, "workers=1", code=KILLED)
    assert code == -signal.SIGKILL, err
    assert (folder / WORK / "job.json").exists()
    code, out, err = command("convert", *arguments, "workers=2", cwd=tmp_path, env={"PYTHONHASHSEED": "3"})
    assert (code, err) == (0, "") and "resuming" in out
    assert f"train      {COUNTS['train']:>9,} examples" in out and "check it with: python -m travlr.audit" in out
    assert data(folder) == data(by_format["parquet"])
    code, out, _ = command("convert", *arguments)
    assert code == 0 and "is complete: nothing to do" in out


USAGE = {
    "no arguments": ([], "required: SRC, DST"),
    "no target": (["a"], "required: DST"),
    "no format": (["a", "b"], "format= is missing; choose one of parquet, imagefolder, webdataset, original"),
    "unknown format": (["a", "b", "format=zip"], "format=zip: choose one of parquet, imagefolder"),
    "unknown setting": (
        ["a", "b", "format=parquet", "wrokers=2"],
        "'wrokers=2' is not a setting; choose from format=, ",
    ),
    "misspelt format": (["a", "b", "fromat=zip"], "(there is no setting 'fromat')"),
    "format of another program": (["a", "b", "setting=image"], "format= is missing"),
    "given twice": (["a", "b", "format=parquet", "format=original"], "format: given twice"),
    "no setting": (["a", "b", "parquet"], "'parquet' is not a setting"),
    "no number": (["a", "b", "format=parquet", "workers=two"], "workers"),
    "below zero": (["a", "b", "format=parquet", "workers=-1"], "workers=-1: must be at least 0"),
    "no rows": (["a", "b", "format=parquet", "rows_per_file=0"], "rows_per_file=0: must be at least 1"),
    "unknown option": (["a", "b", "--force"], "unrecognized arguments: --force"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_one_line_and_status_2(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = USAGE[case]
    monkeypatch.chdir(tmp_path)
    code = exit_code(monkeypatch, "convert", main, arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and message in one_line(err) and err.startswith("convert: ")
    assert os.listdir(tmp_path) == []


def test_what_fails_later_is_status_1(tmp_path: Path) -> None:
    code, _, err = command("convert", "nowhere", "d", "format=parquet", cwd=tmp_path)
    assert code == 1 and one_line(err) == "convert: nowhere: there is no such folder"


def test_published_names_cover_all_splits() -> None:
    assert tuple(PUBLISHED_SPLITS) == SPLITS and SMALL.count.train == COUNTS["train"]
