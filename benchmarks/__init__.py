"""Speed, measured: each row beside its floor in the same run, medians of interleaved runs. Never a timed test."""
