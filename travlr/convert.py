"""Write a dataset in another format, or other people's corpus as a dataset.

`python -m travlr.convert SRC DST format=imagefolder`, `python -m travlr.convert CORPUS DST images=DIR`.

The files for lmms-eval are made in `travlr.harness.lmms`, those for trainers in `travlr.finetuning.exports`.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any, Literal

from travlr.corpora import KINDS, is_corpus
from travlr.corpora.writing import convert_corpus
from travlr.dataset import open_dataset
from travlr.files import file_hash
from travlr.finetuning.exports import WRITERS, TrainerExport, export_rows
from travlr.formats.columns import report_damage
from travlr.formats.exports import FORMATS, check_apart, check_export, export
from travlr.formats.manifest import EXPORTED, MANIFEST, check_files
from travlr.formats.original import INDEX, METADATA, count_rows, read_original
from travlr.generate import print_summary
from travlr.harness.lmms import Export, export_dataset
from travlr.settings import Log, Settings, UsageError, help_lines, run_command
from travlr.tasks import add_task_option
from travlr.writing import write_dataset

HELP = """\
Write a dataset in another format, or other people's corpus as a dataset. SRC is not changed. An earlier export in DST
is replaced.

settings of a dataset
  format=         imagefolder, webdataset or original (the published layout); parquet for a dataset in the published
                  layout; for lmms-eval: lmms_eval; to train on: trl (Parquet), messages (JSON lines for ms-swift,
                  LLaMA-Factory and hosted fine-tuning)
  overwrite=false with format=parquet: replace another dataset in DST

settings of format=lmms_eval alone
  setting=image,caption,image+caption   split=test_ind,test_ood   form=true_false   prompt=direct

settings of format=trl and format=messages
  setting=image,caption,image+caption   split=train,validation   form=true_false   prompt=direct
  pictures=files  of format=messages: in a folder; inline: in the lines, as hosted fine-tuning takes them
"""


def _help() -> str:
    """With the settings of each kind of corpus."""
    lines = [HELP]
    for kind, reader in KINDS.items():
        lines += [f"settings of a corpus ({kind}): {reader.about}", *(f"  {line}" for line in help_lines(reader())), ""]
    return "\n".join(lines)


class Conversion(Settings):
    """The settings of formats; `Export` and `TrainerExport` have more of them."""

    format: Literal["parquet", *FORMATS, "lmms_eval", *WRITERS]  # type: ignore[valid-type]
    overwrite: bool = False


def convert_dataset(source: Path, folder: Path, layout: str, overwrite: bool = False, log: Log = print) -> None:
    """Write the dataset `source` into `folder`.

    Raises `ValueError` where the source is not a finished, sound dataset, and as `write_dataset` and `export` do.
    """
    check_apart(source, folder)
    published = (source / INDEX).is_file()
    if published != (layout == "parquet"):
        raise UsageError(f"{source}: only the published layout is converted to format=parquet, and that to no other")
    if published:
        about: dict[str, Any] = {"config": None, "held_out": None, "pixels": None}
        with report_damage(source):
            about["source"] = {name: file_hash(source / name)["sha256"] for name in (INDEX, METADATA)}
        tables = functools.partial(read_original, source.absolute())
        print_summary(str(folder), write_dataset(folder, count_rows(source), about, tables, 1, overwrite, log))
        return
    dataset = open_dataset(source)
    if layout == "original" and is_corpus(dataset):
        raise ValueError("format=original: holds scenes of this project alone")
    check_export(layout, folder, dataset.config)
    check_files(source, dataset.manifest["files"])
    export(layout, folder, dataset)
    print(f"{folder}: format={layout}, {sum(map(len, dataset.splits.values())):,} examples")


def kind_of(source: Path) -> str | None:
    """The kind of a corpus; None for a dataset. Raises `UsageError` for what is neither."""
    if not source.exists():
        raise UsageError(f"{source}: there is no such file or folder")
    if any((source / name).is_file() for name in (MANIFEST, EXPORTED, INDEX)):
        return None
    if kind := next((kind for kind, reader in KINDS.items() if reader.accepts(source)), None):
        return kind
    raise UsageError(f"{source}: neither a dataset nor a corpus of a kind that this program reads ({', '.join(KINDS)})")


# Command line ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m travlr.convert", description=_help(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SRC", type=Path, help="a dataset, or a corpus")
    parser.add_argument("folder", metavar="DST", type=Path, help="folder to write")
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="a dataset needs format=")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    values: dict[str, Any] = dict(setting.partition("=")[::2] for setting in options.settings)
    if values.get("format") == "lmms_eval":
        names = export_dataset(options.source, options.folder, Export(**values))
        print(f"{options.folder}: {', '.join(names)}")
    elif values.get("format") in WRITERS:
        export_rows(options.source, options.folder, TrainerExport(**values))
        print(f"{options.folder}: format={values['format']}")
    elif "format" not in values and (kind := kind_of(options.source)):
        manifest = convert_corpus(options.source, options.folder, kind, KINDS[kind](**values))
        for note in manifest["corpus"]["notes"]:
            print(note)
        print_summary(str(options.folder), manifest)
    else:
        settings = Conversion(**values)
        convert_dataset(options.source, options.folder, settings.format, settings.overwrite)
    return 0


if __name__ == "__main__":
    models: list[type[Settings]] = [Conversion, Export, TrainerExport, *KINDS.values()]
    names = {name for model in models for name in model.model_fields}
    run_command("convert", lambda: sys.exit(main(sys.argv[1:])), names)
