"""K2: the indexer's keys in bf16, beside SGLang's e4m3 pool. CUDA C++, built ahead of time; off unless asked for."""
