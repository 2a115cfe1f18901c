"""Store trajectories as tables: the schema, the writer, the reader and conditions."""
