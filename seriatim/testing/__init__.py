<<<<<<< HEAD
"""What tests and simulations use in place of the world. Stands above all layers: nothing in the library imports it."""
=======
"""Public test kit: fakes, contract suites, faults. It stands above all layers and imports any of them."""
>>>>>>> store
