"""What gpucache costs next to its peers: ``python -m tests.benchmarks NAME...``; one test runs each once."""
