"""Zero-shot probes: which of two sentences does a pretrained model prefer for a picture? `python -m analysis.probe`.

To read in this order: `config` and `command`, the settings and the command line; `run`, which probes each model on each
corpus, with `inputs` (the corpora that a setting names); `corpora`, items and the files that they come from; `scenes`,
corpora generated from our own scenes; `folders`, files that are read and written; `scorers`, models as functions
(images, texts) -> scores; `report`, metrics, baselines, tables and the page. The other files are commands of their own:
`evaluate` (VL-CheckList's interface), `heatmaps`, `variation` and `try_it`, which share `model_options`.
"""
