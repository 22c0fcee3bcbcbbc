"""Cross-modal consistency: what a model says of the modality it is trained in, it learns to say of the other.

The paper leaves it open how a model that learned a task in one modality comes to master it in the other, of which it
has seen no answer (sections 4.2 and 6). This is a semi-supervised answer: beside the labelled examples stand as many
unlabelled pairs of image and caption, from the same generator and with the task's own queries. Of each the model is
shown both sides: what it says of the side that it is trained in (the answer, and the steps that `train.data.auxiliary` names)
is the target for the other side. No truth about an unlabelled pair is used. The column `unlabelled_examples` of the
results counts the pairs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from train.data.batching import visible_modalities
from train.data.examples import Examples
from train.data.inputs import IGNORED, Inputs

OTHER = {"image": "caption", "caption": "image"}


def paired_inputs(examples: Examples, rows: np.ndarray, setting: str) -> tuple[Inputs, Inputs]:
    """Unlabelled examples `rows` (B,) as the training setting shows them, and as the other modality does.

    `targets` is 0 at the tokens that name something, which both sides have in the same order; `objects`, what the text
    itself lists, is kept.
    """
    sides = []
    for side in (setting, OTHER[setting]):
        image, caption = visible_modalities(side, rows, None)
        inputs = examples.inputs(rows, image, caption)
        known = examples.auxiliary(inputs, rows, examples.text_rows(rows, image, caption))
        assert known.targets is not None
        places = torch.where(known.targets == IGNORED, IGNORED, 0)
        sides.append(replace(inputs, answer=None, targets=places, objects=known.objects))
    return sides[0], sides[1]
