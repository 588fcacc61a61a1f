"""A plain program of transformers, eager, on the CPU: what an engine's model is compared with by llm-layers.

plain_transformers.py FOLDER     calls the model of FOLDER (with its weights) with PROMPT for each line of stdin
"""

import json
import os
import sys

import torch
from ask_sglang import PROMPT


def make(folder):
    """Writes random weights for the config.json of a folder: what engines and this program load."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


@torch.no_grad()
def main(folder):
    from transformers import AutoModelForCausalLM

    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        make(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    tokens = torch.tensor([PROMPT])
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for _ in sys.stdin:
        model(tokens)


if __name__ == "__main__":
    main(sys.argv[1])
