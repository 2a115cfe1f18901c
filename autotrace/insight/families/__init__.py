"""One file a family: its codes (``CODES``) and its detectors (``OF_TRAJECTORY``, ``OF_GROUP``, ``OF_STEP``)."""
