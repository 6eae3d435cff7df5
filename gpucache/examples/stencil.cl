// One time step of the wave equation on a plane, accurate to the eighth order in space: the inner loop of
// seismic imaging. A work-group brings its part of the wave and a margin around it into local memory, where
// every value is read up to 17 times. What lies beyond the plane is 0.
//
// `previous` holds the wave one step before `current`, and gets the one after. `speed` is (c dt / dx)^2 for
// each point. `tile` is (local width + 8) x (local height + 8) floats.

#define MARGIN 4

constant float weights[MARGIN + 1] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

kernel void wave_step(
    global float *previous, global const float *current, global const float *speed, local float *tile,
    const uint width, const uint height)
{
    const int item_x = get_local_id(0), item_y = get_local_id(1);
    const int items_x = get_local_size(0), items_y = get_local_size(1);
    const int pitch = items_x + 2 * MARGIN;
    const int left = (int)(get_group_id(0) * items_x) - MARGIN;
    const int top = (int)(get_group_id(1) * items_y) - MARGIN;

    for (int y = item_y; y < items_y + 2 * MARGIN; y += items_y)
        for (int x = item_x; x < pitch; x += items_x) {
            const int plane_x = left + x, plane_y = top + y;
            const bool inside = plane_x >= 0 && plane_x < (int)width && plane_y >= 0 && plane_y < (int)height;
            tile[y * pitch + x] = inside ? current[plane_y * (int)width + plane_x] : 0.0f;
        }
    barrier(CLK_LOCAL_MEM_FENCE);

    const size_t x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height)
        return;
    local const float *here = tile + (item_y + MARGIN) * pitch + item_x + MARGIN;
    float bend = 2.0f * weights[0] * here[0];
    for (int far = 1; far <= MARGIN; ++far)
        bend += weights[far] * (here[-far] + here[far] + here[-far * pitch] + here[far * pitch]);
    const size_t at = y * width + x;
    previous[at] = 2.0f * here[0] - previous[at] + speed[at] * bend;
}
