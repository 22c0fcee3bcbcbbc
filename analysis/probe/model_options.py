"""Command-line options that name a model, for heatmaps, variation and try_it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from train.config import RegionSettings

MODEL = (
    "a folder or hub name of transformers, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or MODULE:FUNCTION"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options but --model."""
    parser.add_argument("--head", choices=("itm", "itc"), help="of models with both (default: itm)")
    parser.add_argument("--device", default="auto", help="auto, cpu, gpu or cuda:1 (default: %(default)s)")


def load_settings(options: argparse.Namespace, regions: Path | None = None) -> dict[str, Any]:
    """Arguments for `train.ask.matchers.loading.load_matcher`. regions: a folder of features."""
    settings: dict[str, Any] = {"head": options.head, "device": options.device}
    if regions is not None:
        settings["regions"] = RegionSettings(source="file", file=str(regions))
    return settings
