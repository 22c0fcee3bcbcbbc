"""Generates datasets: `python -m travlr.generate task=spatiality`. The only module that uses tasks and pictures."""

from __future__ import annotations

import functools
import json
import operator
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from hydra.core.config_store import ConfigStore
from pydantic import Field

from render.image import make_renderer
from render.pictures.renderer import Renderer
from render.text import make_captioner
from travlr.config import Config, check_choice
from travlr.dataset import Example, examples_of, open_dataset
from travlr.formats.columns import IMAGE, OBJECT, ROW_GROUP, SCHEMA, example_id, query_form
from travlr.formats.exports import FORMATS, check_export, export
from travlr.plugins import is_import
from travlr.sampling.sampler import make_sampler
from travlr.scene import SIZES, SPLITS, Batch, World, described
from travlr.settings import Log, PathText, Settings, UsageError, help_lines, hydra_command
from travlr.tasks import TASKS, config_from_dict, query_text, short_name, use_task
from travlr.writing import write_dataset


class Generator:
    """The examples of a config, in any order: as arrays or as table rows.

    Raises `ValueError`, with the name and the limit of a setting, where the config cannot be satisfied.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sampler = make_sampler(config)
        self.renderer = renderer_of(config)
        self._captioner = make_captioner(config.style.caption, config.world)
        queries, world = self.sampler.queries, config.world
        self._texts = pa.array([query_text(q) for q in queries])
        self._forms = pa.array([query_form(q) for q in queries])
        sizes, shapes, colours = zip(*(("", "", ""), *world.kinds), strict=True)
        self._names = [pa.array(names) for names in (colours, shapes, sizes)]
        nouns = [self.sampler.task.nouns(query.args) for query in queries]
        self._queried = np.array([described(world, of_query).any(axis=0) for of_query in nouns])  # by query and kind

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
        ids = [example_id(short_name(self.config.task), split, index) for index in range(start, stop)]
        images = [pa.array(self.renderer.pngs(batch.grid), pa.binary()), pa.array([f"{name}.png" for name in ids])]
        query = pa.array(batch.query)
        columns = {
            "id": pa.array(ids),
            "image": pa.StructArray.from_arrays(images, fields=list(IMAGE)),
            "caption": pa.array(self.captions(batch)),
            "query": self._texts.take(query),
            "answer": pa.array(batch.answer),
            "task": pa.array([self.config.task] * len(ids)),
            "pair": pa.array(map(list, batch.pairs), pa.list_(pa.string())).take(pa.array(batch.pair)),
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
    """The renderer of a config; cached for the next call, as drawing the sprites takes a while."""
    return _renderer(config.style.image, config.world, config.image.cell, tuple(config.image.spans))


@functools.lru_cache(maxsize=4)
def _renderer(style: str, world: World, cell: int, spans: tuple[float, ...]) -> Renderer:
    return make_renderer(style, world, cell, dict(zip(SIZES, spans, strict=True)))


@functools.lru_cache(maxsize=4)
def _generator(config_json: str) -> Generator:
    return Generator(config_from_dict(json.loads(config_json)))


def generator(config: Config) -> Generator:
    """The generator of a config; cached for the next call."""
    return _generator(config.model_dump_json())


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
    use_task(json.loads(config_json)["task"])  # a worker may not know a user's own
    maker = _generator(config_json)
    for begin in range(start, stop, ROW_GROUP):
        yield maker.table(split, begin, min(begin + ROW_GROUP, stop))


class GenerateArguments(Settings):
    """Where and how to write a dataset. None of these settings changes an example."""

    out: PathText | None = Field(None, description="folder to write; null for data/TASK")
    format: Literal["parquet", *FORMATS] = Field("parquet", description=f"parquet, or an export: {', '.join(FORMATS)}")  # type: ignore[valid-type]
    workers: Annotated[int, Field(ge=0)] | Literal["ray"] = Field(
        0, description="processes; 0 for one per core, ray for a Ray cluster (an optional extra)"
    )
    overwrite: bool = Field(False, description="write a finished dataset again, or replace one of another config")


DEFAULT_JOB = GenerateArguments()


def generate_dataset(config: Config, job: GenerateArguments = DEFAULT_JOB, log: Log = print) -> dict[str, Any]:
    """Write the dataset of a config, and return its manifest.

    Raises `ValueError` as `Generator`, `write_dataset` and `check_export` do.
    """
    maker = generator(config)
    about = {
        "config": config.model_dump(mode="json"),
        "held_out": maker.sampler.held_out(),
        "pixels": maker.renderer.digest(),
    }
    counts = {split: getattr(config.count, split) for split in SPLITS}
    tables = functools.partial(tables_of, config.model_dump_json())
    folder = Path(job.out or f"data/{short_name(config.task)}")
    if job.format == "parquet":
        return write_dataset(folder, counts, about, tables, job.workers, job.overwrite, log)
    check_export(job.format, folder, config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as parquet:
        manifest = write_dataset(Path(parquet), counts, about, tables, job.workers, log=log)
        export(job.format, folder, open_dataset(parquet))
    return manifest


# Command line ----------------------------------------------------------------------------------------------------

HELP = """\
python -m travlr.generate task=TASK [NAME=VALUE ...]

