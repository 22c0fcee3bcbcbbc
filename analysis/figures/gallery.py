"""For notebooks: examples with picture, query, answer, the model's answer and caption; and figures."""

from __future__ import annotations

import html
import io

import pandas as pd
from matplotlib.figure import Figure

from travlr.dataset import Dataset
from travlr.viewer import embed_picture


def show(dataset: Dataset, rows: pd.DataFrame) -> None:
    """Display examples or predictions in a notebook. rows: with the columns split and row, and for predictions
    prediction and score."""
    from IPython import display

    cards = []
    for row in rows.to_dict("records"):
        example = dataset[row["split"]][int(row["row"])]
        picture, _ = embed_picture(example.image, example.id)
        answers = f"answer {example.answer}"
        if "prediction" in row:
            answers += f", the model says {bool(row['prediction'])} (log-odds {row['score']:+.1f})"
        cards.append(
            f'<figure style="width: 260px; margin: 0 12px 12px 0; display: inline-block; vertical-align: top">'
            f'<img width="260" alt="{html.escape(example.caption)}" style="border: 1px solid #ccc" '
            f'src="{picture}">'
            f"<figcaption><b>{html.escape(example.query)}</b><br>{answers}; {row['split']}, "
            f"{html.escape(' '.join(example.pair))}<br>"
            f'<small style="white-space: pre-wrap">{html.escape(example.caption)}</small>'
            "</figcaption></figure>"
        )
    display.display(display.HTML(f"<div>{''.join(cards)}</div>"))  # type: ignore[no-untyped-call]


def show_figure(figure: Figure) -> None:
    """Display a figure in a notebook, which displays only figures of pyplot without this."""
    from IPython import display

    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    alt = str(figure.get_label())
    display.display(display.Image(data=data.getvalue(), alt=alt))  # type: ignore[no-untyped-call]
