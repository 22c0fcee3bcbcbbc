"""VL-CheckList's toolbox: `Evaluate("run.yaml", model=model).start()`, with a model that has `predict`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from train.ask.matchers.loading import as_float64
from travlr.corpora import item_columns
from travlr.corpora.checklist import Checklist, read_run_file
from travlr.corpora.writing import SPLIT, convert_corpus
from travlr.dataset import open_dataset
from travlr.settings import Log


class PredictModel(Protocol):
    """The toolbox's interface of a model."""

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> Mapping[str, Any]:
        """`{"probs": [[p_no, p_match], ...]}`, a row for each picture and text; a row may also be p_match alone."""
        ...


class Evaluate:
    """The toolbox's interface. The dataset, the answers and the results go to OUTPUT.DIR of the run file.

    images: the folder of the pictures. Answers of earlier calls are used again, by the model's class or its
    `model_name()`: remove the folder of a model whose weights have changed.
    """

    threshold = 0.5  # of a probability, as the toolbox has it

    def __init__(
        self, config_file: Path | str, model: PredictModel, images: str | None = None, log: Log = print
    ) -> None:
        self.path, self.model, self.log = Path(config_file), model, log
        self.run, self.reader = read_run_file(self.path), Checklist(images=images, overwrite=True)
        self.name = str(model.model_name() if hasattr(model, "model_name") else type(model).__name__)
        self.images = self.reader.find_images(self.run.folder)

    def start(self) -> dict[str, float]:
        """Ask the model. Returns the accuracy of each axis, in percent: with TASK itc, of items whose true sentence has
        the higher score; with itm, of sentences."""
        data = Path(self.run.out) / "data"
        convert_corpus(self.path, data, "checklist", self.reader, self.log)
        config = Evaluation(model=self.name, data=str(data), runs=self.run.out, limit=None)
        (row,) = evaluate(config, self.log, matcher=self)
        axis = str(item_columns(open_dataset(data), SPLIT, 1)["axis"][0])
        groups = json.loads(row["groups"]) if row["groups"] else {axis: row}
        return {axis: scores["ranked" if self.run.task == "itc" else "accuracy"] for axis, scores in groups.items()}

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """The probabilities of a match, BATCH_SIZE at a time."""
        paths = [str(self.images / image.info["path"]) for image in images]
        scores: list[float] = []
        for start in range(0, len(paths), self.run.batch_size):
            part = slice(start, start + self.run.batch_size)
            prediction: Any = self.model.predict(paths[part], list(texts[part]), src_type="local")
            rows = prediction["probs"] if isinstance(prediction, Mapping) else prediction[0]  # a list, of some engines
            scores += [float(as_float64(row).reshape(-1)[-1]) for row in rows]
        return np.array(scores)
