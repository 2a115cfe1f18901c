"""Hold a file per family: its codes (``CODES``) and its detectors (``OF_TRAJECTORY``, ``OF_GROUP``, ``OF_STEP``)."""
