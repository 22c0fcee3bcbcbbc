"""A page to try a model: put an object on a background, compare two sentences, see heat maps.

    python -m analysis.try_it --model MODEL [--model ANOTHER]

The page is served at 127.0.0.1 to this computer alone and makes no requests to others. Needs the extra `page`
(`pip install -e .[train,analysis,page]`).
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from analysis.heatmaps import MODELS, draw_heat_map, heat
from analysis.variation import background_of, draw_shape, paste, read_object
from train.ask.matchers.loading import ScoreFunction, load_matcher
from travlr.scene import COLOURS, SHAPES
from travlr.settings import run_command

FIRST, SECOND = "there is a red circle in the picture", "there is a blue star in the picture"
OFFLINE = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}


def compose_picture(
    background: str, seed: float, upload: str | None, shape: str, colour: str, crop: str | None,
    x: float, y: float, size: float,
) -> Image.Image:  # fmt: skip
    """The picture of the page's controls: an uploaded file stands in for the background or the object."""
    ground = background_of(upload or background, seed=int(seed))
    thing = read_object(crop) if crop else draw_shape(shape, colour) if shape in SHAPES else None
    return paste(ground, thing, x, y, size)


def compare_sentences(model: ScoreFunction, picture: Image.Image, first: str, second: str) -> tuple[float, float, str]:
    """The scores of two sentences, and the verdict in one line."""
    a, b = np.asarray(model([picture, picture], [first, second]), np.float64).tolist()
    if a == b:
        return a, b, "Both have the same score."
    verdict = f"The {'first' if a > b else 'second'} fits better, by {abs(a - b):.4g}."
    threshold = getattr(model, "threshold", None)
    if threshold is not None:
        above = [name for name, score in (("first", a), ("second", b)) if score > threshold]
        verdict += f" Above the model's threshold: {', '.join(above) or 'none'}."
    return a, b, verdict


def heat_map_picture(model: ScoreFunction, picture: Image.Image, text: str) -> Image.Image:
    buffer = io.BytesIO()
    draw_heat_map(heat(model, picture, text), picture).savefig(buffer)
    return Image.open(buffer)


def build_page(names: list[str], model_of: Callable[[str], ScoreFunction]) -> Any:
    """The Gradio page for some models, each loaded at its first use. Raises `ValueError` without Gradio."""
    os.environ.update(OFFLINE)  # before it is imported
    try:
        import gradio
    except ImportError:
        raise ValueError("this page needs Gradio; install it with: pip install -e .[page]") from None

    def ask(name: str, first: str, second: str, looks: bool, *controls: Any) -> tuple[Any, ...]:
        try:
            picture, model = compose_picture(*controls), model_of(name)
            a, b, verdict = compare_sentences(model, picture, first, second)
            maps = [heat_map_picture(model, picture, text) if looks else None for text in (first, second)]
        except Exception as error:  # a model or a user's function can raise anything
            raise gradio.Error(f"{type(error).__name__}: {error}") from None
        return picture, f"{a:.4f}", f"{b:.4f}", verdict, *maps

    image = {"type": "pil", "format": "png", "interactive": False, "buttons": ["download", "fullscreen"]}
    with gradio.Blocks(title="Which sentence fits?", analytics_enabled=False) as page:
        gradio.Markdown("# Which sentence fits?\nPut an object on a background, type two sentences, and ask a model.")
        with gradio.Row():
            with gradio.Column():
                model = gradio.Dropdown(names, value=names[0], label="model")
                controls = _picture_controls(gradio)
            with gradio.Column():
                picture = gradio.Image(label="picture", **image)
                first, second = gradio.Textbox(FIRST, label="first sentence"), gradio.Textbox(SECOND, label="second")
                looks = gradio.Checkbox(True, label="show where it looks, too, which takes longer")
                button = gradio.Button("Which fits better?", variant="primary")
                scores = [gradio.Textbox(label=f"score of the {name}") for name in ("first", "second")]
                verdict = gradio.Textbox(label="answer")
        maps = [gradio.Image(label=f"where it looks for the {name}", **image) for name in ("first", "second")]
        for control in controls:
            control.change(compose_picture, controls, picture, show_progress="hidden")
        page.load(compose_picture, controls, picture, show_progress="hidden")
        button.click(ask, [model, first, second, looks, *controls], [picture, *scores, verdict, *maps])
    return page


def _picture_controls(gradio: Any) -> list[Any]:
    """The controls of the picture, in the order of the arguments of `compose_picture`."""
    upload = {"type": "filepath", "file_types": ["image"], "height": 140}
    return [
        gradio.Dropdown(["white", "scene", *COLOURS], value="white", label="background"),
        gradio.Number(0, label="number of the scene", precision=0, minimum=0),
        gradio.File(label="or a background to upload", **upload),
        gradio.Dropdown([*SHAPES, "none"], value="circle", label="object"),
        gradio.Dropdown(list(COLOURS), value="red", label="its colour"),
        gradio.File(label="or an object to upload", **upload),
        gradio.Slider(0, 1, 0.5, step=0.01, label="from left to right"),
        gradio.Slider(0, 1, 0.5, step=0.01, label="from top to bottom"),
        gradio.Slider(0.02, 1, 0.3, step=0.01, label="size"),
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m analysis.try_it", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", required=True, action="append", help=MODELS)
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(options.model))  # Gradio's list takes no other name
    model_of = functools.cache(load_matcher)
    page = build_page(names, model_of)
    model_of(names[0])  # reports a wrong name before the page opens
    import gradio

    theme = gradio.themes.Default(font=("system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace"))  # local
    page.launch(server_name="127.0.0.1", share=False, theme=theme, footer_links=[])


if __name__ == "__main__":
    run_command("try_it", lambda: main(sys.argv[1:]))
