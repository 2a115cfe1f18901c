"""OpenTelemetry: trajectories to any OTLP receiver, with the names of the GenAI semantic conventions."""
