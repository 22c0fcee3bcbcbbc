"""The datasets in other programs that ask models: Inspect and lmms-eval. Nothing here needs them installed.

`records` is shared: which questions are asked, what a harness keeps of a reply, and the scores of many; questions and
parser are those of `travlr.questions`. `inspect_tasks` is what `inspect eval travlr/TASK` loads. `lmms` writes the
files for lmms-eval, and has the functions that they call.
"""
