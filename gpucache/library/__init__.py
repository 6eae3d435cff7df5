"""What ``gpucache.opencl`` and ``gpucache.cuda`` share: arguments, layers and log of a process, batches."""
