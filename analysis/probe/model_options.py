"""The options by which the commands to try a model by hand name it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from analysis.probe.config import HEADS, SIZES
from train.config import RegionSettings
from travlr.cli import UsageError

MODEL = (
    "a folder or hub name of transformers, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or MODULE:FUNCTION"
)


def add_options(options: argparse.ArgumentParser) -> None:
    """All but --model, which one command takes several times."""
    options.add_argument("--head", choices=HEADS, help="of models with both (default: itm)")
    told = "of visualbert:, uniter:, lxmert: and albef: (default: %(default)s, the published architecture)"
    options.add_argument("--size", choices=SIZES, default="base", help=told)
    told = (
        "what visualbert:, uniter: and lxmert: see of a picture: regions of this object-detection model of transformers"
    )
    options.add_argument(
        "--detector", metavar="MODEL", help=f"{told} (default: a 6 x 6 grid, by the recogniser of scenes)"
    )
    options.add_argument("--device", default="auto", help="auto, cpu, gpu or cuda:1 (default: %(default)s)")


def settings_of(given: argparse.Namespace, regions: Path | None = None) -> dict[str, Any]:
    """What `scorers.load` takes beside a name. regions: a file of features, if the command takes one."""
    settings = {"head": given.head, "size": given.size, "device": given.device}
    if given.detector is not None and regions is not None:
        raise UsageError("--detector and --regions: give one of them")
    if given.detector is not None:
        settings["regions"] = RegionSettings(source="detector", detector=given.detector)
    if regions is not None:
        settings["regions"] = RegionSettings(source="file", file=str(regions))
    return settings
