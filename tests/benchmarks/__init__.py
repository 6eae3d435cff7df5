"""The costs of gpucache next to its peers: ``python -m tests.benchmarks NAME...``; one test runs each."""
