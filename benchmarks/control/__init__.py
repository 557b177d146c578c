"""The proof: Governor, its peers and the bounds on the same fleets, at equal attainment. Makes docs/benchmarks.md."""
