"""Copy Parquet files for computing, into a local folder or an object store."""
