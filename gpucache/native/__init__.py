"""Libraries in C that stand between a command and its compilers; ``README.md`` says what they intercept."""
