"""The whole way, from outside: the command line as a process, real servers, real terminals."""
