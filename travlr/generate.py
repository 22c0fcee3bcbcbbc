"""Generates datasets: `python -m travlr.generate task=spatiality`. The only module that uses tasks and pictures."""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("generate", "travlr.generate")

import functools
import json
import operator
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from render.image import make_renderer
from render.pictures.renderer import Renderer
from render.text import make_captioner
from travlr import cli
from travlr.columns import IMAGE, OBJECT, ROW_GROUP, SCHEMA, example_id, query_form
from travlr.config import Config, check_choice, check_settings, config_dict, option
from travlr.dataset import Example, examples_of, open_dataset
from travlr.exports import FORMATS, check_export, export
from travlr.sampler import Sampler
from travlr.scene import SPLITS, Batch
from travlr.tasks import TASKS, config_from_dict, make_task, query_text
from travlr.workers import RAY
from travlr.writing import write_dataset


class Generator:
    """The examples of a config, in any order: as arrays or as table rows.

    Raises `ValueError`, with the name and the limit of a setting, where the config cannot be satisfied.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task = make_task(config)
        self.sampler = Sampler(self.task)
        self.renderer = renderer_of(config)
        self._captioner = make_captioner(config.style.caption, config.world)
        queries, world = self.task.queries, config.world
        self._texts = pa.array([query_text(q) for q in queries])
        self._forms = pa.array([query_form(q) for q in queries])
        self._pairs = pa.array([list(p) for p in self.task.pairs], pa.list_(pa.string()))
        sizes, shapes, colours = zip(*(("", "", ""), *world.kinds), strict=True)
        self._names = [pa.array(names) for names in (colours, shapes, sizes)]
        described = [self.task.described([q.args[i] for q in queries]) for i in self.task.object_arguments]
        self._queried = np.any(described, axis=0)  # by query and kind

    def batch(self, split: str, start: int, stop: int) -> Batch:
        """Examples start to stop as arrays. Past `count.train`, `train` goes on without end and without repeats."""
        return self.sampler.examples(split, start, stop)

    def pictures(self, batch: Batch) -> np.ndarray:
        """Pictures of a batch, (N, height, width, 3) uint8."""
        return self.renderer.arrays(batch.grid)

    def captions(self, batch: Batch) -> list[str]:
        return self._captioner.captions(batch)

    def query_texts(self, batch: Batch) -> list[str]:
        return self._texts.take(pa.array(batch.query)).to_pylist()

    def table(self, split: str, start: int, stop: int) -> pa.Table:
        """Examples start to stop with all columns of a dataset."""
        batch = self.batch(split, start, stop)
        ids = [example_id(self.config.task, split, index) for index in range(start, stop)]
        images = [pa.array(self.renderer.pngs(batch.grid), pa.binary()), pa.array([f"{name}.png" for name in ids])]
        query = pa.array(batch.query)
        columns = {
            "id": pa.array(ids),
            "image": pa.StructArray.from_arrays(images, fields=list(IMAGE)),
            "caption": pa.array(self.captions(batch)),
            "query": self._texts.take(query),
            "answer": pa.array(batch.answer),
            "task": pa.array([self.config.task] * len(ids)),
            "pair": self._pairs.take(pa.array(batch.pair)),
            "query_form": self._forms.take(query),
            "objects": self._objects(batch),
        }
        return pa.table(columns, schema=SCHEMA)

    def _objects(self, batch: Batch) -> pa.ListArray:
        occupied = batch.order >= 0
        cells = batch.order[occupied]
        example = np.nonzero(occupied)[0]
        kinds = batch.grid[example, cells]
        rows, columns = np.divmod(cells, self.config.world.columns)
        fields = [names.take(pa.array(kinds)) for names in self._names]
        fields += [pa.array(rows.astype(np.int32)), pa.array(columns.astype(np.int32))]
        fields.append(pa.array(self._queried[batch.query[example], kinds]))
        ends = np.concatenate([[0], occupied.sum(axis=1).cumsum()]).astype(np.int32)
        objects = pa.StructArray.from_arrays(fields, fields=list(OBJECT))
        return pa.ListArray.from_arrays(pa.array(ends), objects, type=pa.list_(OBJECT))


def renderer_of(config: Config) -> Renderer:
    image = config.image
    spans = {size: getattr(image, size) for size in config.world.sizes}
    return make_renderer(config.style.image, config.world, image.cell, spans)


@functools.lru_cache(maxsize=4)
def _generator(config_json: str) -> Generator:
    return Generator(config_from_dict(json.loads(config_json)))


def generator(config: Config) -> Generator:
    """The generator of a config; cached for the next call."""
    return _generator(json.dumps(config_dict(config)))


def make_example(config: Config, split: str, index: int) -> Example:
    """Example number `index` of a split, the same as in the written dataset; a negative one counts from its end.

    `index` may lie beyond `config.count`, where the split goes on with further examples. Raises `ValueError` for an
    unknown split, `IndexError` for an index that it does not have.
    """
    maker = generator(config)
    check_choice("split", split, SPLITS)
    index = operator.index(index)
    count, most = getattr(config.count, split), maker.sampler.limits[split]
    if not -count <= index < most:
        raise IndexError(f"index {index}: {split} has {count} examples, and {most} at most")
    index = index + count if index < 0 else index
    return next(examples_of(maker.table(split, index, index + 1)))


def iterate(config: Config, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
    """Examples from `start` to `stop`, made as they are asked for; without `stop`, all that `count` gives the split.

    `stop` may lie beyond: `iterate(config, "train", config.count.train, 10**6)` streams more training examples.
    Raises `ValueError` for an unknown split.
    """
    check_choice("split", split, SPLITS)
    end = getattr(config.count, split) if stop is None else stop
    for begin in range(start, end, 256):
        yield from examples_of(generator(config).table(split, begin, min(begin + 256, end)))


def tables_of(config_json: str, split: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows start to stop of a split, a thousand at a time."""
    maker = _generator(config_json)
    for begin in range(start, stop, ROW_GROUP):
        yield maker.table(split, begin, min(begin + ROW_GROUP, stop))


