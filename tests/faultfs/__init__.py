"""A disk that says no: a preloaded library that fails the system calls of a child process, steered from outside."""
