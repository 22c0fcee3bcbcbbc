"""Tables and figures of models on corpora, pictures with true and false sentences: by axis, beside baselines."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.plotting import COLOURS, MARKERS, STYLE, add_legend, bars_with_intervals, new_figure
from analysis.frames import Runs, left_out
from analysis.sections.evaluations import Section, label_evaluations
from analysis.sections.verdict import OTHER_PICTURES
from train.results.columns import in_order
from travlr.baselines import RuleScore, dataset_baselines
from travlr.corpora.items import MATCH
from travlr.corpora.pairs import ARO_GROUPS
from travlr.corpora.taxonomy import TAXONOMY, by_axis, paper_averages
from travlr.metrics import (
    both_ranked,
    compare,
    holm,
    picture_clusters,
    proportion,
    proportions,
    ranked,
    reply_scores,
    score_couples,
)

SCORES_NOTE = (
    "Percent. Ranked: items whose true sentences score above the false ones, on average; a tie is wrong; a coin has "
    "50. Both: couples of items that exchange their sentences, both ranked right; a coin has 25. Image score: "
    "couples of which each sentence scores higher with its own picture; group score: and both. Accuracy: each "
    "sentence alone, above or below the model's threshold. Blank, shuffled: items ranked right by the same model that "
    "sees white pictures, or those of other items. Intervals: items that share a picture, and couples, are one cluster."
)
AXES_NOTE = "Percent of items ranked right, with 95 % intervals, and their number."
COMPARED_NOTE = (
    "Items ranked right, of those that both models have answered. p: two-sided exact McNemar test over clusters; Holm: "
    "adjusted for the number of comparisons in this table."
)
MEANS_NOTE = (
    "Percent of items ranked right, averaged over relations or pairs of attributes with equal weight, as ARO's numbers "
    "are; of attributes, pairs with fewer than 25 items are left out. ARO's number for relations also leaves out those "
    "that hold in both directions, such as next to."
)
AVERAGES_NOTE = "Means over axes as in the paper's Tables 2 to 5; empty where an axis has no items."


def describe_corpora(runs: Runs) -> list[Section]:
    """The sections about corpora; none without any."""
    results = label_evaluations(runs.evaluations[runs.evaluations["task"] == MATCH])
    names, parts = name_corpora(runs), list[Section]()
    for digest, of_corpus in results.groupby("dataset"):
        if digest in runs.datasets:
            title = names[str(digest)]
            answers = label_models(runs.predictions(name=list(of_corpus["name"].unique())), of_corpus)
            if len(answers):
                rules = list[RuleScore]()
                with left_out(runs.skipped, f"{title}: blind rules: "):
                    rules = dataset_baselines(runs.datasets[str(digest)].folder)
                parts += corpus_sections(title, answers, rules)
    return parts


def name_corpora(runs: Runs) -> dict[str, str]:
    """The names of corpora by their digests, which tell apart those of one name."""
    named = ((digest, dataset.manifest.get("corpus")) for digest, dataset in runs.datasets.items())
    names = {digest: str(about["name"]) for digest, about in named if about}
    several = {name for name, number in Counter(names.values()).items() if number > 1}
    return {digest: f"{name} {digest[:8]}" if name in several else name for digest, name in names.items()}


def label_models(predictions: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Predictions with `label`, unique to each evaluation; `pictures`: "" for its own ones, else blank or shuffled;
    and `judged`: whether the model says true or false, and does not only rank."""
    about = results.drop_duplicates("name").set_index("name")
    pictures = about["image_style"].where(about["image_style"].isin(list(OTHER_PICTURES)), "")
    same = about.groupby(["model", pictures])["run"].transform("nunique") > 1
    labels = about["model"].where(~same, about["model"] + " (" + about["question"] + ")")
    columns = {"label": labels, "pictures": pictures, "judged": about["accuracy"].notna()}
    names = predictions["name"].astype(str)
    return predictions.assign(**{column: names.map(values) for column, values in columns.items()})


