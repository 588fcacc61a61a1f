"""What every vLLM of the tests is started with: random weights, no tokenizer, short requests."""

TINY = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "max_model_len": 256,
    "enforce_eager": True,
    "dtype": "float32",
}
