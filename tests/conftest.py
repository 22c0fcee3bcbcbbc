"""Fixtures that several files of tests use."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hypothesis import HealthCheck, settings

# There is a process of tests on each core: threads of OpenMP (scikit-learn, torch, BLAS) would wait for each other. Set
# before any of these is imported; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No property may fail because the machine is busy.
settings.register_profile("travlr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("travlr")

SLOWEST = (
    "test_train_command",
    "test_train",
    "test_harness",
    "test_new_task",
    "test_evaluation",
    "test_report",
    "test_models",
    "test_new_model",
    "test_resume",
    "test_tasks",
    "test_two_objects",
    "test_styles",
    "test_styled_data",
    "test_baselines",
    "test_questions",
    "test_notebooks",
    "test_writing",
    "test_audit",
    "test_browse",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files come first, so that at the end no core waits for one of them. Needs `--no-loadscope-reorder`."""
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="module")
def unaudited() -> Iterator[None]:
    """For runs on small datasets that other tests audit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.prepare.audit", lambda folder: [])
        yield


@pytest.fixture(scope="module")
def rules_not_fitted() -> Iterator[None]:
    """For runs, evaluations and pages: to fit the baselines of their datasets takes seconds."""
    from travlr.baselines import RuleScore, scoring

    splits = ("validation", "test_ind", "test_ood")
    scores = [
        RuleScore(rule, "binding", split, percent, (percent - 5, percent + 5), percent, 20.0, 100)
        for rule, percent in (("query", 50.0), ("total", 60.0)) for split in splits
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "score_baselines", lambda folder: scores)
        yield


@pytest.fixture(scope="module")
def tables_made_once() -> Iterator[None]:
    """For tests of files, which write the rows of a few datasets again and again."""
    from travlr.formats import original
    from travlr.generate import Generator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generator, "table", functools.lru_cache(4096)(Generator.table))
        patch.setattr(original, "jpeg", functools.lru_cache(4096)(original.jpeg))
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models so small are fastest on one thread; sums then are the same each time."""
    import torch  # only where it is asked for: most tests here need none

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def by_format(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same small dataset in each format."""
    from tests.helpers import write
    from travlr.formats.exports import FORMATS

    base = tmp_path_factory.mktemp("formats")
    for layout in ("parquet", *FORMATS):
        write(base / layout, format=layout)
    return {layout: base / layout for layout in ("parquet", *FORMATS)}


@pytest.fixture(autouse=True)
def settings_of_commands_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is run in this process registers its groups of settings for this test alone."""
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", dict(store.repo))
