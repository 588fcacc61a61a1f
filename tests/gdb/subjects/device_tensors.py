"""Tensors in what stands for a GPU's memory (on_device.py), and a model whose modules return such tensors, called once for each
line of input; then the line "done". Writes what is true of them as a line of JSON.

    device_tensors.py [nan]     nan: in the output of the model's second layer, and in those after it; it ends after one call"""

import hashlib
import json
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from on_device import Device

device = Device(16 << 20)
torch.manual_seed(7)
plain = {
    "t": torch.arange(12.0).reshape(3, 4),
    "part": torch.arange(100.0).reshape(10, 10)[2:8:2, 1::3],
    "bad": torch.tensor([1.0, float("nan"), float("inf"), -2.5]),
    "wide": torch.randn(64, 3000).to(torch.bfloat16),
    "big": torch.zeros(2 << 20),
}
plain["big"][-1] = 7.0
stats = {
    name: {"min": float(v.min()), "max": float(v.max()), "mean": float(v.double().mean()), "zeros": int((v == 0).sum())}
    for name, v in plain.items()
    if name != "bad"
}
shown = {name: repr(plain[name])[:-1] + ", device='cuda:0')" for name in ("t", "part")}
t, part, bad, wide, big = (device.put(one) for one in plain.values())
outputs = {}


class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        made = torch.randn(4, 32)
        if sys.argv[1:] == ["nan"] and self.number > 0:
            made[1, 2] = float("nan")
        outputs[f"layers.{self.number}"] = hashlib.sha256(made.numpy().tobytes()).hexdigest()
        return device.put(made)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(n) for n in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


model = Model()


def wait():
    print(json.dumps({"pid": os.getpid(), "device": device.said(), "shown": shown, "stats": stats}), flush=True)
    for _ in sys.stdin:
        model(t)
        print(json.dumps(outputs), flush=True)
        if sys.argv[1:]:
            return


wait()
