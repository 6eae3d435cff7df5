"""C libraries between a command and its compilers; ``README.md`` says what they intercept."""
