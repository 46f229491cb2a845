"""What a co-restart costs, measured by processes that know nothing of ours: `make bench-restart`, results in bench/results/.

`restart.py` measures, `figures.py` computes (pure), `table.py` prints Markdown from the JSON. `on_machine/` runs on the lab machine.
"""
