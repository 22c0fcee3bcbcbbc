"""The tasks: one file each, one line each in `TASKS`.

Read `base.py` first, which defines the interface of a task, then `cardinality.py`, which has the simplest rule.
`docs/adding-a-task.md` shows the whole file of a new task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from render.captions.style import short
from travlr.config import Config, check_choice
from travlr.scene import Query, Scene
from travlr.tasks.base import Pair, Task
from travlr.tasks.cardinality import CardinalityTask
from travlr.tasks.comparison import ComparisonTask
from travlr.tasks.quantifiers import QuantifiersTask
from travlr.tasks.spatiality import SpatialityTask

PAPER = ("spatiality", "cardinality", "quantifiers", "comparison")  # the tasks in the paper's tables and experiments

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        SpatialityTask,
        CardinalityTask,
        QuantifiersTask,
        ComparisonTask,
    )
}


def task_class(name: str) -> type[Task]:
    """The class of a task. Raises `ValueError` for an unknown name, with the valid ones."""
    check_choice("task", name, TASKS)
    return TASKS[name]


def make_task(config: Config) -> Task:
    """The task of a config. Raises `ValueError`, naming the setting, for a config that leaves nothing to train on."""
    return task_class(config.task)(config)


def query_text(query: Query) -> str:
    """The English of a query."""
    return task_class(query.task).text(query.args)


def parse_query(text: str) -> Query:
    """The query of a text. Raises `ValueError` for a text of no task."""
    problem = ValueError(f"not a query: {short(text)}")
    for name, task in TASKS.items():
        if match := task.pattern.fullmatch(text):
            try:
                query = Query(name, task.parse(match))
            except ValueError as error:  # the pattern of another task may match, too
                problem = error
                continue
            if query_text(query) == text:
                return query
    raise problem


def truth(scene: Scene, query: Query) -> tuple[bool, Pair]:
    """Answer and pair of a query in a scene. Raises `ValueError` where the query does not apply to the scene."""
    return task_class(query.task).truth(scene, query.args)


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """The config of a manifest. Raises `ValueError` where it is none."""
    return task_class(values["task"]).Config.model_validate(values)
