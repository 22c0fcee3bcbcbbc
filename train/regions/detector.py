"""Regions of an object detector: any object-detection model of `transformers` with safetensors weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train.cache import Block, Columns, cached_arrays
from train.regions.pictures import PictureSet

BATCH = 16  # pictures


class Detector:
    """A frozen object-detection model with its image processor. name: a folder or a hub name.

    number: regions for each picture, or `exact` for all object queries. Raises `ValueError` if the model cannot be
    loaded, lacks weights, has no safetensors, or has fewer queries than `number`.
    """

    def __init__(self, name: str, number: int | str) -> None:
        from transformers import AutoImageProcessor, AutoModelForObjectDetection

        try:
            self.processor: Any = AutoImageProcessor.from_pretrained(name)  # type: ignore[no-untyped-call]
            self.model, info = AutoModelForObjectDetection.from_pretrained(
                name, use_safetensors=True, output_loading_info=True
            )
        except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
            problem = (str(error).strip() or repr(error)).splitlines()[0]
            raise ValueError(f"regions.detector={name}: cannot be loaded ({problem})") from None
        if missing := sorted(info["missing_keys"]):
            raise ValueError(f"regions.detector={name}: lacks {len(missing)} weights, the first is {missing[0]}")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = self.model.float().eval().requires_grad_(False).to(self.device)
        probe = self._run([np.full((64, 64, 3), 255, np.uint8)])
        queries, self.dimension = probe.logits.shape[1], probe.last_hidden_state.shape[-1]
        self.number = queries if number == "exact" else int(number)
        if self.number > queries:
            raise ValueError(f"regions.number={number}: the detector {name} finds at most {queries}")

    @torch.inference_mode()
    def _run(self, pictures: list[np.ndarray]) -> Any:
        inputs = self.processor(images=pictures, return_tensors="pt", input_data_format="channels_last")
        return self.model(**inputs.to(self.device))

    def detect(self, pictures: list[np.ndarray]) -> Block:
        """`number` regions of B pictures (height, width, 3) uint8, the most confident first.

        features: (B, number, D) float16, the last hidden states of the object queries. boxes: (B, number, 4) float32.
        """
        outputs = self._run(pictures)
        # With a class for "no object" the classes exclude each other; otherwise each has a probability of its own.
        exclusive = outputs.logits.shape[-1] == self.model.config.num_labels + 1
        scores = outputs.logits.softmax(-1)[..., :-1] if exclusive else outputs.logits.sigmoid()
        best = scores.amax(-1).argsort(dim=-1, descending=True, stable=True)[:, : self.number, None]
        states = outputs.last_hidden_state[:, -outputs.logits.shape[1] :]  # YOLOS: its queries come after the patches
        centre, size = outputs.pred_boxes.gather(1, best.expand(-1, -1, 4)).chunk(2, -1)
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).clamp(0, 1)
        features = states.gather(1, best.expand(-1, -1, self.dimension))
        if not torch.isfinite(features).all():
            raise ValueError("regions.detector: its features are not finite numbers")
        return {"features": features.half().cpu().numpy(), "boxes": boxes.float().cpu().numpy()}

    def digest(self) -> bytes:
        """A digest of weights, configuration and `number`."""
        digest = hashlib.blake2b(f"{self.model.config.to_json_string()} {self.processor} {self.number}".encode())
        for name, value in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.digest()


def detector_regions(
    name: str, number: int | str, pictures: PictureSet, cache: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, index and boxes of a `RegionTable`: regions of each distinct picture and of a white one."""
    detector = Detector(name, number)
    first, which, content = pictures.distinct()
    key = hashlib.blake2b(detector.digest() + content, digest_size=16).hexdigest()
    columns: Columns = {
        "features": ((detector.number, detector.dimension), "<f2"),
        "boxes": ((detector.number, 4), "<f4"),
    }

    def make(start: int) -> Iterator[Block]:
        remaining = _distinct_and_blank(pictures, first, start)
        while batch := list(islice(remaining, BATCH)):
            yield detector.detect(batch)

    regions = cached_arrays(cache, f"detector-{key}", len(first) + 1, columns, make, "detecting")
    which = np.append(which, len(first))  # the white picture is the last
    index = which[:, None].astype(np.int32) * detector.number + np.arange(detector.number, dtype=np.int32)
    return regions["features"].reshape(-1, detector.dimension), index, regions["boxes"][which]


def _distinct_and_blank(pictures: PictureSet, first: np.ndarray, start: int) -> Iterator[np.ndarray]:
    """The distinct pictures from number `start` on, then a white one of the same size."""
    yield from pictures.pictures(first[start:])
    shape = next(iter(pictures.pictures(first[:1]))).shape
    yield np.full(shape, 255, np.uint8)
