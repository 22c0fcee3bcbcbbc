"""VL-CheckList's toolbox: `Evaluate("run.yaml", model=model).start()`, with a model that has `predict`.

DIR/TASK/AXIS_SOURCE.json    the published keys, the coverage and the intervals of an axis and source
DIR/TASK/AXIS_SOURCE.jsonl   each of its items with its scores, as `analysis.probe.scorers.scoring` has them
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from analysis.probe.config import RULES
from analysis.probe.corpora.checklist import read_corpus, read_run_file
from analysis.probe.corpora.items import STATUSES, Answer, Corpus, Item, as_float64, find_picture
from analysis.probe.corpora.selection import answerable, first_sentences, grouped, head, sample
from analysis.probe.report.metrics import itm_shares, measure
from analysis.probe.report.outcomes import itm_counts
from analysis.probe.scorers.scoring import ANSWERS, read_answers, score
from travlr.cli import Log
from travlr.config import check_choice
from travlr.files import close, locked, put_file

THRESHOLD = 0.5  # of a probability, as the released code has it


class PredictModel(Protocol):
    """The toolbox's interface of a model. Results name it by `model_name()` or, without it, by its class."""

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> Mapping[str, Any]:
        """`{"probs": [[p_no, p_match], …]}`, a row for each picture and text; a row may also be p_match alone."""
        ...


