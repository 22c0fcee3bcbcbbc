"""Zero-shot probes: which of two sentences does a pretrained model say fits a picture? `python -m analysis.probe`.

items.py           what is asked: items, corpora, their pictures
taxonomy.py        VL-CheckList's paper: axes, classes of location and size, averages
checklist.py       VL-CheckList's files: corpora and run files, read and written
evaluate.py        VL-CheckList's own interface, `Evaluate(…).start()`
negatives.py       a checklist from a person's own annotations
words.py           the words that it knows: which exclude each other, articles, numbers
predicate_noun.py  predicate-noun dependencies: published set and result files
scenes.py          corpora of both kinds from our own scenes, with exact truth: made, resumed, read
layouts.py         what these scenes show and what is asked of them
statements.py      sentences about scenes, and whether they are true
drawing.py         pictures of scenes
records.py         what is written of a scene
scorers.py         what answers: functions (images, texts) -> scores, by name
families.py        models of `transformers` among them
own.py             our four models
salience.py        what is large and what is central in a picture of ours, by its scene or by its pixels
floors.py          what answers without looking
pasting.py         pictures with an object put on a background
variation.py       how a score moves with the place and the size of an object
selection.py       which items of a corpus are asked: samples, the published head of a file
scoring.py         a scorer over a corpus: batches, failures, resuming
measures.py        from scores to numbers: accuracies, intervals, models compared, what blind rules solve
results.py         results of runs as files, and which can be set side by side
tables.py          tables of them, and what the terminal shows
figures.py         bars and radar charts
report.py          the page, and all of these as files
models.py          the models of a run, one after the other, and by what their weights are known
run.py             all of this for a config: `probe(config, scorer=…) -> results`
config.py          its settings; command.py: the command line
heatmaps.py        where a scorer looks
try_it.py          a local page to try one
"""
