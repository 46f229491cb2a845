"""What `SGLANG_EXTERNAL_MODEL_PACKAGE=pdstack_lab_standins.models` names: the one architecture that the lab serves.

With it SGLang does not import its other 200 model files: 6 of the 46 s of CPU that a small engine's start took.
"""
