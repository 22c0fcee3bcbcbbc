"""Command-line options that name a model which scores a picture and a sentence, for heat maps, variation and try-it."""

from __future__ import annotations

import argparse
from typing import Any

from train.ask.matchers.loading import load_matcher
from train.config import RegionSettings


def add_model_options(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Add the options that `load_model_of` reads. options: further ones of `--model`."""
    names = (
        "a folder or hub name of CLIP's kind, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, MODULE:FUNCTION"
    )
    parser.add_argument("--model", required=True, help=names, **options)
    parser.add_argument("--head", choices=("itm", "itc"), help="of models with both (default: the model's own)")
    parser.add_argument(
        "--regions", metavar="FOLDER", help="of visualbert, uniter and lxmert: UNITER's .npz, by picture"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, gpu or cuda:1 (default: %(default)s)")


def load_model_of(options: argparse.Namespace, name: str | None = None) -> Any:
    """The matcher of the options. name: in place of `--model`."""
    regions = RegionSettings(source="file", file=options.regions) if options.regions else None
    return load_matcher(name or options.model, device=options.device, head=options.head, regions=regions)
