// A header of the host's, which no device compiler has.
#include <vector>

extern "C" __global__ void none(int *out) { *out = std::vector<int>().size(); }