Write a dataset of visio-linguistic reasoning: every scene as a picture and as a caption with the same content.
Run the same command again to resume after a stop. Settings and their defaults:

{settings}

examples
  python -m travlr.generate task=spatiality
  python -m travlr.generate task=cardinality out=data/small count.train=1000 count.validation=200 workers=2
  python -m travlr.generate task=quantifiers preset=strict
  python -m travlr.generate task=comparison world.columns=8 world.rows=8 numbers=[1,12]
  python -m travlr.generate -m task=spatiality,cardinality,quantifiers,comparison
"""


def main(values: dict[str, Any]) -> None:
    """Generate a dataset from composed settings."""
    job = GenerateArguments(**{name: values.pop(name) for name in GenerateArguments.model_fields})
    if not values["task"]:
        raise UsageError(f"task= is missing: choose one of {', '.join(TASKS)}")
    config = config_from_dict(values)
    folder = job.out or f"data/{short_name(config.task)}"
    try:
        generator(config)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        manifest = generate_dataset(config, job)
    except UsageError as error:
        of_folder = str(error).startswith(f"{Path(folder)}: ")
        raise UsageError(f"out={error}" if of_folder else str(error)) from None
    if job.format == "parquet":
        print_summary(folder, manifest)
    else:
        print(f"{folder}: a copy of the dataset as {job.format}")


def print_summary(folder: str, manifest: dict[str, Any]) -> None:
    """Print what a command has written, and how to check it."""
    for split, counts in manifest["splits"].items():
        print(f"{split:<10} {counts['rows']:>9,} examples  {counts['true']:>9,} true")
    content = manifest["content_digest"][:16]
    task = manifest["config"]["task"] if manifest["config"] else ""
    command = ["python", "-m", "travlr.audit", folder, *(["--task", task] if is_import(task) else [])]
    print(f"{folder}: content {content}; check it with: {shlex.join(command)}")


def _help_settings() -> str:
    """Every setting with its default: of writing, of all tasks, then what each task changes and adds."""
    lines = [f"task=  # one of {', '.join(TASKS)}, or your own as package.module:Class", *help_lines(DEFAULT_JOB)]
    common = help_lines(Config(), without=("task",))
    lines += ["", "of every task, where its own list below does not say otherwise", *common]
    for name, task in TASKS.items():
        additions = [line for line in help_lines(task.Config(), without=("task",)) if line not in common]
        lines += ["", f"task={name}  # {task.text(task.language().samples()[0])}", *additions]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _defaults(config: type[Config]) -> dict[str, Any]:
    """The defaults of a config. A setting that a preset may change is null: the preset decides."""
    defaults = config().model_dump(mode="json")
    for preset in config.presets.values():
        _set_to_none(defaults, preset)
    return defaults


def _set_to_none(values: dict[str, Any], names: Mapping[str, Any]) -> None:
    for name, inner in names.items():
        if isinstance(inner, Mapping) and values[name]:
            _set_to_none(values[name], inner)
        elif not isinstance(inner, Mapping):
            values[name] = None


def command() -> None:
    """The command of this module, with the arguments of the process."""
    own = (name for argument in sys.argv[1:] for name in argument.removeprefix("task=").split(",") if is_import(name))
    of_tasks: dict[str, Any] = {}
    for name in (*TASKS, *own):
        try:
            node = _defaults(use_task(name).Config) | {"task": name}
        except ValueError as error:
            print(f"generate: {error}", file=sys.stderr)
            sys.exit(2)
        ConfigStore.instance().store(group="task", name=name, node=node, package="_global_")
        of_tasks |= node
    hydra_command(
        "generate",
        {"defaults": ["_self_", {"task": None}], **DEFAULT_JOB.model_dump(), **_defaults(Config)},
        HELP.format(settings=_help_settings()),
        sweep_dir="data",
        main=main,
        of_groups=of_tasks,
    )


if __name__ == "__main__":
    from travlr import generate  # by its own name, from which launchers import it in other processes

    generate.command()
