"""Split-K sparse decode attention for DeepSeek-V4-Flash on sm_120: see README.md for what it computes and what it costs."""
