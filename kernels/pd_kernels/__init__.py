"""Kernels and guards for an SGLang prefill/decode pair, as a plugin; `PD_KERNELS=name,name` says which are wanted."""
