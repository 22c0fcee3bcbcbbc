"""Reports of probes: the files of made-up results."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from analysis.probe.corpora.items import Answer
from analysis.probe.report.report import write_report
from analysis.probe.report.tables import terminal_summary
from tests.probe_runs import AXES, HOSTILE, answers_of, corpus_of, made, put


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = made(tmp_path_factory.mktemp("probes"))
    write_report(place)
    return place


def test_write_puts_flags_notes_and_coverage_on_the_page(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "broken" in page and HOSTILE not in page
    assert "FLAGGED" in page and f"{AXES[2]}: right by text alone: shorter 100.0 %" in page
    assert f"{AXES[3]}: right by" not in page
    assert "total 52 = scored 48 + missing 4 + unreadable 0 + failed 0" in page
    assert "mixes N1, N2" in page and "A note on" in page


def test_write_draws_figures_and_writes_over_earlier_ones(out: Path) -> None:
    for _ in range(2):
        pictures = list(out.rglob("*.png"))
        assert len(pictures) == 4 and all(Image.open(path).width > 400 for path in pictures)
        write_report(out)


def test_write_folds_baselines_beside_models_alone(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    put(tmp_path, corpus, "", [], {"hash": answers_of(corpus, [True] * 26)})
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert '<details id="made-up-baselines" class="block" open>' in page
    put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "1 model on 1 corpus" in page and '<details id="made-up-baselines" class="block">' in page


def test_write_reports_a_run_without_scores_and_none(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    assert write_report(tmp_path) == []
    put(tmp_path, corpus, "m", [Answer(i.id, "missing", why="gone") for i in corpus.items], {})
    (group,) = write_report(tmp_path)
    assert "total 26 = scored 0 + missing 26" in terminal_summary(group)
    assert not list(tmp_path.glob("figures/*"))
