"""Actors: the threads and the loop around the pure rules."""
