"""A wave-quantisation model of the sparse decode launch: it ranks policies, it predicts no throughput."""