def corpus_sections(title: str, answers: pd.DataFrame, rules: Sequence[RuleScore]) -> list[Section]:
    """The sections about one corpus. answers: see `label_models`. rules: scores of rules that see no picture."""
    items = rank_items(answers)
    own = items[items["pictures"] == ""]
    scores = pd.concat([score_table(answers, items), rule_table(rules)]).fillna("")
    parts = [Section(f"{title}: scores", SCORES_NOTE, scores.loc[:, scores.ne("").any()])]
    axes = rate_axes(own, ["axis"])
    if len(axes):
        table = axis_table(axes, ["axis"])
        best = {rule.axis: max(r.accuracy for r in rules if r.axis == rule.axis) for rule in rules}
        table["best blind rule"] = [f"{best[axis]:.1f}" if axis in best else "" for axis in table.index]
        parts.append(Section(f"{title}: items ranked right by axis", AXES_NOTE, table))
        parts.append(Section(f"{title}: items ranked right by axis", AXES_NOTE, draw_axes(axes)))
    if axes["axis"].nunique() > 2:
        parts.append(Section(f"{title}: items ranked right by axis, from 0 to 100 %", AXES_NOTE, draw_radar(axes)))
    if own["source"].nunique() > 1:
        table = axis_table(rate_axes(own, ["axis", "source"]), ["axis", "source"])
        parts.append(Section(f"{title}: items ranked right by axis and source", AXES_NOTE, table))
    places = axes[axes["axis"].str.contains("/Size/|/Location/")]
    if len(places):
        parts.append(Section(f"{title}: items ranked right by place and size", AXES_NOTE, draw_places(places)))
        parts.append(Section(f"{title}: averages of the VL-CheckList paper", AVERAGES_NOTE, average_table(own)))
    if own["group"].ne("").any():
        parts.append(Section(f"{title}: means over relations and attributes", MEANS_NOTE, mean_table(own)))
    alone = choose_judged(answers)
    if len(alone):
        note = "Percent of sentences right, each alone, above or below the model's threshold; with 95 % intervals."
        parts.append(
            Section(f"{title}: each sentence alone by axis", note, axis_table(sentences_by_axis(alone), ["axis"]))
        )
    if own["label"].nunique() > 1:
        parts.append(Section(f"{title}: models compared", COMPARED_NOTE, comparison_table(own)))
    return parts


# Numbers -------------------------------------------------------------------------------------------------------------


def rank_items(answers: pd.DataFrame) -> pd.DataFrame:
    """A row for each item of each evaluation: label, pictures, item, couple, axis, source, group, cluster, right
    (whether its true sentences score above its false ones)."""
    parts = []
    for (label, pictures), part in answers.groupby(["label", "pictures"], sort=False):
        first, right = ranked(scores_of(part), part["answer"], part["item"].astype(str))
        rows = part.iloc[first]
        texts = {name: rows[name].astype(object).fillna("").astype(str).to_numpy()
                 for name in ("item", "couple", "kind", "source", "picture", "group")}  # fmt: skip
        frame = pd.DataFrame({"label": label, "pictures": pictures, **texts, "right": right})
        frame["cluster"] = picture_clusters(frame["picture"], frame["couple"])
        parts.append(frame.rename(columns={"kind": "axis"}))
    items = pd.concat(parts, ignore_index=True)
    return items.assign(axis=order_axes(items["axis"]))


def scores_of(answers: pd.DataFrame) -> np.ndarray:
    """How much each sentence is held to be true."""
    given = [None if pd.isna(score) else float(score) for score in answers["score"]]
    return reply_scores(given, [text if isinstance(text, str) else None for text in answers["parsed"]])


def order_axes(axes: pd.Series) -> pd.Series:
    """Axes in the order of VL-CheckList's paper, others by the alphabet."""
    return pd.Series(pd.Categorical(axes, in_order(axes, TAXONOMY)), axes.index)


