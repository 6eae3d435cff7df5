"""C libraries between a command and its compilers; ``README.md`` lists the functions that they intercept."""