@dataclass(frozen=True)
class GenerateArguments:
    """Where and how to write a dataset. None of these settings changes an example."""

    out: str | None = option(None, "folder to write; null for data/TASK")
    format: str = option("parquet", choices=("parquet", *FORMATS))
    workers: int | str = option(0, "processes; 0 for one per core, ray for a Ray cluster (an optional extra)")
    overwrite: bool = option(False, "write a finished dataset in `out` again, or replace one of another config")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.workers != RAY and (type(self.workers) is not int or self.workers < 0):
            raise ValueError(f"workers={self.workers}: must be a whole number of 0 or more, or {RAY}")


def generate_dataset(
    config: Config, job: GenerateArguments = GenerateArguments(), log: cli.Log = print
) -> dict[str, Any]:
    """Write the dataset of a config, and return its manifest.

    Raises `ValueError` as `Generator` and `write_dataset` do.
    """
    maker = generator(config)
    about = {"config": config_dict(config), "held_out": maker.task.held_out(), "pixels": maker.renderer.digest()}
    counts = {split: getattr(config.count, split) for split in SPLITS}
    tables = functools.partial(tables_of, json.dumps(config_dict(config)))
    folder = Path(job.out or f"data/{config.task}")
    if job.format == "parquet":
        return write_dataset(folder, counts, about, tables, job.workers, job.overwrite, log)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as parquet:
        manifest = write_dataset(Path(parquet), counts, about, tables, job.workers, log=log)
        export(job.format, folder, open_dataset(parquet))
    return manifest


# Command line ----------------------------------------------------------------------------------------------------

PRESETS = ("paper", *dict.fromkeys(preset for task in TASKS.values() for preset in task.presets))

PRESET_HELP = (
    "preset=paper  # paper; strict: rules without reasoning fail (docs/strict.md); released: the shortcuts of the",
    "              # published generator",
)

HELP = """\
python -m travlr.generate task=TASK [NAME=VALUE ...]

Write a dataset of visio-linguistic reasoning: every scene as a picture and as a caption with the same content.
Run the same command again to resume after a stop. Settings and their defaults:

{settings}

examples
  python -m travlr.generate task=spatiality
  python -m travlr.generate task=cardinality out=data/small count.train=1000 count.validation=200 workers=2
  python -m travlr.generate task=quantifiers preset=strict
  python -m travlr.generate task=comparison world.columns=8 world.rows=8 'numbers=[1,12]'
"""


def settings(arguments: list[str]) -> tuple[Config, GenerateArguments]:
    """Config and job of `name=value` arguments. Raises `cli.UsageError` for any wrong name or value."""
    values = cli.compose("generate", arguments, free_text=("out",))
    for name, valid in (("task", tuple(TASKS)), ("preset", PRESETS)):
        cli.check_choice(name, values.get(name), valid, arguments)
    task, preset = TASKS[values["task"]], values.pop("preset")
    if preset != PRESETS[0] and preset not in task.presets:
        own = ", ".join((PRESETS[0], *task.presets))
        raise cli.UsageError(f"preset={preset}: the task {task.name} has no such preset; choose one of {own}")
    job = {name: values.pop(name) for name in GenerateArguments.__dataclass_fields__ if name in values}
    return cli.typed(task.Config, values, task.presets.get(preset)), cli.typed(GenerateArguments, job)


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(HELP.format(settings=_help_settings()), end="")
        return 0
    cli.without_pandas()
    config, job = settings(arguments)
    try:
        if job.format != "parquet":
            check_export(job.format, Path(job.out or f"data/{config.task}"), config_dict(config))
        generator(config)
    except ValueError as error:
        raise cli.UsageError(str(error)) from None
    print_summary(job.out or f"data/{config.task}", generate_dataset(config, job))
    return 0


def print_summary(folder: str, manifest: dict[str, Any]) -> None:
    """Print what a command has written, and how to check it."""
    for split, counts in manifest["splits"].items():
        print(f"{split:<10} {counts['rows']:>9,} examples  {counts['true']:>9,} true")
    content = manifest["content_digest"][:16]
    print(f"{folder}: content {content}; check it with: python -m travlr.audit {shlex.quote(folder)}")


def _help_settings() -> str:
    """Every setting with its default: of writing, of all tasks, then what each task changes and adds."""
    lines = [f"task=  # one of {', '.join(TASKS)}", *PRESET_HELP]
    lines += [*cli.help_lines(GenerateArguments), "", "of every task, where its own list below does not say otherwise"]
    common = cli.help_lines(Config, leave_out=("task",))
    lines += common
    for name, task in TASKS.items():
        additions = [line for line in cli.help_lines(task.Config, leave_out=("task",)) if line not in common]
        lines += ["", f"task={name}  # {task.text(task.vocabulary_arguments[0])}", *additions]
    return "\n".join(f"  {line}".rstrip() for line in lines)
