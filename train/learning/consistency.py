"""Cross-modal consistency: unlabelled pairs carry a skill from the modality of training to the other.

In the paper no model transfers from one modality to the other (sections 4.2 and 6). This answer is semi-supervised.
Beside the labelled examples, a batch has as many unlabelled pairs of image and caption, from the same generator and
with queries of the same task. The model sees both sides of each pair. Its predictions for the side that it is trained
in (the answer and the auxiliary targets) are the targets for the other side, where it is sure of them. The truth about
an unlabelled pair is not used. The column `unlabelled_examples` of the results counts the pairs.

`method=mismatched` is a control: each caption and query stands beside the picture of another example, so that nothing
should carry over.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from train.config import OTHER
from train.data.auxiliary import AuxiliaryTargets
from train.data.batching import visible_modalities
from train.data.examples import Examples
from train.data.inputs import IGNORED, Inputs


def paired_inputs(
    examples: Examples, rows: np.ndarray, setting: str, labelled: AuxiliaryTargets
) -> tuple[Inputs, Inputs]:
    """Unlabelled examples `rows` (B,) in the training setting, and in the other modality. labelled: the targets of
    labelled examples, which say what words training has for a noun.

    `targets` is 0 at the tokens of queried objects, which both sides have in the same order, and `IGNORED` elsewhere.
    What the text itself contains stays: `objects`, and of `pair` what the query states.
    """
    sides = []
    unseen = labelled.unseen_of(examples.auxiliary.nouns[row] for row in rows)
    for side in (setting, OTHER[setting]):
        image, caption = visible_modalities(side, rows)
        inputs = examples.batch(rows, image, caption)
        full = examples.auxiliary(inputs, rows, examples.text_rows(rows, caption))
        assert full.targets is not None and full.pair is not None
        places = torch.where(full.targets == IGNORED, IGNORED, 0)
        pair = full.pair.clone()
        pair[:, :-1] = IGNORED
        unseen[:, -1].masked_fill_(unseen[:, -1] == pair[:, -1:], IGNORED)  # few labelled examples may lack its word
        sides.append(replace(inputs, answer=None, targets=places, pair=pair, unseen=unseen, objects=full.objects))
    return sides[0], sides[1]
