"""A page to try a model: put an object on a background, compare two sentences, see heat maps.

    python -m analysis.probe.try_it --model MODEL [--model ANOTHER] [--port 7860]

The page is served at 127.0.0.1 to this computer alone and makes no network requests. Needs the extra `page`
(`pip install -e .[train,analysis,page]`).
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.pasting import SIDE, object_from, picture_from, placed, scene, shape_picture
from analysis.probe import model_options
from train.ask.matchers.loading import ScoreFunction
from travlr.scene import COLOURS, SHAPES
from travlr.settings import UsageError, run_command

BACKGROUNDS = ("white", "scene", "upload")
OBJECTS = ("none", "shape", "upload")
FIRST, SECOND = "there is a red circle in the picture", "there is a blue star in the picture"
# No requests to other hosts.
OFFLINE = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
FONTS = ("system-ui", "sans-serif")


# Pictures -----------------------------------------------------------------------------------------------------------


def composed(
    background: str,
    number: int | None,
    uploaded: str | None,
    thing: str,
    shape: str,
    colour: str,
    crop: str | None,
    x: float,
    y: float,
    scale: float,
) -> Image.Image:
    """The picture of the page's controls. Raises ValueError for a missing or unreadable upload, and for a scene without
    a number."""
    ground, pasted = Image.new("RGB", (SIDE, SIDE), "white"), None
    if background == "upload":
        ground = _upload("background", uploaded, picture_from)
    elif background == "scene":
        if number is None:
            raise ValueError("type the number of a scene")
        ground = scene(int(number), scale=0.1)
    if thing == "upload":
        pasted = _upload("object", crop, object_from)
    elif thing == "shape":
        pasted = shape_picture(shape, colour)
    return placed(ground, pasted, x, y, scale)


def _upload(name: str, path: str | None, read: Callable[[Path], Image.Image]) -> Image.Image:
    if path is None:
        raise ValueError(f"{name}: upload a picture first")
    try:
        return read(Path(path))
    except ValueError as error:
        message = str(error).replace(f" '{Path(path).resolve()}'", "")  # Gradio's temporary path
        raise ValueError(f"{name}: {Path(path).name}: {message}") from None


# Answers ------------------------------------------------------------------------------------------------------------


def compare_sentences(scorer: ScoreFunction, picture: Image.Image, first: str, second: str) -> tuple[float, float, str]:
    """The scores of two sentences, and the verdict in one line.

    Raises ValueError for an empty sentence and for a score that is not a finite number.
    """
    if not first.strip() or not second.strip():
        raise ValueError("type two sentences")
    scores = np.asarray(scorer([picture, picture], [first, second]), np.float64)
    if scores.shape != (2,) or not np.isfinite(scores).all():
        raise ValueError(f"the model returned {scores.tolist()} for two sentences")
    a, b = scores.tolist()
    if a == b:
        return a, b, "Both have the same score."
    verdict = f"The {'first' if a > b else 'second'} fits better, by {abs(a - b):.4g}."
    threshold = getattr(scorer, "threshold", None)
    if threshold is not None:
        above = [name for name, score in (("first", a), ("second", b)) if score > threshold]
        verdict += f" Above the model's threshold: {', '.join(above) or 'none'}."
    return a, b, verdict


def heat_map_picture(scorer: ScoreFunction, picture: Image.Image, first: str, second: str) -> Image.Image:
    """The heat maps of both sentences, the first above the second."""
    from analysis.probe.heatmaps import heat, heat_map_png

    figures = [Image.open(io.BytesIO(heat_map_png(heat(scorer, picture, text), picture))) for text in (first, second)]
    whole = Image.new("RGB", (max(one.width for one in figures), sum(one.height for one in figures)), "white")
    for figure, top in zip(figures, (0, figures[0].height), strict=True):
        whole.paste(figure.convert("RGB"), (0, top))
    return whole


# The page -----------------------------------------------------------------------------------------------------------


def page(names: list[str], scorer_of: Callable[[str], ScoreFunction]) -> Any:
    """The Gradio page for some models, each loaded at its first use. Raises ValueError without Gradio."""
    os.environ.update(OFFLINE)  # before it is imported
    try:
        import gradio
    except ImportError:
        raise ValueError("this page needs Gradio; install it with: pip install -e .[page]") from None

    show, ask = _handlers(scorer_of)
    image = {"type": "pil", "format": "png", "interactive": False, "show_label": False}
    image["buttons"] = ["download", "fullscreen"]  # no button that uploads it
    with gradio.Blocks(title="Which sentence fits?", analytics_enabled=False) as blocks:
        gradio.Markdown("# Which sentence fits?\nPut an object on a background, type two sentences, and ask a model.")
        with gradio.Row():
            with gradio.Column():
                model = gradio.Dropdown(names, value=names[0], label="model", elem_id="model")
                controls = _picture_controls()
            with gradio.Column():
                picture = gradio.Image(label="picture", elem_id="picture", **image)
                first = gradio.Textbox(FIRST, label="first sentence", elem_id="first")
                second = gradio.Textbox(SECOND, label="second sentence", elem_id="second")
                looks = gradio.Checkbox(True, label="show where it looks, too, which takes longer", elem_id="looks")
                button = gradio.Button("Which fits better?", variant="primary", elem_id="ask")
                with gradio.Row():
                    score_a = gradio.Textbox(label="score of the first", interactive=False, elem_id="score_first")
                    score_b = gradio.Textbox(label="score of the second", interactive=False, elem_id="score_second")
                verdict = gradio.Textbox(label="answer", interactive=False, elem_id="verdict")
        gradio.Markdown("Where it looks, for each sentence and each of its words:")
        where = gradio.Image(label="where it looks", elem_id="heat", **image)
        for control in controls:
            control.change(show, controls, picture, show_progress="hidden")
        blocks.load(show, controls, picture, show_progress="hidden")
        button.click(ask, [model, first, second, looks, *controls], [picture, score_a, score_b, verdict, where])
    return blocks


def _handlers(scorer_of: Callable[[str], ScoreFunction]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions behind the controls (a new picture) and behind the button (scores and heat maps)."""
    import gradio

    from train.models.loading import one_line

    def show(*controls: Any) -> Any:
        try:
            return composed(*controls)
        except ValueError:  # for example a missing upload; the button reports it
            return gradio.skip()

    def ask(name: str, first: str, second: str, looks: bool, *controls: Any) -> Iterator[tuple[Any, ...]]:
        """Yield picture, scores and verdict at once, then the same with heat maps."""
        try:
            picture, scorer = composed(*controls), scorer_of(name)
            a, b, verdict = compare_sentences(scorer, picture, first, second)
        except Exception as error:  # a model or a user's function can raise anything
            yield gradio.skip(), "", "", one_line(error), None
            return
        answer = picture, f"{a:.4f}", f"{b:.4f}"
        yield *answer, verdict, None
        if looks:
            try:
                yield *answer, verdict, heat_map_picture(scorer, picture, first, second)
            except Exception as error:
                yield *answer, f"{verdict} No heat maps: {one_line(error)}", None

    return show, ask


