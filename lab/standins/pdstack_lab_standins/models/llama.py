"""SGLang's own Llama, under the name by which its model registry looks for classes."""

import importlib

EntryClass = importlib.import_module("sglang.srt.models.llama").LlamaForCausalLM
