"""Write to MLflow, 3.5 or newer: an SQL store directly, or a tracking server. MLflow's own tracer is not used."""