class Evaluate:
    """The toolbox's interface: `Evaluate("run.yaml", model=model).start()`.

    An interrupted run continues where it stopped; results of an earlier run are replaced. Items at which the
    model fails are counted; the others are scored.

    folder, images: as of `read_corpus`. rules: `corrected` takes a sample of MAX_NUM // 2 records, drawn from the seed,
    and all their sentences; `published` takes those that the released code takes. OUTPUT.DIR is relative to the current
    folder. log: is called with lines of progress. Raises `ValueError` as `read_run_file` and `read_corpus`.
    """

    def __init__(
        self,
        config_file: Path | str | None = None,
        model: PredictModel | None = None,
        *,
        config: Path | str | None = None,  # its name in the toolbox's README
        folder: Path | str = ".",
        images: Path | str | None = None,
        rules: str = "corrected",
        seed: int = 0,
        log: Log = print,
    ) -> None:
        file = config if config_file is None else config_file
        if file is None or model is None:
            raise ValueError("Evaluate needs the path of a run file and a model")
        if not callable(getattr(model, "predict", None)):
            raise ValueError(
                f"Evaluate needs a model with predict(image_paths, texts, src_type); {type(model)} has none"
            )
        check_choice("rules", rules, RULES)
        self.run, self.model, self.rules, self.seed, self.log = read_run_file(file), model, rules, seed, log
        self.corpus = read_corpus(folder, self.run.types, self.run.data, images)
        if not self.corpus.items:
            raise ValueError(f"{folder}: has no records to score; {'; '.join(self.corpus.notes)}")
        self.name = str(model.model_name() if hasattr(model, "model_name") else type(model).__name__)

    def start(self) -> dict[str, dict[str, Any]]:
        """Score the corpus and write the results. Returns them by `AXIS_SOURCE`."""
        for note in (*(f"{key}: means nothing in a run file" for key in self.run.unknown), *self.corpus.notes):
            self.log(note)
        out = Path(self.run.out) / self.run.task
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            results = {}
            for (axis, source), group in grouped(self.corpus.items).items():
                name = f"{axis.replace('/', '_')}_{source}"
                results[name] = self._evaluate(out, name, replace(self.corpus, items=tuple(group)))
                self.log(_line(name, results[name]))
            close(out)
        return results

    def _evaluate(self, out: Path, name: str, corpus: Corpus) -> dict[str, Any]:
        """Score and measure an axis and source; write its files."""
        run, start, whole = self.run, time.monotonic(), corpus
        if self.rules == "corrected":
            whole = answerable(corpus)
            part = sample(whole, run.most and max(run.most // 2, 1), self.seed)
        else:
            part = first_sentences(head(corpus, run.most, run.task))
        key = hashlib.sha256(f"{part.digest} {self.name}".encode()).hexdigest()[:8]
        unfinished = out / f"{name}.{key}.unfinished"
        sentences = max(2, run.batch_size)  # a call has at least both sentences of a record; see `_predict`
        fingerprint = {"corpus": part.digest, "model": self.name}
        answers = score(part, self._predict, unfinished, batch_size=sentences, fingerprint=fingerprint, log=self.log)
        rows = [row for item, answer in zip(part.items, answers, strict=True) for row in self._rows(item, answer)]
        right, wrong = ([row for row in rows if row["result"] == result] for result in ("correct", "incorrect"))
        draw, place = random.Random(f"{self.seed}/{name}"), corpus.items[0].id.rpartition("/")[0] + "/"
        result = {
            "sample_correct_outputs": draw.sample(right, min(run.examples, len(right))),
            "sample_incorrect_outputs": draw.sample(wrong, min(run.examples, len(wrong))),
            **self._numbers(part, answers),
            "left_out": len(corpus.items) - len(whole.items),
            "refused": sum(line.startswith(place) for line in corpus.refused),
            "model_name": self.name,
            "task": run.task,
            "rules": self.rules,
            "eval_time": time.monotonic() - start,
            "seed": self.seed,
            "corpus": part.digest,
            "first_failure": next((answer.why for answer in answers if answer.status in ("unreadable", "failed")), ""),
        }
        lines = {record.item.id: record.line for record in read_answers(unfinished / ANSWERS)}
        put_file(out / f"{name}.jsonl", b"".join(lines[item.id] for item in part.items))
        put_file(out / f"{name}.json", json.dumps(result, indent=4).encode())
        shutil.rmtree(unfinished)  # the next start scores again, as the weights may have changed
        return result

    def _path(self, image: str) -> str:
        return str(find_picture(self.corpus.pictures or Path(), image))

    def _predict(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """The model as a scorer: `predict` gets BATCH_SIZE paths at a time."""
        paths, size = [self._path(image.info["path"]) for image in images], self.run.batch_size
        scores: list[float] = []
        for start in range(0, len(paths), size):
            part = paths[start : start + size]
            prediction = self.model.predict(part, list(texts[start : start + size]), src_type="local")
            scores += _matches(prediction, len(part))
        return np.array(scores)

    def _numbers(self, corpus: Corpus, answers: Sequence[Answer]) -> dict[str, Any]:
        """The metrics of an axis and source: accuracies as parts of 1 (None if nothing was scored) and counts of items.

        total_acc for ITC: published rules compare the first true sentence with the first false one; corrected rules
        compare means, and accuracy_all and accuracy_best compare all true with all false ones, and the best of each.
        For ITM: the share of sentences on the right side of 0.5, counted in tp, fn, fp and tn. interval: of total_acc
        in ITC. Ties are never right. number_of_data: as in the released code, the number of items (ITC) or sentences
        (ITM) whose picture exists.
        """
        run, published = self.run, self.rules == "published"
        lines = {
            how: measure(corpus.items, answers, sentences=how, tolerance=0.0, seed=self.seed)[0]
            for how in (("first",) if published else ("mean", "all", "best"))
        }
        line = next(iter(lines.values()))
        numbers: dict[str, Any] = {name: getattr(line, name) for name in ("total", *STATUSES, "clusters", "ties")}
        present = [item for item, answer in zip(corpus.items, answers, strict=True) if answer.status != "missing"]
        if run.task == "itc":
            interval = [_part(line.single_low), _part(line.single_high)]
            numbers |= {"total_acc": _part(line.single, 4), "number_of_data": len(present), "interval": interval}
            return numbers | {f"accuracy_{how}": _part(line.single) for how, line in lines.items()}
        texts = sum(len(item.positives) + len(item.negatives) for item in present)
        if published and run.most and texts > run.most:  # an odd MAX_NUM ends between the sentences of the last item
            texts, answers = run.most, [*answers[:-1], replace(answers[-1], negatives=())]
        counts = itm_counts(answers, THRESHOLD).sum(axis=0)
        shares = itm_shares(counts)
        numbers |= {"total_acc": _part(shares.pop("itm_accuracy"), 4), "number_of_data": texts}
        numbers |= {name.removeprefix("itm_"): _part(value) for name, value in shares.items()}
        return numbers | dict(zip(("tp", "fn", "fp", "tn"), counts.tolist(), strict=True))

    def _rows(self, item: Item, answer: Answer) -> Iterator[dict[str, Any]]:
        """The published output of an item: for ITC the true sentence with the lowest and the false one with the highest
        score, for ITM each sentence."""
        if answer.status != "scored":
            return
        path = self._path(item.image)
        true = list(zip(answer.positives, item.positives, strict=True))
        false = list(zip(answer.negatives, item.negatives, strict=True))
        if self.run.task == "itm":
            for n, (value, text) in enumerate(true + false):
                result = "correct" if (value > THRESHOLD) == (n < len(true)) else "incorrect"
                yield {"img_path": path, "score": round(value, 4), "text": text, "result": result}
            return
        low, positive = min(true, key=lambda pair: pair[0])
        high, negative = max(false, key=lambda pair: pair[0])
        yield {
            "img_path": path, "pos_score": round(low, 4), "pos_txt": positive,
            "neg_score": round(high, 4), "neg_txt": negative, "result": "correct" if low > high else "incorrect",
        }  # fmt: skip


def _part(percent: float | None, digits: int | None = None) -> float | None:
    if percent is None:
        return None
    return percent / 100 if digits is None else round(percent / 100, digits)


def _matches(prediction: Any, count: int) -> list[float]:
    """The probabilities of a match in a prediction: in a dictionary or, from some engines, in the first entry of a
    list."""
    rows = prediction["probs"] if isinstance(prediction, Mapping) else prediction[0]
    values = [as_float64(row) for row in rows]  # a number or a pair of numbers, as a list, an array or a tensor
    if len(values) != count:
        raise ValueError(f"predict returned {len(values)} rows for {count} pictures and texts")
    return [float(value[1] if value.ndim else value) for value in values]


def _line(name: str, result: Mapping[str, Any]) -> str:
    """A result in one line."""
    accuracy = "nothing was scored" if result["total_acc"] is None else f"accuracy {result['total_acc']:.4f}"
    parts = " + ".join(f"{result[status]} {status}" for status in STATUSES)
    notes = f", {result['left_out']} left out (false sentence equals a true one)" if result["left_out"] else ""
    notes += f", {result['refused']} malformed records left out" if result["refused"] else ""
    notes += f"; first failure: {result['first_failure']}" if result["first_failure"] else ""
    return f"{name}: {accuracy}, {result['ties']} ties; total {result['total']} = {parts}{notes}"
