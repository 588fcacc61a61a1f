"""A real vLLM that computes one step, or a few, whenever a line comes, and that is harmed and mended by lines; for llm-layers.

    serve_layers.py --model FOLDER --ready FILE --words FIFO [--tp N] [--replicas 1]

Lines of FIFO: `ask N` computes the same prompt and N tokens, `again N` once more, whatever blocks hold it already, `oddly N` as
`ODD` wants it sampled, `ruled N` such that `RULE` matches; the name of a method of `Harm` (and a rank) calls it in the workers.
FILE.answers gets a line for each that is done: the tokens, or what the method returned."""

import argparse
import hashlib
import json
import os
import signal
import sys

import torch
from plain_transformers import PROMPT, make
from serve_http import write_tokenizer
from serve_sglang import dtype_of
from tiny_vllm import TINY

ODD = {
    "temperature": 0.37,
    "top_p": 0.81,
    "top_k": 13,
    "min_p": 0.02,
    "presence_penalty": -0.5,
    "frequency_penalty": 1.25,
    "repetition_penalty": 1.1,
    "seed": 2**40 + 7,
    "min_tokens": 2,
    "stop_token_ids": [3, 9],
    "logit_bias": {5: -100.0, 7: 3.5},
}
RULE = "(w5[0-9]*w7[0-9]*)+"


def packed(weight):
    """A linear layer's function over a weight of its own, as vLLM's CPU makes it."""
    from vllm import _custom_ops

    handler = _custom_ops.create_onednn_mm(weight.t(), 32)
    return lambda x, _, bias: _custom_ops.onednn_mm(handler, x, bias)


def attention_by_torch(scale):
    """The forward of a backend of attention (vllm/v1/attention/backends/cpu_attn.py) for a step of one whole prompt."""

    def forward(layer, query, key, value, kv_cache, attn_metadata, output, **scales):
        if attn_metadata is not None:
            count = attn_metadata.num_actual_tokens
            heads = [t[:count].transpose(0, 1) for t in (query, key, value)]
            out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, scale=scale, enable_gqa=True)
            output[:count] = out.transpose(0, 1).reshape(output[:count].shape)
        return output

    return forward


def put_nan(module, inputs, output):
    output[2, 5] = float("nan")


WEIGHTS = {  # place -> (rank, the weight of a model, where in it); token 14 of the prompt is the first rank's
    "embedding": (0, lambda model: model.model.embed_tokens.weight, (14, 9)),
    "rotary": (1, lambda model: model.model.layers[0].self_attn.rotary_emb.cos_sin_cache, (17, 3)),
    "norm": (1, lambda model: model.model.layers[2].post_attention_layernorm.weight, (5,)),
}


