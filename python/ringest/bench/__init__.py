"""Measures object storage for machine learning, ringest's clients and others', and reports what was measured:

    python3 -m ringest.bench COMMAND ...

What a run has measured is one JSON document (`ringest.bench.result`)."""
