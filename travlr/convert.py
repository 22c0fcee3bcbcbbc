"""Write a dataset again in another format: `python -m travlr.convert SRC DST format=imagefolder`.

Formats for other programs that ask models, lmms_eval and vlmevalkit, are in `travlr.harness.exports`.

Rows keep all their columns. Pictures keep their bytes, but for PNG pictures that go to `original`, which has JPEG.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("convert", "travlr.convert")

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr import cli
from travlr.files import check_apart
from travlr.formats import LAYOUTS
from travlr.formats.base import Part, suffix_of
from travlr.formats.columns import IMAGE, damage, example_id
from travlr.formats.manifest import MANIFEST, has_manifest, read_manifest
from travlr.formats.writing import Plan, damaged_files, write_dataset
from travlr.generate import GenerateArguments, print_summary
from travlr.harness.exports import EXPORTS, Export, export_dataset
from travlr.scene import SPLITS
from travlr.tasks import config_from_dict

HELP = """\
Write a dataset again in another format. SRC is not changed. Run the same command again to resume after a stop;
lmms_eval and vlmevalkit start again.

settings
  format=         parquet, imagefolder, webdataset or original (the published layout); for other programs that ask
                  models: lmms_eval or vlmevalkit
  workers=0       processes, 0 for one per core
  rows_per_file=  as in SRC, or 8000
  executor=local  local or ray (an optional extra, for more than one machine)
  overwrite=false write a finished dataset in DST again, or replace another

settings of the formats for other programs that ask models
{export}
"""


def _tables(folder: Path, manifest: dict[str, Any], part: Part) -> Iterator[pa.Table]:
    """The rows of a part from a dataset in any format. Those of another program get new ids."""
    number = part.start
    for table in LAYOUTS[manifest["layout"]].read(folder, manifest, part.split, part.start, part.stop):
        ids = [example_id(part.task, part.split, number + row) for row in range(table.num_rows)]
        table = table if has_manifest(folder) else renumbered(table, ids)
        for row, (name, expected) in enumerate(zip(table["id"].to_pylist(), ids, strict=True), number):
            if name != expected:  # files are named after ids
                raise ValueError(f"{folder}: row {row} of {part.split} has the id {name!r}, not {expected!r}")
        number += table.num_rows
        yield table


def renumbered(table: pa.Table, ids: list[str]) -> pa.Table:
    """The rows with other ids, after which their picture files are named, too."""
    files = table["image"].combine_chunks().field("bytes")
    names = [f"{name}.{suffix_of(data.as_py())}" for name, data in zip(ids, files, strict=True)]
    images = pa.StructArray.from_arrays([files, pa.array(names)], fields=list(IMAGE))
    table = table.set_column(table.column_names.index("id"), "id", pa.array(ids))
    return table.set_column(table.column_names.index("image"), "image", images)


def convert_dataset(
    source: Path,
    folder: Path,
    layout: str,
    *,
    rows_per_file: int | None = None,
    workers: int = 0,
    executor: str = "local",
    overwrite: bool = False,
    log: cli.Log = print,
) -> dict[str, Any]:
    """Write the dataset `source` into `folder`, and return its manifest. `rows_per_file=None` keeps the source's.

    Raises `ValueError` where the source is not a finished, sound dataset, and as `write_dataset` does.
    """
    check_apart(source, folder)
    manifest = read_source(source)
    splits = {split: manifest["splits"][split]["rows"] for split in SPLITS if split in manifest["splits"]}
    first = _first_row(source, manifest, next(iter(splits)))
    to_jpeg = layout == "original" and manifest["layout"] != "original"
    plan = Plan(
        folder=folder,
        layout=layout,
        task=first["task"],
        counts=splits,
        rows_per_file=rows_per_file or manifest.get("rows_per_file") or GenerateArguments.rows_per_file,
        about={
            "config": manifest["config"],
            "held_out": manifest.get("held_out"),
            "source": _provenance(source, manifest),
        },
        tables=functools.partial(_tables, source.absolute(), manifest),
        pixels=None if to_jpeg else manifest.get("pixels"),
        suffix=suffix_of(first["image"]["bytes"]),
    )
    return write_dataset(plan, workers=workers, executor=executor, overwrite=overwrite, log=log)


def read_source(folder: Path) -> dict[str, Any]:
    """The manifest of a finished dataset whose files are sound, or what stands in for it (`read_manifest`)."""
    manifest = read_manifest(folder)
    if manifest["config"] is not None:
        with damage(folder / MANIFEST):
            config_from_dict(manifest["config"])
    if damaged := damaged_files(folder, manifest):
        raise ValueError(
            f"{folder / damaged[0]}: damaged or missing; make {folder} again, with the command that made it"
        )
    return manifest


def _provenance(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What the manifest of the new dataset says of its source: digests, never a path."""
    if not has_manifest(folder):
        return {"layout": manifest["layout"], **{file["name"]: file["sha256"] for file in manifest["files"]}}
    return {key: manifest.get(key) for key in ("layout", "content_digest", "versions", "source")}


def _first_row(folder: Path, manifest: dict[str, Any], split: str) -> dict[str, Any]:
    for table in LAYOUTS[manifest["layout"]].read(folder, manifest, split, 0, 1):
        return table.to_pylist()[0]
    raise ValueError(f"{folder}: {split} has no rows")


# Command line ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    about = HELP.format(export="\n".join(f"  {line}" for line in cli.help_lines(Export, ("format", "overwrite"))))
    parser = cli.Parser(
        prog="python -m travlr.convert", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SRC", type=cli.folder, help="folder of a dataset, in any format")
    parser.add_argument("folder", metavar="DST", type=cli.folder, help="folder to write")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="format= is needed; see above")
    options = parser.parse_args(arguments)
    cli.refuse_repeated(options.settings, ())
    layout = next((s.partition("=")[2] for s in options.settings if s.startswith("format=")), None)
    cli.check_choice("format", layout, [*LAYOUTS, *EXPORTS], options.settings)
    cli.without_pandas()
    if layout in EXPORTS:
        names = export_dataset(options.source, options.folder, export_settings(options.settings, layout))
        print(f"{options.folder}: {', '.join(names)}")
        return 0
    values = _values(options.settings, [name for name in GenerateArguments.__dataclass_fields__ if name != "out"])
    job: GenerateArguments = cli.typed(GenerateArguments, values)
    manifest = convert_dataset(
        options.source,
        options.folder,
        job.format,
        rows_per_file=job.rows_per_file if "rows_per_file" in values else None,
        workers=job.workers,
        executor=job.executor,
        overwrite=job.overwrite,
    )
    print_summary(str(options.folder), manifest)
    return 0


def export_settings(settings: list[str], name: str) -> Export:
    """The settings of a format for another program. Raises `cli.UsageError`."""
    values: dict[str, Any] = _values(settings, list(Export.__dataclass_fields__), f" of format={name}")
    values |= {key: values[key].strip("[]").split(",") for key in ("setting", "split") if key in values}
    export: Export = cli.typed(Export, values)
    return export


def _values(settings: list[str], names: list[str], of: str = "") -> dict[str, str]:
    """The values of `name=value` arguments by name. Raises `cli.UsageError` for an unknown name."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in names:
            raise cli.UsageError(f"{setting!r} is not a setting{of}; choose from {'=, '.join(names)}=")
        values[name] = value
    return values
