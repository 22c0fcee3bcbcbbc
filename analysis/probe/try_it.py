"""A page to try a model: put an object on a background, type two sentences, see which fits better and where it looks.

    python -m analysis.probe.try_it --model MODEL [--model ANOTHER] [--port 7860]

For this computer alone: the page is served at 127.0.0.1 and asks nothing of the network. Needs the extra `page`
(`pip install -e .[train,analysis,page]`).
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from analysis.probe.items import Scorer
from analysis.probe.pasting import placed, shape_picture
from render.image import Renderer
from travlr.cli import Parser, UsageError, run
from travlr.scene import COLOURS, SHAPES, World

SIDE = 384  # pixels of the white background and of the scene
CELL = 64  # of the scene
SPAN = 0.7  # of a cell that an object of the scene spans
BACKGROUNDS = ("white", "scene", "upload")
OBJECTS = ("none", "shape", "upload")
FIRST, SECOND = "there is a red circle in the picture", "there is a blue star in the picture"
# Nothing may be fetched from elsewhere, whoever runs this.
OFFLINE = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
FONTS = ("system-ui", "sans-serif")


# Pictures -----------------------------------------------------------------------------------------------------------


def scene_picture(seed: int) -> Image.Image:
    """A scene of eight objects, none of a shape or colour that depends on anything but the seed."""
    world = World()
    random = np.random.default_rng(seed)
    grid = np.zeros(world.cells, np.int64)
    grid[random.permutation(world.cells)[:8]] = random.integers(1, len(world.kinds) + 1, 8)
    return Image.fromarray(Renderer(world, CELL, {"medium": SPAN}).arrays(grid[None])[0])


def composed(
    background: str,
    seed: int,
    uploaded: Image.Image | None,
    thing: str,
    shape: str,
    colour: str,
    crop: Image.Image | None,
    x: float,
    y: float,
    scale: float,
) -> Image.Image:
    """The picture that the page's controls describe. Raises ValueError where an upload is chosen and none is there."""
    if background == "upload" and uploaded is None:
        raise ValueError("background=upload: upload a picture first")
    if thing == "upload" and crop is None:
        raise ValueError("object=upload: upload a picture of the object first")
    if background == "upload":
        assert uploaded is not None
        ground = uploaded
    else:
        ground = scene_picture(int(seed)) if background == "scene" else Image.new("RGB", (SIDE, SIDE), "white")
    put = {"none": None, "upload": crop}.get(thing)
    if thing == "shape":
        put = shape_picture(shape, colour, max(8, round(scale * min(ground.size))))
    return placed(ground, put, x, y, scale)


# Answers ------------------------------------------------------------------------------------------------------------


def answered(scorer: Scorer, picture: Image.Image, first: str, second: str) -> tuple[float, float, str]:
    """The scores of two sentences, and in a line which fits better.

    Raises ValueError for an empty sentence and for a score that is not a finite number.
    """
    if not first.strip() or not second.strip():
        raise ValueError("type two sentences")
    scores = np.asarray(scorer([picture, picture], [first, second]), np.float64)
    if scores.shape != (2,) or not np.isfinite(scores).all():
        raise ValueError(f"the model gave {scores.tolist()} for two sentences")
    a, b = scores.tolist()
    if a == b:
        return a, b, "Both score alike."
    verdict = f"The {'first' if a > b else 'second'} fits better, by {abs(a - b):.4g}."
    threshold = getattr(scorer, "threshold", None)
    if threshold is not None:
        verdict += (
            f" Said to match: {', '.join(w for w, s in (('first', a), ('second', b)) if s > threshold) or 'none'}."
        )
    return a, b, verdict


def looked(scorer: Scorer, picture: Image.Image, first: str, second: str) -> Image.Image:
    """The heat maps of both sentences, the first above the second."""
    from analysis.probe.heatmaps import draw, heat

    drawn = []
    for text in (first, second):
        figure = draw(heat(scorer, picture, text), picture)
        drawn.append(raster(figure))
    whole = Image.new("RGB", (max(one.width for one in drawn), sum(one.height for one in drawn)), "white")
    top = 0
    for one in drawn:
        whole.paste(one, (0, top))
        top += one.height
    return whole


def raster(figure: Any) -> Image.Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


# The page -----------------------------------------------------------------------------------------------------------