def rate_axes(items: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Items ranked right by label and these columns: examples, percent, low, high."""
    parts = []
    for label, part in items.groupby("label", sort=False):
        grouped = part.groupby(list(by), observed=True)
        table = grouped.size().rename("examples").reset_index()
        measured = proportions(part["right"], grouped.ngroup(), part["cluster"], len(table))
        intervals = {"percent": measured.percent, "low": measured.low, "high": measured.high}
        parts.append(table.astype({"axis": str}).assign(label=label, **intervals))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["label", *by])


def choose_judged(answers: pd.DataFrame) -> pd.DataFrame:
    """Answers about the corpus's own pictures that are right or wrong. A reply without an answer is wrong."""
    return answers[(answers["pictures"] == "") & answers["judged"]]


def sentences_by_axis(answers: pd.DataFrame) -> pd.DataFrame:
    """Sentences right, each alone, by label and axis: examples, percent, low, high."""
    texts = {name: answers[name].astype(object).fillna("").astype(str) for name in ("picture", "couple", "kind")}
    clusters = picture_clusters(texts["picture"], texts["couple"])
    frame = answers.assign(axis=order_axes(texts["kind"]), cluster=clusters, right=answers["right"].astype(bool))
    return rate_axes(frame, ["axis"])


# Tables --------------------------------------------------------------------------------------------------------------


def with_interval(percent: float, low: float, high: float) -> str:
    return f"{percent:.1f} [{low:.1f}, {high:.1f}]"


def score_table(answers: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """A line for each model on all items of a corpus."""
    lines, own_answers = [], choose_judged(answers)
    for label, part in items[items["pictures"] == ""].groupby("label", sort=False):
        line = {"model": label, "items": f"{len(part):,}"}
        line["ranked [95 %]"] = with_interval(*proportion(part["right"], part["cluster"]))
        first, both = both_ranked(part["right"], part["couple"])
        if len(both):
            line["both [95 %]"] = with_interval(*proportion(both, part["cluster"].to_numpy()[first]))
        own = answers[(answers["label"] == label) & (answers["pictures"] == "")]
        names = (own[name].astype(str) for name in ("item", "query", "couple"))
        _, text, image = score_couples(scores_of(own), own["answer"], *names)
        if len(text):
            line |= {"image score": f"{100 * image.mean():.1f}", "group score": f"{100 * (text & image).mean():.1f}"}
        alone = own_answers[own_answers["label"] == label]
        if len(alone):
            line["accuracy [95 %]"] = with_interval(*proportion(alone["right"].astype(bool), alone["scene"]))
            line["no answer"] = f"{100 * alone['parsed'].isna().mean():.1f}"
        for name in OTHER_PICTURES:
            other = items[(items["pictures"] == name) & items["label"].eq(label)]
            if len(other):
                line[name] = f"{100 * other['right'].mean():.1f}"
        lines.append(line)
    return pd.DataFrame(lines).fillna("").set_index("model")


def rule_table(rules: Sequence[RuleScore]) -> pd.DataFrame:
    """A line for each rule that sees no picture, on all items of a corpus."""
    lines = [
        {
            "model": f"blind rule: {rule.baseline}",
            "items": f"{rule.examples:,}",
            "ranked [95 %]": with_interval(rule.accuracy, *rule.interval),
            "both [95 %]": "" if rule.couples is None else f"{rule.couples:.1f}",
        }
        for rule in rules
        if not rule.axis
    ]
    return pd.DataFrame(lines, columns=["model", "items", "ranked [95 %]", "both [95 %]"]).set_index("model")


def axis_table(axes: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Percent by axis (rows) and model (columns), and the number of items."""
    texts = [with_interval(*row) for row in axes[["percent", "low", "high"]].to_numpy(float)]
    table = axes.assign(text=texts).pivot_table("text", by, "label", aggfunc="first", sort=False).fillna("")
    table = table.rename_axis(columns="model")
    table.insert(0, "number", axes.groupby(by)["examples"].max().map("{:,}".format))
    return table


def mean_table(items: pd.DataFrame) -> pd.DataFrame:
    """Means over ARO's groups: a line for each model."""
    columns: dict[str, dict[str, str]] = {}
    for (label, kind), part in items.groupby(["label", items["group"].str.partition(": ")[0]], sort=False):
        if kind:
            rates = part.groupby("group")["right"].agg(["mean", "size"])
            rates = rates[rates["size"] >= ARO_GROUPS[kind]]
            text = f"{100 * rates['mean'].mean():.1f}" if len(rates) else ""
            columns.setdefault(f"{kind} ({len(rates):,})", {})[label] = text
    return pd.DataFrame(columns).fillna("").rename_axis("model")


def average_table(items: pd.DataFrame) -> pd.DataFrame:
    """The averages of VL-CheckList's Tables 2 to 5."""
    columns = {}
    for label, part in items.groupby("label", sort=False):
        percent = (100 * part.astype({"axis": str}).groupby(["axis", "source"])["right"].mean()).to_dict()
        averages = paper_averages(by_axis(percent))
        columns[label] = {one.name: "" if one.value is None else f"{one.value:.2f}" for one in averages}
    return pd.DataFrame(columns).rename_axis("average")


def comparison_table(items: pd.DataFrame) -> pd.DataFrame:
    """Each two models on the items that both have answered: difference, McNemar's test, Holm's adjustment."""
    sides = {label: part.set_index("item") for label, part in items.groupby("label", sort=False)}
    lines, p_values = [], []
    for first, second in itertools.combinations(sides, 2):
        both = sides[first].join(sides[second]["right"].rename("other"), how="inner")
        if not len(both):
            continue
        result = compare(both["right"], both["other"].astype(bool), clusters=both["cluster"])
        p_values.append(result.p_value)
        lines.append(
            {
                "first": first,
                "second": second,
                "items": f"{result.examples:,}",
                "first %": f"{result.first:.1f}",
                "second %": f"{result.second:.1f}",
                "difference [95 %]": f"{result.difference:+.1f} [{result.low:+.1f}, {result.high:+.1f}]",
                "only first": f"{result.first_only:,}",
                "only second": f"{result.second_only:,}",
                "p": f"{result.p_value:.2g}",
            }
        )
    adjusted = [f"{p:.2g}" for p in holm(p_values)]
    return pd.DataFrame(lines).assign(**{"p (Holm)": adjusted}).set_index(["first", "second"])


# Figures -------------------------------------------------------------------------------------------------------------


def draw_axes(axes: pd.DataFrame) -> Figure:
    """Percent of items ranked right by axis, a bar for each model, with 95 % intervals."""
    names, labels = list(axes["axis"].unique()), list(axes["label"].unique())
    across = max(1, int(12 / max(0.85, 0.2 * len(labels) + 0.25)))
    parts = [names[n : n + across] for n in range(0, len(names), across)]
    with matplotlib.rc_context(STYLE):
        size = (max(4.5, min(12.0, max(0.85, 0.2 * len(labels) + 0.25) * len(parts[0]))), 2.1)
        figure, panels = new_figure(["Items ranked right by axis"], len(parts), 1, size)
        for [panel], part in zip(panels, parts, strict=True):
            for n, label in enumerate(labels):
                rows = axes[(axes["label"] == label) & axes["axis"].isin(part)].set_index("axis").reindex(part)
                x = np.arange(len(part)) - 0.4 + 0.8 / len(labels) * (n + 0.5)
                bars_with_intervals(panel, x, rows, 0.72 / len(labels), color=COLOURS[n % 7], label=label)
            panel.axhline(50, color="#888", lw=0.8, label="a coin")
            panel.set_xticks(range(len(part)), [name.replace("/", "\n") for name in part], fontsize=6.5)
            panel.set(ylim=(0, 102), xlim=(-0.5, len(parts[0]) - 0.5), ylabel="ranked right (%)")
        add_legend(figure)
    return figure


def draw_radar(axes: pd.DataFrame) -> Figure:
    """Percent of items ranked right by axis on spokes, from 0 in the middle to 100 outside; rings at 25, 50 (a coin),
    75 and 100."""
    names = list(axes["axis"].unique())
    turns = np.linspace(0, 2 * math.pi, len(names), endpoint=False)
    with matplotlib.rc_context(STYLE):
        figure, [[panel]] = new_figure(["Items ranked right by axis"], 1, 1, (5.6, 4.6), subplot_kw={"polar": True})
        for n, (label, rows) in enumerate(axes.groupby("label", sort=False)):
            values = rows.set_index("axis")["percent"].reindex(names).to_numpy(float)
            style = {"color": COLOURS[n % 7], "marker": MARKERS[n % 7], "ms": 4, "lw": 1.4}
            panel.plot(np.append(turns, turns[0]), np.append(values, values[0]), label=label, **style)
        panel.plot(np.linspace(0, 2 * math.pi, 181), np.full(181, 50.0), color="#888", lw=0.8, label="a coin")
        panel.set_theta_zero_location("N")
        panel.set_theta_direction(-1)
        panel.set(ylim=(0, 100), yticks=[25, 50, 75, 100])
        panel.set_xticks(turns, [name.replace("/", "\n") for name in names])
        panel.tick_params("x", pad=12)
        add_legend(figure)
    return figure


def draw_places(axes: pd.DataFrame) -> Figure:
    """Percent of items ranked right by the size of the object, and by its place from the centre to the margin."""
    orders = {"Size": ("small", "medium", "large"), "Location": ("center", "mid", "margin")}
    tops = list(axes["axis"].str.split("/").str[0].unique())
    with matplotlib.rc_context(STYLE):
        figure, panels = new_figure(["Items ranked right by size and place"], len(tops), 2, (2.8, 2.2), sharey=True)
        for line, top in zip(panels, tops, strict=True):
            for panel, (kind, order) in zip(line, orders.items(), strict=True):
                names = [f"{top}/{kind}/{name}" for name in order]
                for n, (label, rows) in enumerate(axes.groupby("label", sort=False)):
                    part = rows.set_index("axis").reindex(names)
                    error = np.stack([part["percent"] - part["low"], part["high"] - part["percent"]]).clip(0)
                    style = {"color": COLOURS[n % 7], "marker": MARKERS[n % 7], "ms": 4, "lw": 1.2}
                    panel.errorbar(np.arange(3) + 0.05 * n, part["percent"], error, label=label, **style)
                panel.axhline(50, color="#888", lw=0.8, label="a coin")
                panel.set_xticks(range(3), order)
                panel.set(title=f"{top}: {kind.lower()}", ylim=(0, 102))
            line[0].set_ylabel("ranked right (%)")
        add_legend(figure)
    return figure
