"""Command-line options that name a model, for heatmaps, variation and try_it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from analysis.probe.config import HEADS
from train.config import SIZES, RegionSettings

MODEL = (
    "a folder or hub name of transformers, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or MODULE:FUNCTION"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options but --model."""
    parser.add_argument("--head", choices=HEADS, help="of models with both (default: itm)")
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="base",
        help="of visualbert:, uniter:, lxmert: and albef: (default: %(default)s, the published architecture)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, gpu or cuda:1 (default: %(default)s)")


def load_settings(options: argparse.Namespace, regions: Path | None = None) -> dict[str, Any]:
    """Arguments for `scorers.loading.load`. regions: a folder of features."""
    settings = {"head": options.head, "size": options.size, "device": options.device}
    if regions is not None:
        settings["regions"] = RegionSettings(source="file", file=str(regions))
    return settings
