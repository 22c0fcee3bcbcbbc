"""The datasets in other programs that ask models: Inspect and lmms-eval. Nothing here needs them installed.

`records` is shared: what a harness keeps of a reply, and scores of many; questions, parser and scores are those of
`travlr.questions`. `inspect_tasks` is what `inspect eval travlr/TASK` loads. `exports` writes the
files for lmms-eval, and `lmms` is what they call.
"""
