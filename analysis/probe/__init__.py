"""Zero-shot probes: which of two sentences does a pretrained model say fits a picture? `python -m analysis.probe`.

items.py           what is asked: items, corpora, their pictures
checklist.py       VL-CheckList: published corpora, run files and scoring rules
predicate_noun.py  predicate-noun dependencies: published set and result files
scenes.py          corpora of both kinds from our own scenes, with exact truth
scorers.py         what answers: functions (images, texts) -> scores
own.py             our four models among them
floors.py          what answers blindly
scoring.py         a scorer over a corpus: batches, failures, resuming
measures.py        accuracies and intervals from scores
report.py          table, radar chart, page
heatmaps.py        where a scorer looks
try_it.py          a local page to try one
"""
