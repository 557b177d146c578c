"""Engines: one replica in virtual time, batching like vLLM V1."""
