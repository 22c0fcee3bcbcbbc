"""Write a dataset in another format: `python -m travlr.convert SRC DST format=imagefolder`.

The files for lmms-eval are made in `travlr.harness.exports`.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("convert", "travlr.convert")

import argparse
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr import cli
from travlr.columns import IMAGE, damage, example_id
from travlr.dataset import open_dataset
from travlr.exports import FORMATS, check_export, export
from travlr.files import check_apart, hashed
from travlr.generate import print_summary
from travlr.harness.exports import EXPORTS, Export, export_dataset
from travlr.manifest import file_problem, has_manifest
from travlr.original import INDEX, METADATA, count_rows, read_original
from travlr.writing import write_dataset

HELP = """\
Write a dataset in another format. SRC is not changed. An earlier export in DST is replaced.

settings
  format=         imagefolder, webdataset or original (the published layout); parquet, for a dataset in the published
                  layout or one that another program wrote; for lmms-eval: lmms_eval
  overwrite=false with format=parquet: replace another dataset in DST

settings of format=lmms_eval
{export}
"""


def convert_dataset(source: Path, folder: Path, layout: str, overwrite: bool = False, log: cli.Log = print) -> None:
    """Write the dataset `source` into `folder`.

    Raises `ValueError` where the source is not a finished, sound dataset, and as `write_dataset` and `export` do.
    """
    check_apart(source, folder)
    about: dict[str, Any] = {"config": None, "held_out": None, "pixels": None}
    if (source / INDEX).is_file():
        counts = count_rows(source)
        with damage(source):
            about["source"] = {name: hashed(source / name)["sha256"] for name in (INDEX, METADATA)}
        tables: Any = functools.partial(read_original, source.absolute())
        if layout != "parquet":
            raise ValueError(f"{source}: has the published layout; convert it to format=parquet first")
    else:
        manifest = open_dataset(source).manifest
        if layout != "parquet":
            check_export(layout, folder, manifest["config"])
        if problem := next(filter(None, (file_problem(source, file) for file in manifest["files"])), ""):
            raise ValueError(f"{source}: {problem}; make it again, with the command that made it")
        counts = {split: of_split["rows"] for split, of_split in manifest["splits"].items()}
        about = {key: manifest.get(key) for key in ("config", "held_out", "pixels")}
        about["source"] = {key: manifest.get(key) for key in ("content_digest", "versions", "source")}
        tables = functools.partial(source_tables, source.absolute())
        if layout != "parquet":
            export(layout, folder, {split: tables(split, 0, count) for split, count in counts.items()}, manifest)
            print(f"{folder}: format={layout}, {sum(counts.values()):,} examples")
            return
    print_summary(str(folder), write_dataset(folder, counts, about, tables, workers=1, overwrite=overwrite, log=log))


def source_tables(folder: Path, split: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows start to stop of a split. Those of another program get the ids and the file names of ours."""
    for table in open_dataset(folder)[split].rows(start, stop):
        if not has_manifest(folder):
            task = table["task"][0].as_py()
            table = renumbered(table, [example_id(task, split, start + row) for row in range(table.num_rows)])
        start += table.num_rows
        yield table


def renumbered(table: pa.Table, ids: list[str]) -> pa.Table:
    """The rows with other ids, after which their picture files are named, too."""
    files = table["image"].combine_chunks().field("bytes")
    kinds = ("jpg" if data.as_py().startswith(b"\xff\xd8") else "png" for data in files)
    names = pa.array([f"{name}.{kind}" for name, kind in zip(ids, kinds, strict=True)])
    images = pa.StructArray.from_arrays([files, names], fields=list(IMAGE))
    table = table.set_column(table.column_names.index("id"), "id", pa.array(ids))
    return table.set_column(table.column_names.index("image"), "image", images)


# Command line ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    about = HELP.format(export="\n".join(f"  {line}" for line in cli.help_lines(Export, ("format", "overwrite"))))
    parser = cli.Parser(
        prog="python -m travlr.convert", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SRC", type=cli.folder, help="a dataset, or one in the published layout")
    parser.add_argument("folder", metavar="DST", type=cli.folder, help="folder to write")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="format= is needed; see above")
    options = parser.parse_args(arguments)
    cli.refuse_repeated(options.settings, ())
    layout = next((s.partition("=")[2] for s in options.settings if s.startswith("format=")), None)
    cli.check_choice("format", layout, ["parquet", *FORMATS, *EXPORTS], options.settings)
    cli.without_pandas()
    if layout in EXPORTS:
        names = export_dataset(options.source, options.folder, export_settings(options.settings, layout))
        print(f"{options.folder}: {', '.join(names)}")
        return 0
    overwrite = _values(options.settings, ["format", "overwrite"]).get("overwrite", "false")
    cli.check_choice("overwrite", overwrite, ["true", "false"], options.settings)
    convert_dataset(options.source, options.folder, str(layout), json.loads(overwrite))
    return 0


def export_settings(settings: list[str], name: str) -> Export:
    """The settings of a format for another program. Raises `cli.UsageError`."""
    values: dict[str, Any] = _values(settings, list(Export.__dataclass_fields__), f" of format={name}")
    values |= {key: values[key].strip("[]").split(",") for key in ("setting", "split") if key in values}
    made: Export = cli.typed(Export, values)
    return made


def _values(settings: list[str], names: list[str], of: str = "") -> dict[str, str]:
    """The values of `name=value` arguments by name. Raises `cli.UsageError` for an unknown name."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in names:
            raise cli.UsageError(f"{setting!r} is not a setting{of}; choose from {'=, '.join(names)}=")
        values[name] = value
    return values
