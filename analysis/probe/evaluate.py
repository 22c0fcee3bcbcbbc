"""VL-CheckList's toolbox: `Evaluate("run.yaml", model=model).start()`, with a model that has `predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from analysis.probe.config import Probe
from analysis.probe.corpora.checklist import read_run_file
from analysis.probe.run import probe
from train.ask.matchers.loading import as_float64
from travlr.settings import Log


class PredictModel(Protocol):
    """The toolbox's interface of a model. Results name it by `model_name()` or, without it, by its class."""

    def predict(self, image_paths: list[str], texts: list[str], src_type: str = "local") -> Mapping[str, Any]:
        """`{"probs": [[p_no, p_match], …]}`, a row for each picture and text; a row may also be p_match alone."""
        ...


class Evaluate:
    """The toolbox's interface: asks a model what a run file says, like `python -m analysis.probe corpus=run.yaml`.

    settings: others of `Probe`, such as `images` and `rules`. Answers, results and report go to OUTPUT.DIR of the run
    file; remove the folder of a model whose weights have changed.
    """

    threshold = 0.5  # of a probability, as the released code has it

    def __init__(self, config_file: Path | str, model: PredictModel, log: Log = print, **settings: Any) -> None:
        self.run, self.model, self.log = read_run_file(config_file), model, log
        self.config = Probe(corpus=str(config_file), out=self.run.out, baselines=False, **settings)
        self.name = str(model.model_name() if hasattr(model, "model_name") else type(model).__name__)

    def start(self) -> dict[str, float | None]:
        """Score the corpus. Returns the accuracy of each axis, and of each of its sources (`Attribute/color, vg`), in
        percent."""
        result = probe(self.config, self, self.log)[-1]
        metric = "itm_accuracy" if self.run.task == "itm" else "single"
        return {line.value: getattr(line, metric) for line in result.lines if line.by.startswith("axis")}

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """The probabilities of a match, BATCH_SIZE at a time."""
        scores, paths = list[float](), [image.info["file"] for image in images]
        for start in range(0, len(paths), self.run.batch_size):
            part = slice(start, start + self.run.batch_size)
            prediction: Any = self.model.predict(paths[part], list(texts[part]), src_type="local")
            rows = prediction["probs"] if isinstance(prediction, Mapping) else prediction[0]  # a list, of some engines
            scores += [float(as_float64(row).reshape(-1)[-1]) for row in rows]
        return np.array(scores)
