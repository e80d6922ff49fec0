"""Arrays sharded over several devices, and their sharding in types."""
