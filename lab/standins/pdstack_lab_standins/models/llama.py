"""SGLang's own Llama, under the name by which its model registry looks for classes."""

from sglang.srt.models.llama import LlamaForCausalLM

EntryClass = LlamaForCausalLM
