"""What gpucache costs beside its peers: ``python -m tests.benchmarks NAME...``; one test runs each once."""
