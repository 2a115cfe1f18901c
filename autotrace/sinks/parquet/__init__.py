"""Parquet files to compute with, in a local folder or an object store."""
