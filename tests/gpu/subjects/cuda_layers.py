"""A model on the GPU, run once for each line of input; then the line "done".

    cuda_layers.py eager|compiled|graph

compiled: torch.compile; graph: a CUDA graph of the model is replayed."""

import json
import os
import sys
from hashlib import sha256

import torch
from torch import nn

how = sys.argv[1]
SIZE = 2048


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        x = torch.relu(self.linear(x))
        for _ in range(50):  # so that the GPU is far behind
            x = torch.tanh(x @ self.linear.weight)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Part() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


with torch.no_grad():
    model = Model().cuda()
    given = torch.randn(SIZE, SIZE, device="cuda")
    run = torch.compile(model) if how == "compiled" else model
    hashes, hooks = {}, []
    for name, module in model.named_modules() if how == "eager" else ():
        hook = lambda module, x, out, name=name: hashes.update({name: sha256(out.cpu().numpy().tobytes()).hexdigest()})  # noqa: E731
        hooks.append(module.register_forward_hook(hook))
    run(given)
    for one in hooks:
        one.remove()
    if how == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(given)
        run = lambda _: graph.replay()  # noqa: E731
    torch.cuda.synchronize()
    print(json.dumps({"pid": os.getpid(), "hashes": hashes}), flush=True)
    for _ in sys.stdin:
        run(given)
        torch.cuda.synchronize()
        print("done", flush=True)
