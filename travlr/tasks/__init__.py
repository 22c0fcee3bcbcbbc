"""The tasks: one file each, one line each in `TASKS`; or a user's own, `task=my_package.my_module:MyTask`.

Read `base.py` first, which says what a task is, then `cardinality.py`, which has the simplest rule of the paper's four.
`docs/adding-a-task.md` shows the whole file of a new task.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from render.captions.style import short
from travlr.config import Config, check_choice
from travlr.plugins import import_name, is_import
from travlr.scene import Query, Scene
from travlr.settings import UsageError
from travlr.tasks.attribute import AttributeTask
from travlr.tasks.base import BaseTask, Pair
from travlr.tasks.binding import BindingTask
from travlr.tasks.cardinality import CardinalityTask
from travlr.tasks.comparison import ComparisonTask
from travlr.tasks.existence import ExistenceTask
from travlr.tasks.quantifiers import QuantifiersTask
from travlr.tasks.relation import RelationTask
from travlr.tasks.spatiality import SpatialityTask

PAPER = ("spatiality", "cardinality", "quantifiers", "comparison")  # the tasks in the paper's tables and experiments

TASKS: dict[str, type[BaseTask]] = {
    "spatiality": SpatialityTask,
    "cardinality": CardinalityTask,
    "quantifiers": QuantifiersTask,
    "comparison": ComparisonTask,
    "existence": ExistenceTask,
    "attribute": AttributeTask,
    "relation": RelationTask,
    "binding": BindingTask,
}
_OWN: dict[str, type[BaseTask]] = {}  # tasks of users that this process knows, by `module:Class`


def check_name(name: str) -> str:
    """The name, if a task has it or it has the form of a user's own. Raises `ValueError`, with the valid names."""
    if not is_import(name):
        check_choice("task", name, TASKS)
    return name


def use_task(name: str) -> type[BaseTask]:
    """The class of a task that the user named; of `module:Class`, this imports the module.

    Raises `ValueError` for an unknown task, or where that is no task.
    """
    if is_import(name):
        import_name("task", name)
    return task_class(name)


def task_class(name: str) -> type[BaseTask]:
    """The class of a task that a file may have named: a module is not imported for it.

    Raises `ValueError` for an unknown name, with the valid ones.
    """
    check_name(name)
    if name in TASKS:
        return TASKS[name]
    if name not in _OWN:
        module, _, class_name = name.partition(":")
        if module not in sys.modules:
            raise UsageError(f"task={name}: is a user's own, and files import no code; add --task {name}")
        task = vars(sys.modules[module]).get(class_name)
        if not (isinstance(task, type) and issubclass(task, BaseTask)):
            raise ValueError(f"task={name}: is no task; it must be a class on top of SimpleTask or Task")
        _OWN[name] = task
    return _OWN[name]


def is_task(name: str) -> bool:
    """Whether this is the name of a task."""
    try:
        task_class(name)
    except ValueError:
        return False
    return True


def add_task_option(parser: argparse.ArgumentParser) -> None:
    """An option of commands that read what others have written: a task outside this project, which they may import."""

    def import_task(name: str) -> type[BaseTask]:
        try:
            return use_task(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    parser.add_argument("--task", metavar="MODULE:CLASS", type=import_task, help="the task, if it is your own")


def short_name(name: str) -> str:
    """The name of a task in ids and folders: of `module:Class`, the class."""
    return name.rpartition(":")[2]


def query_text(query: Query) -> str:
    """The English of a query."""
    return task_class(query.task).text(query.args)


def parse_query(text: str) -> Query:
    """The query of a text. Raises `ValueError` for a text of no task."""
    problem = ValueError(f"not a query: {short(text)}")
    for name, task in {**TASKS, **_OWN}.items():
        try:
            args = task.language().parse(text)
        except ValueError as error:  # the words of another task may fit, too
            problem = error
            continue
        if args is not None and task.text(args) == text:
            return Query(name, args)
    raise problem


def truth(scene: Scene, query: Query) -> tuple[bool, Pair]:
    """Answer and pair of a query in a scene. Raises `ValueError` where the query does not apply to the scene."""
    return task_class(query.task).answer_and_pair(scene, query.args)


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """The config of a manifest. Raises `ValueError` where it is none."""
    return task_class(values["task"]).Config.model_validate(values)
