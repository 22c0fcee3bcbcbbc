"""Files of a dataset: its columns, manifest and card, and the formats of other programs."""
