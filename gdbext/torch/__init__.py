"""torch tensors as bytes: the layout of a release, `Tensor` read through it, elements decoded, text as torch's own repr."""
