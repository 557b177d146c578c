"""One replica in virtual time: continuous batching, KV blocks, prefix cache, and decode in closed form."""
