"""How fast probes are on corpora from scenes: `python tests/benchmarks/bench_probe.py`.

Prints Markdown tables. Rates are of this machine on this day: compare rows of one run, not of two.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers

from analysis.probe.corpora.items import Corpus
from analysis.probe.report.baselines import RULES, baselines
from analysis.probe.report.metrics import measure
from analysis.probe.scenes.corpus import build_corpus, read_corpus
from analysis.probe.scorers.loading import load_scorer
from analysis.probe.scorers.scoring import score_items
from tests.benchmarks.bench_generate import table

SMOKE = 500  # records of a quick test


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def processor_seconds() -> float:
    """Of this process and those it has waited for: what a busy machine does not change."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def quiet(_: str) -> None:
    pass


def building(folder: Path, count: int) -> None:
    """A corpus with all its pictures, on one and on two processes, and once more where it is already there."""
    rows = []
    for kind in ("checklist", "predicate_noun"):
        for workers in (1, 2):
            out = folder / f"{kind}-{workers}"
            make = partial(build_corpus, out, count=count, kind=kind, workers=workers, log=quiet)
            used = processor_seconds()
            took = seconds(make)
            used = processor_seconds() - used
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
            numbers = [f"{took:.1f}", f"{count / took:,.0f}", f"{used:.1f}", f"{seconds(make):.1f}", f"{size:.0f}"]
            rows.append([kind, str(workers), f"{count:,}", *numbers])
            shutil.rmtree(out)
    heads = ["kind", "processes", "records", "seconds", "records/s", "processor seconds", "seconds once more", "MB"]
    table("Building", heads, rows)


def blind_rules(corpus: Corpus) -> None:
    """The blind rules over a corpus."""
    rows = []
    for rule in RULES:
        took = seconds(lambda: baselines(corpus, 0, [rule]))  # noqa: B023
        rows.append([rule, f"{len(corpus.items):,}", f"{took:.2f}"])
    table("Blind rules", ["rule", "items", "seconds"], rows)


def smoke(folder: Path) -> None:
    """From nothing to numbers: a small corpus of each kind, a tiny random CLIP, and the words that are visible."""
    model = tiny_clip(folder / "clip")
    rows = []
    for kind in ("checklist", "predicate_noun"):
        begun = time.perf_counter()
        build_corpus(folder / kind, count=SMOKE, kind=kind, log=quiet)
        corpus = read_corpus(folder / kind, kind)
        steps = [time.perf_counter()]
        answers = score_items(corpus, load_scorer(str(model), device="cpu"), folder / f"{kind}-scores", log=quiet)
        steps.append(time.perf_counter())
        words = baselines(corpus, rules=["visible_words"])["visible_words"]
        measured = [measure(corpus.items, found) for found in (answers, words)]
        steps.append(time.perf_counter())
        parts = (steps[0] - begun, steps[1] - steps[0], steps[2] - steps[1], steps[2] - begun)
        numbers = [f"{part:.1f}" for part in parts]
        rows.append([kind, str(SMOKE), *numbers, *(f"{lines[0].single:.1f}" for lines in measured)])
    heads = ["kind", "records", "building", "CLIP", "words and measures", "seconds", "CLIP single %", "words single %"]
    table("Smoke", heads, rows)


def tiny_clip(folder: Path) -> Path:
    """A CLIP of two layers with random weights, and a tokenizer of letters, as `transformers` saves them."""
    torch.manual_seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters))
    tokenizer = transformers.CLIPTokenizer(vocab={word: n for n, word in enumerate(words)}, merges=[])
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**tower, "vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {**tower, "image_size": 224, "patch_size": 32}
    transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformers.CLIPImageProcessorPil().save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12_000, help="records to build (default: %(default)s)")
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        smoke(folder)
        building(folder, count)
        build_corpus(folder / "floors", count=count, workers=0, log=quiet)
        blind_rules(read_corpus(folder / "floors", "checklist"))


if __name__ == "__main__":
    main()
