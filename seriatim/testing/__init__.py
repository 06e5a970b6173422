"""Public test kit: fakes, contract suites, faults. It stands above all layers and imports any of them."""
