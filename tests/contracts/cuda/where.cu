// What names the file that it stands in.
#include <nv/target>

extern "C" __global__ void where(int *out) {
    assert(*out > 0);
    printf("%s:%d\n", __FILE__, __LINE__);
    NV_IF_TARGET(NV_PROVIDES_SM_80, (*out = 80;), (*out = 0;))
}
