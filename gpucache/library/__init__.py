"""Code shared by ``gpucache.opencl`` and ``gpucache.cuda``: arguments, layers, log, batches."""
