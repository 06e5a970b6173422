"""What tests and simulations use in place of the world. Stands above all layers: nothing in the library imports it."""
