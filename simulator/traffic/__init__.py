"""Traffic: who asks for what, and when. Seeded, open loop."""
