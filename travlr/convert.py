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
from pathlib import Path
from typing import Any

from travlr import cli
from travlr.columns import damage
from travlr.dataset import open_dataset
from travlr.exports import FORMATS, check_export, export
from travlr.files import check_apart, hashed
from travlr.generate import print_summary
from travlr.harness.exports import EXPORTS, Export, export_dataset
from travlr.manifest import file_problem
from travlr.original import INDEX, METADATA, count_rows, read_original
from travlr.tasks import add_task_option
from travlr.writing import write_dataset

HELP = """\
Write a dataset in another format. SRC is not changed. An earlier export in DST is replaced.

settings
  format=         imagefolder, webdataset or original (the published layout); parquet for a dataset in the published
                  layout; for lmms-eval: lmms_eval
  overwrite=false with format=parquet: replace another dataset in DST

settings of format=lmms_eval
{export}
"""


def convert_dataset(source: Path, folder: Path, layout: str, overwrite: bool = False, log: cli.Log = print) -> None:
    """Write the dataset `source` into `folder`.

    Raises `ValueError` where the source is not a finished, sound dataset, and as `write_dataset` and `export` do.
    """
    check_apart(source, folder)
    published = (source / INDEX).is_file()
    if published != (layout == "parquet"):
        raise ValueError(f"{source}: only the published layout is converted to format=parquet, and that to no other")
    if published:
        about: dict[str, Any] = {"config": None, "held_out": None, "pixels": None}
        with damage(source):
            about["source"] = {name: hashed(source / name)["sha256"] for name in (INDEX, METADATA)}
        tables = functools.partial(read_original, source.absolute())
        print_summary(str(folder), write_dataset(folder, count_rows(source), about, tables, 1, overwrite, log))
        return
    dataset = open_dataset(source)
    check_export(layout, folder, dataset.manifest["config"])
    if problem := next(filter(None, (file_problem(source, file) for file in dataset.manifest["files"])), ""):
        raise ValueError(f"{source}: {problem}; make it again, with the command that made it")
    export(layout, folder, dataset)
    print(f"{folder}: format={layout}, {sum(map(len, dataset.splits.values())):,} examples")


# Command line ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    about = HELP.format(export="\n".join(f"  {line}" for line in cli.help_lines(Export, ("format", "overwrite"))))
    parser = cli.Parser(
        prog="python -m travlr.convert", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SRC", type=cli.folder, help="a dataset, or one in the published layout")
    parser.add_argument("folder", metavar="DST", type=cli.folder, help="folder to write")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="format= is needed; see above")
    add_task_option(parser)
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
