// C = alpha A B + beta C for row-major matrices of any size, each of A and B as it is (n) or transposed (t).
// A work item computes ROWS x COLUMNS elements of C in registers, 8 apart; which shape is fastest depends on
// the matrices and on the device, so a library builds them all, unrolled, and picks one for each call. That
// is what makes such libraries slow to start.
//
// One work-group of 8 x 8 computes 8 COLUMNS x 8 ROWS of C. Global size: columns / COLUMNS by rows / ROWS,
// both rounded up to whole groups.

#define SIDE 8 // of a work-group, and the depth of what it holds in local memory

#define DEFINE_GEMM(NAME, A_AT, B_AT, ROWS, COLUMNS)                                                         \
    kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))                                              \
    void NAME(global const float *a, global const float *b, global float *c, const uint rows,                \
              const uint inner, const uint columns, const float alpha, const float beta)                     \
    {                                                                                                        \
        local float tile_a[SIDE * ROWS][SIDE + 1]; /* one column of padding keeps banks apart */             \
        local float tile_b[SIDE][SIDE * COLUMNS + 1];                                                        \
        const uint x = get_local_id(0), y = get_local_id(1);                                                 \
        const uint first_row = get_group_id(1) * SIDE * ROWS + y;                                            \
        const uint first_column = get_group_id(0) * SIDE * COLUMNS + x;                                      \
        float sums[ROWS][COLUMNS] = {{0.0f}};                                                                \
                                                                                                             \
        for (uint start = 0; start < inner; start += SIDE) {                                                 \
            _Pragma("unroll") for (uint r = 0; r < ROWS; ++r)                                                \
            {                                                                                                \
                const uint row = first_row + r * SIDE, depth = start + x;                                    \
                tile_a[y + r * SIDE][x] = row < rows && depth < inner ? a[A_AT(row, depth)] : 0.0f;          \
            }                                                                                                \
            _Pragma("unroll") for (uint s = 0; s < COLUMNS; ++s)                                             \
            {                                                                                                \
                const uint column = first_column + s * SIDE, depth = start + y;                              \
                tile_b[y][x + s * SIDE] = column < columns && depth < inner ? b[B_AT(depth, column)] : 0.0f; \
            }                                                                                                \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            _Pragma("unroll") for (uint k = 0; k < SIDE; ++k)                                                \
                _Pragma("unroll") for (uint r = 0; r < ROWS; ++r)                                            \
                    _Pragma("unroll") for (uint s = 0; s < COLUMNS; ++s)                                     \
                        sums[r][s] += tile_a[y + r * SIDE][k] * tile_b[k][x + s * SIDE];                     \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
                                                                                                             \
        _Pragma("unroll") for (uint r = 0; r < ROWS; ++r)                                                    \
            _Pragma("unroll") for (uint s = 0; s < COLUMNS; ++s)                                             \
            {                                                                                                \
                const uint row = first_row + r * SIDE, column = first_column + s * SIDE;                     \
                if (row < rows && column < columns)                                                          \
                    c[row * columns + column] = alpha * sums[r][s] + beta * c[row * columns + column];       \
            }                                                                                                \
    }

#define A_PLAIN(ROW, DEPTH) ((ROW) * inner + (DEPTH))
#define A_TRANSPOSED(ROW, DEPTH) ((DEPTH) * rows + (ROW))
#define B_PLAIN(DEPTH, COLUMN) ((DEPTH) * columns + (COLUMN))
#define B_TRANSPOSED(DEPTH, COLUMN) ((COLUMN) * inner + (DEPTH))

#define DEFINE_GEMMS(ROWS, COLUMNS)                                               \
    DEFINE_GEMM(gemm_nn_##ROWS##x##COLUMNS, A_PLAIN, B_PLAIN, ROWS, COLUMNS)      \
    DEFINE_GEMM(gemm_nt_##ROWS##x##COLUMNS, A_PLAIN, B_TRANSPOSED, ROWS, COLUMNS) \
    DEFINE_GEMM(gemm_tn_##ROWS##x##COLUMNS, A_TRANSPOSED, B_PLAIN, ROWS, COLUMNS) \
    DEFINE_GEMM(gemm_tt_##ROWS##x##COLUMNS, A_TRANSPOSED, B_TRANSPOSED, ROWS, COLUMNS)

DEFINE_GEMMS(2, 2)
DEFINE_GEMMS(4, 2)
DEFINE_GEMMS(4, 4)
