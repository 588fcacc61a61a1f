"""Tensors and expressions over them: says what Python itself makes of each expression, then waits."""

import ast
import json
import sys
import warnings

import torch

warnings.simplefilter("ignore")
EXPRESSIONS = """
x.shape
x.shape[0]
x.shape[-1]
x.shape[1:]
len(x.shape)
x.shape == (3, 4)
x.shape == y.shape
x.shape == torch.Size
(3, 4) == x.shape
[n for n in x.shape]
x.dtype
x.dtype == torch.float32
x.dtype == torch.bfloat16
x.dtype is not None
x.dtype.itemsize
x.dtype.is_floating_point
torch.int64
x.device
x.device == cpu
x.device.type
x.device.index
cpu
size
size == (2, 5)
x.ndim
x.itemsize
x.nbytes
x.requires_grad
weight.requires_grad
len(layers)
layers[2].in_features
layers[-3].weight.shape
listed[1][0].out_features
named["first"].weight.shape
[m.bias.shape for m in [named["first"]]]
x.is_cuda
meta.device
meta.is_meta
meta.shape
len(x)
x.numel()
x.size()
x.size(1)
x.stride()
x.stride(0)
x.dim()
x.element_size()
x.storage_offset()
x[1].storage_offset()
x.data_ptr() == address
x.is_contiguous()
x[:, 1].is_contiguous()
x[:, 1:2].is_contiguous()
x[0]
x[-1]
x[1, 2]
x[1][2]
x[1:, ::2]
x[..., 1]
x[1, ...]
x[0:2].shape
x[0, 0].shape
x[0, 0].item()
x[1].tolist()
x[1, 1].tolist()
x[0, 0] == 0.1
x[0, 0] == 0.25
x[0, 1] > 0.5
x[0, 1] > 3
0.5 < x[0, 1]
x[0, 0] != x[1, 0]
x[0, 0] < x[1, 0]
x[0, 0].item() == 0.1
half[0] == 0.1
half[0].item()
brain[0] == 0.1
brain[0] > 0.1
brain[0].item()
long[1] == 7
long[1] == 7.0
long[1] > 6.5
long[1].item() + 1
flags[0] == True
not flags[1]
x.min()
x.max()
x.mean()
x.max() > 11
x.max().item()
x.max().shape
x.max().dtype
long.min()
long.max()
flags.max()
flags.any()
flags.all()
half.mean()
brain.mean()
brain.max()
double.mean()
double.max()
x.isnan()[0][0] if False else x.isnan().any()
bad.isnan().any()
bad.isnan().all()
bad.isinf().any()
bad.isfinite().all()
bad.max()
bad.min()
bad.mean()
bad.isnan().any() and x.shape[0] > 2
infinite.max()
infinite.min()
infinite.mean()
long.isnan().any()
any(t.isnan().any() for t in several)
[t.shape for t in several]
[row.max() for row in x]
expanded.max()
expanded.shape
expanded.numel()
expanded[5, 1]
cplx.shape
cplx.isnan().any()
cplx[0] == 1 + 2j
cplx[0].item()
conj[0].item()
parameter.shape
parameter.max()
parameter[0].tolist()
x[0, 0] and 1
sub.shape
sub[0]
state["w"].shape
module.weight.shape
module.weight.max() < 100
""".strip().splitlines()


class Sub(torch.Tensor):
    pass


def main():
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    x[0, 0] = 0.1
    x = x.contiguous()
    y = torch.zeros(3, 4, dtype=torch.int32)
    half, brain = torch.tensor([0.1, 2.5, -3.0], dtype=torch.float16), torch.tensor([0.1, 2.5, -3.0], dtype=torch.bfloat16)
    double = torch.tensor([0.1, 1e300], dtype=torch.float64)
    long, flags = torch.tensor([-5, 7, 3]), torch.tensor([True, False])
    bad = torch.tensor([1.0, float("nan"), float("inf")])
    infinite = torch.tensor([1.0, float("inf"), 2.0])
    several, cpu, size = [x, bad], torch.device("cpu"), torch.Size([2, 5])
    expanded = torch.tensor([[1.0, 2.0]]).expand(1 << 20, 2)
    cplx = torch.tensor([1 + 2j, 3 - 1j])
    conj = cplx.conj()
    torch.manual_seed(1)
    module = torch.nn.Linear(2, 3)
    layers = torch.nn.Sequential(module, torch.nn.ReLU(), torch.nn.Linear(3, 2))
    listed, named = torch.nn.ModuleList([module, layers]), torch.nn.ModuleDict({"first": module})
    weight, parameter = module.weight, torch.nn.Parameter(torch.tensor([[1.5, -2.0], [0.25, 8.0]]))
    meta = torch.empty(5, 6, device="meta")
    sub = torch.tensor([1.0, 2.0]).as_subclass(Sub)
    state = {"w": x}
    address = x.data_ptr()
    names = dict(locals(), torch=torch)
    truth = {}
    for text in EXPRESSIONS:
        with torch.no_grad():  # a view that an expression makes has no history
            value = eval(text, names)
        if isinstance(value, torch.nn.Parameter):
            value = value.detach()
        if isinstance(ast.parse(text, mode="eval").body, ast.Compare):
            value = bool(value)  # the pack says True where torch says tensor(True)
        truth[text] = repr(value)
    print(json.dumps(truth), flush=True)
    sys.stdin.read()
    return (
        y,
        half,
        brain,
        double,
        long,
        flags,
        infinite,
        several,
        size,
        expanded,
        conj,
        weight,
        listed,
        named,
        parameter,
        meta,
        sub,
        state,
        address,
    )


if __name__ == "__main__":
    main()