def page(names: list[str], scorer_of: Callable[[str], Scorer]) -> Any:
    """The Gradio page for some models, of which each is loaded when it is first asked. Raises ValueError without
    Gradio."""
    os.environ.update(OFFLINE)  # before it is imported
    try:
        import gradio
    except ImportError:
        raise ValueError("this page needs Gradio; install it with: pip install -e .[page]") from None

    def told(error: ValueError) -> Any:
        return gradio.Error(str(error), print_exception=False)

    def show(*controls: Any) -> Any:
        try:
            return composed(*controls)
        except ValueError:  # such as an upload that is yet to come; asking tells of it
            return gradio.skip()

    def ask(name: str, first: str, second: str, *controls: Any) -> tuple[Image.Image, str, str, str, Image.Image]:
        try:
            picture, scorer = composed(*controls), scorer_of(name)
            a, b, verdict = answered(scorer, picture, first, second)
            return picture, f"{a:.4f}", f"{b:.4f}", verdict, looked(scorer, picture, first, second)
        except ValueError as error:
            raise told(error) from None

    def only_for(choice: Any, value: str, control: Any) -> None:
        choice.change(lambda chosen: gradio.update(visible=chosen == value), choice, control, show_progress="hidden")

    upload = {"type": "pil", "image_mode": None, "sources": ["upload"], "visible": False}
    shown = {"type": "pil", "format": "png", "interactive": False, "show_label": False}
    shown["buttons"] = ["download", "fullscreen"]  # none that sends it elsewhere
    with gradio.Blocks(title="Which sentence fits?", analytics_enabled=False) as made:
        gradio.Markdown("# Which sentence fits?\nPut an object on a background, type two sentences, and ask a model.")
        with gradio.Row():
            with gradio.Column():
                model = gradio.Dropdown(names, value=names[0], label="model", elem_id="model")
                background = gradio.Radio(list(BACKGROUNDS), value="white", label="background", elem_id="background")
                seed = gradio.Number(0, label="scene number", precision=0, minimum=0, visible=False, elem_id="seed")
                uploaded = gradio.Image(label="background to upload", elem_id="uploaded", **upload)
                thing = gradio.Radio(list(OBJECTS), value="shape", label="object", elem_id="object")
                shape = gradio.Dropdown(list(SHAPES), value="circle", label="shape", elem_id="shape")
                colour = gradio.Dropdown(list(COLOURS), value="red", label="colour", elem_id="colour")
                crop = gradio.Image(label="object to upload", elem_id="crop", **upload)
                x = gradio.Slider(0, 1, 0.5, step=0.01, label="from left to right")
                y = gradio.Slider(0, 1, 0.5, step=0.01, label="from top to bottom")
                scale = gradio.Slider(0.02, 1, 0.3, step=0.01, label="size")
            with gradio.Column():
                picture = gradio.Image(label="picture", elem_id="picture", **shown)
                first = gradio.Textbox(FIRST, label="first sentence", elem_id="first")
                second = gradio.Textbox(SECOND, label="second sentence", elem_id="second")
                button = gradio.Button("Which fits better?", variant="primary", elem_id="ask")
                with gradio.Row():
                    score_a = gradio.Textbox(label="score of the first", interactive=False, elem_id="score_first")
                    score_b = gradio.Textbox(label="score of the second", interactive=False, elem_id="score_second")
                verdict = gradio.Textbox(label="answer", interactive=False, elem_id="verdict")
                gradio.Markdown("Where it looks, for each sentence and each of its words:")
                where = gradio.Image(label="where it looks", elem_id="heat", **shown)
        controls = [background, seed, uploaded, thing, shape, colour, crop, x, y, scale]
        for choice, value, control in (
            (background, "scene", seed),
            (background, "upload", uploaded),
            (thing, "shape", shape),
            (thing, "shape", colour),
            (thing, "upload", crop),
        ):
            only_for(choice, value, control)
        for control in controls:
            control.change(show, controls, picture, show_progress="hidden")
        made.load(show, controls, picture, show_progress="hidden")
        button.click(ask, [model, first, second, *controls], [picture, score_a, score_b, verdict, where])
    return made


def launched(made: Any, port: int | None, block: bool) -> str:
    """Serve the page to this computer alone; its address. Raises ValueError where the port is taken."""
    import gradio

    theme = gradio.themes.Default(font=FONTS, font_mono=("ui-monospace", "monospace"))  # those that are here
    try:
        _, address, _ = made.launch(
            server_name="127.0.0.1",
            server_port=port,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            theme=theme,
            footer_links=[],
        )
    except OSError as error:
        raise ValueError(f"--port {port}: {str(error).splitlines()[0]}") from None
    if block:
        print(f"{address}\nCtrl-C ends it.", flush=True)
        made.block_thread()
    return str(address)


def parser() -> argparse.ArgumentParser:
    options = Parser("python -m analysis.probe.try_it", description=(__doc__ or "").split("\n\n")[0])
    options.add_argument(
        "--model", action="append", required=True, help="as of python -m analysis.probe; may be repeated"
    )
    options.add_argument("--port", type=int, help="(default: the first free one from 7860)")
    options.add_argument("--device", default="auto")
    options.add_argument("--size", default="base", help="of visualbert:, uniter:, lxmert: and albef:")
    return options


def loader(names: list[str], settings: Mapping[str, Any]) -> Callable[[str], Scorer]:
    """A function that gives the scorer of a name on the list, loaded once. The page can ask for no other."""
    from analysis.probe.scorers import load

    @functools.cache
    def scorer_of(name: str) -> Scorer:
        if name not in names:
            raise ValueError(f"model={name}: choose one of {', '.join(names)}")
        return load(name, **settings)

    return scorer_of


def main(arguments: list[str]) -> None:
    given = parser().parse_args(arguments)
    if given.port is not None and not 1 <= given.port <= 65535:
        raise UsageError(f"--port {given.port}: must be 1 to 65535")
    names = list(dict.fromkeys(given.model))
    scorer_of = loader(names, {"device": given.device, "size": given.size})
    scorer_of(names[0])  # so that a wrong name is told before a page opens
    launched(page(names, scorer_of), given.port, block=True)


if __name__ == "__main__":
    run("try_it", main)
