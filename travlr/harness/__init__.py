"""The datasets in other programs that ask models: Inspect, lmms-eval and VLMEvalKit. Nothing here needs them installed.

`records` is shared: what a harness keeps of a reply, and scores of many; questions, parser and scores are those of
`travlr.questions`. `inspect_tasks` is what `inspect eval travlr/TASK` loads. `exports` writes the files of the others,
and `lmms` is what those of lmms-eval call.
"""
