"""One module a command. The only room that prints and exits."""