def _picture_controls() -> list[Any]:
    """The controls of the picture, in the order of the arguments of `composed`."""
    import gradio

    upload = {"type": "filepath", "file_types": ["image"], "height": 140}
    background = gradio.Radio(list(BACKGROUNDS), value="white", label="background", elem_id="background")
    seed = gradio.Number(0, label="scene number, for a scene", precision=0, minimum=0, elem_id="seed")
    uploaded = gradio.File(label="background to upload", elem_id="uploaded", **upload)
    thing = gradio.Radio(list(OBJECTS), value="shape", label="object", elem_id="object")
    shape = gradio.Dropdown(list(SHAPES), value="circle", label="shape", elem_id="shape")
    colour = gradio.Dropdown(list(COLOURS), value="red", label="colour", elem_id="colour")
    crop = gradio.File(label="object to upload", elem_id="crop", **upload)
    x = gradio.Slider(0, 1, 0.5, step=0.01, label="from left to right")
    y = gradio.Slider(0, 1, 0.5, step=0.01, label="from top to bottom")
    scale = gradio.Slider(0.02, 1, 0.3, step=0.01, label="size")
    return [background, seed, uploaded, thing, shape, colour, crop, x, y, scale]


def launch(blocks: Any, port: int | None, block: bool) -> str:
    """Serve the page to this computer alone. Returns its address. Raises ValueError where the port is taken."""
    import gradio

    theme = gradio.themes.Default(font=FONTS, font_mono=("ui-monospace", "monospace"))  # local fonts
    try:
        _, address, _ = blocks.launch(
            server_name="127.0.0.1",
            server_port=port,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            theme=theme,
            footer_links=[],
        )
    except OSError:  # its message names other settings
        why = "none is free from 7860" if port is None else f"{port} is not free"
        raise ValueError(f"--port: {why}; choose another one") from None
    if block:
        print(f"{address}\nCtrl-C ends it.", flush=True)
        blocks.block_thread()
    return str(address)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m analysis.probe.try_it", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", action="append", required=True, help=f"{model_options.MODEL}; may be repeated")
    parser.add_argument("--port", type=int, help="(default: the first free one from 7860)")
    model_options.add_options(parser)
    options = parser.parse_args(arguments)
    if options.port is not None and not 1 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: must be 1 to 65535")
    from train.ask.matchers.loading import load_matcher

    names = list(dict.fromkeys(options.model))  # Gradio's list takes no other name
    scorer_of = functools.cache(functools.partial(load_matcher, **model_options.load_settings(options)))
    with tempfile.TemporaryDirectory(prefix="try_it-") as pictures:  # Gradio's default folder is shared and not removed
        os.environ["GRADIO_TEMP_DIR"] = pictures
        blocks = page(names, scorer_of)
        scorer_of(names[0])  # reports a wrong name before the page opens
        launch(blocks, options.port, block=True)


if __name__ == "__main__":
    run_command("try_it", lambda: main(sys.argv[1:]))
