"""Programs that benchmarks run beside ours, written from their papers and their well-known structure."""
