"""A stand-in for SGLang 0.5.23: what its engine says on the wire, without a model.

It exists for faults that the real engine does not produce on demand. Where it imitates, the source is
sglang-facts (sections 2, 3, 5.3, 6.1, 6.2) and lab-facts; `README.md` beside this package lists the faults.
"""

__version__ = "0.5.23"
