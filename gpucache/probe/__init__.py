"""The devices and compilers of this machine, probed in child processes as broken drivers may crash."""