class Harm:
    """What vLLM's workers can do besides (worker_extension_cls)."""

    def _layer(self, number):
        return self.model_runner.model.model.layers[number]

    def hook(self, path):
        """From now on the last step's outputs stand in PATH-RANK: a line [path, output, hash] for each, in the order of the
        returns."""
        names, rows = {id(m): n for n, m in self.model_runner.model.named_modules()}, []

        def seen(module, inputs, output):
            if names.get(id(module)) == "model.embed_tokens":
                rows.clear()  # what came between two steps
            items = enumerate(output) if isinstance(output, tuple) else [(None, output)]
            for place, t in items:
                if isinstance(t, torch.Tensor):
                    raw = t.detach().contiguous().view(torch.uint8).numpy().tobytes()
                    name = "" if place is None else f"[{place}]"
                    rows.append([names.get(id(module)), name, hashlib.sha256(raw).hexdigest()])
            if module is self.model_runner.model:
                with open(f"{path}-{self.rank}", "w") as f:
                    json.dump(rows, f)
                rows.clear()

        torch.nn.modules.module.register_module_forward_hook(seen)

    def masks(self, path):
        """From now on PATH-RANK gets a line for each step of a request with a grammar: the tokens that its mask left."""
        from vllm.v1.worker import gpu_model_runner

        apply = gpu_model_runner.apply_grammar_bitmask

        def applied(scheduler_output, grammar_output, batch, logits, *more):
            apply(scheduler_output, grammar_output, batch, logits, *more)
            with open(f"{path}-{self.rank}", "a") as f:
                f.write(json.dumps(torch.isfinite(logits[0]).nonzero().flatten().tolist()) + "\n")

        gpu_model_runner.apply_grammar_bitmask = applied

    def weight(self, rank):
        """1 % more (in bfloat16 5 %) in a weight of the second layer of one rank: a norm's, for the CPU's linear layers keep
        packed copies."""
        if self.rank == rank:
            weight = self._layer(2).input_layernorm.weight.data
            self.kept = weight.clone()
            weight.mul_(1.01 if weight.dtype is torch.float32 else 1.05)

    def nan(self, rank):
        """A NaN in the output of a layer of one rank."""

        def planted(module, inputs, output):
            output[0][3, 7] = float("nan")

        if self.rank == rank:
            self.planted = self._layer(1).mlp.gate_up_proj.register_forward_hook(planted)

    def plant(self, place):
        """A NaN at a place of one rank (`WEIGHTS`, `attention` or `head`); `uproot 0` takes it out."""
        self.undo = lambda: None
        rank, find, index = WEIGHTS.get(place, (1, None, None))
        if self.rank != rank:
            return
        if find is not None:
            weight = find(self.model_runner.model).data
            kept = weight[index].clone()
            weight[index] = float("nan")
            self.undo = lambda: weight[index].copy_(kept)
        elif place == "attention":
            self.undo = self._layer(1).self_attn.attn.register_forward_hook(put_nan).remove
        else:
            head = self.model_runner.model.lm_head
            linear, weight = head.cpu_linear, head.weight.data.clone()
            weight[7, 3] = float("nan")
            head.cpu_linear = packed(weight)
            self.undo = lambda: setattr(head, "cpu_linear", linear)

    def uproot(self, _):
        self.undo()
        for cache in self.model_runner.kv_caches:
            cache.nan_to_num_(0)  # in slots that are masked it would reach later steps

    def replicate(self, _):
        """A layer that every rank has whole, whose weight is another one on each, and packed away."""
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.layers.linear import ReplicatedLinear

        with set_current_vllm_config(self.vllm_config):
            layer = ReplicatedLinear(256, 64, bias=False, params_dtype=torch.float32)
        layer.weight.data.fill_(self.rank)
        layer.quant_method.process_weights_after_loading(layer)
        self.model_runner.model.router = layer

    def mend(self, rank):
        """Takes the 1 % back."""
        if self.rank == rank:
            self._layer(2).input_layernorm.weight.data.copy_(self.kept)

    def linear(self, rank):
        """1 % more in a linear weight of the second layer of one rank. The CPU's linear layers keep a packed copy of it alone:
        the weight is what the identity gives, and is packed anew."""
        if self.rank == rank:
            layer = self._layer(2).mlp.gate_up_proj
            self.packed = layer.cpu_linear
            weight = layer.cpu_linear(torch.eye(layer.input_size), layer.weight, None).t().contiguous()
            layer.cpu_linear = packed(1.01 * weight)

    def unpack(self, rank):
        """Puts the linear weight back."""
        if self.rank == rank:
            self._layer(2).mlp.gate_up_proj.cpu_linear = self.packed

    def attention(self, name):
        """Swaps the backend of attention: `torch` for torch's own, which knows whole prompts alone; `vllm` puts vLLM's back."""
        for layer in self.model_runner.model.model.layers:
            impl = layer.self_attn.attn.impl
            impl.__dict__.pop("forward", None)
            if name == "torch":
                impl.forward = attention_by_torch(impl.scale)

    def pull(self, rank):
        """Takes the NaN out."""
        if self.rank == rank:
            self.planted.remove()


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "ready", "words", "replicas"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--tp", type=int, default=2)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    make(options.model)
    write_tokenizer(options.model)
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(
        model=options.model,
        tensor_parallel_size=options.tp,
        block_size=32,
        worker_extension_cls="serve_layers.Harm",
        num_gpu_blocks_override=20,
        **{**TINY, "load_format": "auto", "skip_tokenizer_init": False, "dtype": dtype_of(options.model)},
    )

    def ask(count, fresh=True, **how):
        if fresh:
            llm.reset_prefix_cache()  # each time the whole prompt is computed
        wanted = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False, **{"temperature": 0, **how})
        return list(llm.generate({"prompt_token_ids": PROMPT}, wanted, use_tqdm=False)[0].outputs[0].token_ids)

    asks = {
        "ask": ask,
        "again": lambda count: ask(count, fresh=False, skip_reading_prefix_cache=True),
        "oddly": lambda count: ask(count, **ODD),
        "ruled": lambda count: ask(count, structured_outputs=StructuredOutputsParams(regex=RULE)),
    }
    ask(2)
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "tp": options.tp, "sampling": ODD}, f)
    os.replace(options.ready + ".new", options.ready)
    with open(options.words) as words, open(options.ready + ".answers", "w") as answers:
        for line in words:
            word, argument = line.split()
            argument = int(argument) if argument.isdigit() else argument
            answer = asks[word](argument) if word in asks else llm.collective_rpc(word, args=(argument,))
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
