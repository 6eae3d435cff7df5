"""Code shared by ``gpucache.opencl`` and ``gpucache.cuda``: arguments, stores, log, batches."""
