/* Checks inside GPU kernels, for OpenCL C and CUDA C++.
 *
 * A kernel that includes this header compiles anywhere. Checks do nothing unless GPUCACHE_CHECKS is
 * defined as 1 (sync: the host looks after every launch) or 2 (async: a kernel that starts after a failure
 * returns at once, and the host looks on request); gpucache defines it.
 *
 *     kernel void gather(GPUCACHE_CHECKED global const int *where, global float *out, int n) {
 *         GPUCACHE_BEGIN;
 *         int i = where[get_global_id(0)];
 *         GPUCACHE_CHECK(i >= 0 && i < n, "index %d is outside of 0 to %d", i, n - 1);
 *         ...
 *
 * GPUCACHE_CHECKED            first among the parameters of a kernel, and of a device function that
 *                             checks; more parameters follow it
 * GPUCACHE_PASS               first among the arguments of a call of such a device function
 * GPUCACHE_BEGIN;             the first statement of a kernel without barriers
 * GPUCACHE_CHECK(condition, format, operands...);
 *                             in a kernel without barriers: a failing work-item returns
 *
 * GPUCACHE_CHECK_INDEX(buffer, index);
 *                             the same for an index of a buffer that is a parameter of the kernel: it is
 *                             compared with the size that the queue knows, so that no number is in the source.
 *                             For a loop one check of its largest index, before it, is enough
 *
 * A kernel with barriers has sync points instead of its barriers, each with a name. A work-item that
 * fails continues at the sync point that its check names, where all work-items of its group return.
 *
 * GPUCACHE_BEGIN_SYNC;        its first statement, at the outermost level of the kernel
 * GPUCACHE_SYNC(name);        a barrier for local and global memory
 * GPUCACHE_CHECK_SYNC(name, condition, format, operands...);
 *                             a check before the sync point of that name
 * GPUCACHE_CHECK_INDEX_SYNC(name, buffer, index);
 * GPUCACHE_END_SYNC(name);    its last statement: the sync point of checks after the last barrier
 *
 * A check must name the next sync point that the other work-items of the group reach. So a loop with a
 * sync point in it needs one more after the last check in its body, and every work-item of the group must
 * reach each sync point equally often, as with any barrier: none may return by itself.
 * In CUDA C++ a check cannot jump over a declaration with an initial value into its scope: declare such
 * variables before the check, or put the code between the check and the sync point into braces.
 *
 * A device function that checks returns int: 0 at its end, and 1 if one of its checks failed. It returns
 * other results through a pointer. Only its callers can leave the kernel:
 *
 * GPUCACHE_CHECK_INSIDE(condition, format, operands...);   a check in a device function
 * GPUCACHE_CALL(call);                in a kernel without barriers
 * GPUCACHE_CALL_SYNC(name, call);     in a kernel before the sync point of that name
 * GPUCACHE_CALL_INSIDE(call);         in a device function
 *
 * A kernel without checks needs none of this, and is the same in every mode. With GPUCACHE_CHECKED and
 * GPUCACHE_BEGIN the host need not look for failures before it is launched in the mode async.
 *
 * A format is a string literal with up to eight operands, as in printf: %d %i %u %x %X %o %c and
 * %e %f %g with flags, width and precision, and %% for a sign. Operands keep their types, so that a float is
 * printed as a float regardless of the format; they are numbers, not vectors, and are evaluated once, and
 * only by a work-item that fails. A condition is evaluated once, and not at all without
 * checks.
 */
#ifndef GPUCACHE_CHECK_H
#define GPUCACHE_CHECK_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GPUCACHE_BARRIER_() __syncthreads()
#else
#define GPUCACHE_BARRIER_() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

#if !defined(GPUCACHE_CHECKS) || GPUCACHE_CHECKS == 0

#define GPUCACHE_CHECKED
#define GPUCACHE_PASS
#define GPUCACHE_BEGIN ((void)0)
#define GPUCACHE_BEGIN_SYNC ((void)0)
#define GPUCACHE_SYNC(name) GPUCACHE_BARRIER_()
#define GPUCACHE_END_SYNC(name) ((void)0)
#define GPUCACHE_CHECK(...) ((void)0)
#define GPUCACHE_CHECK_SYNC(...) ((void)0)
#define GPUCACHE_CHECK_INSIDE(...) ((void)0)
#define GPUCACHE_CHECK_INDEX(...) ((void)0)
#define GPUCACHE_CHECK_INDEX_SYNC(...) ((void)0)
#define GPUCACHE_CALL(...) ((void)(__VA_ARGS__))
#define GPUCACHE_CALL_SYNC(name, ...) ((void)(__VA_ARGS__))
#define GPUCACHE_CALL_INSIDE(...) ((void)(__VA_ARGS__))

#else

/* The failure record, 112 bytes: int32 code, -1 for none; int32 line; int32 number of the launched kernel;
 * int32 number of operands; then 64-bit words: the types of the operands, 4 bits each from the lowest (1
 * signed, 2 unsigned, 3 double, 4 float), the global id in three dimensions, and eight operands. The state
 * that a kernel receives with it has the kernel's number above its lowest bit, which is 1 if a kernel that
 * can fail has run since the host last looked. Behind the record are the sizes in bytes of the kernel's own
 * arguments, one word each. */

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define GPUCACHE_GLOBAL_
#define GPUCACHE_LOCAL_ __shared__
#define GPUCACHE_FUNCTION_ static __device__ __inline__
#define GPUCACHE_SWAP_(at, code) atomicCAS(at, -1, code)
#define GPUCACHE_ID_(x) ((unsigned long long)blockIdx.x * blockDim.x + threadIdx.x)
#define GPUCACHE_IDS_ GPUCACHE_ID_(x), GPUCACHE_ID_(y), GPUCACHE_ID_(z)
#define GPUCACHE_FLOATING_TYPE_ 3
#define GPUCACHE_FLOATING_(x) ((gpucache_word_)__double_as_longlong((double)(x)))
typedef unsigned long long gpucache_word_;

#else

#define GPUCACHE_GLOBAL_ __global
#define GPUCACHE_LOCAL_ __local
#define GPUCACHE_FUNCTION_ static
#define GPUCACHE_SWAP_(at, code) atomic_cmpxchg(at, -1, code)
#define GPUCACHE_IDS_ get_global_id(0), get_global_id(1), get_global_id(2)
#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)
#define GPUCACHE_FLOATING_TYPE_ 3
#define GPUCACHE_FLOATING_(x) as_ulong((double)(x))
#else
#define GPUCACHE_FLOATING_TYPE_ 4
#define GPUCACHE_FLOATING_(x) ((gpucache_word_)as_uint((float)(x)))
#endif
typedef ulong gpucache_word_;

#endif

/* Record a failure if it is the first. */
GPUCACHE_FUNCTION_ void gpucache_fail_(
    GPUCACHE_GLOBAL_ int *record, int state, int code, int line, int count, int types, gpucache_word_ a,
    gpucache_word_ b, gpucache_word_ c, gpucache_word_ d, gpucache_word_ e, gpucache_word_ f, gpucache_word_ g,
    gpucache_word_ h)
{
    gpucache_word_ values[] = {(unsigned int)types, GPUCACHE_IDS_, a, b, c, d, e, f, g, h};
    GPUCACHE_GLOBAL_ gpucache_word_ *words = (GPUCACHE_GLOBAL_ gpucache_word_ *)(record + 4);
    if (GPUCACHE_SWAP_(record, code) != -1)
        return;
    record[1] = line;
    record[2] = state >> 1;
    record[3] = count;
    for (int i = 0; i < 12; ++i)
        words[i] = values[i];
}

/* The same for kernels with barriers. Intel's CPU compiler vectorises them only if this is a call, and makes a
 * call for vectors without a failure as well, but a loop only for others: so this is a call in a loop that the
 * compiler does not know to end at once. Kernels without barriers are faster with the code in its place. */
#if defined(__INTEL_LLVM_COMPILER)
__attribute__((noinline)) static int gpucache_fail_sync_(
    GPUCACHE_GLOBAL_ int *record, int state, int code, int line, int count, int types, gpucache_word_ a,
    gpucache_word_ b, gpucache_word_ c, gpucache_word_ d, gpucache_word_ e, gpucache_word_ f, gpucache_word_ g,
    gpucache_word_ h)
{
    gpucache_fail_(record, state, code, line, count, types, a, b, c, d, e, f, g, h);
    return *(volatile GPUCACHE_GLOBAL_ int *)record == -1;
}
#define GPUCACHE_FAIL_SYNC_(...) \
    while (GPUCACHE_FAIL_(gpucache_fail_sync_, __VA_ARGS__)) \
        continue
#else
#define GPUCACHE_FAIL_SYNC_(...) GPUCACHE_FAIL_(gpucache_fail_, __VA_ARGS__)
#endif

/* A kernel or function without these parameters does not compile, and the compiler names them. */
#define GPUCACHE_RECORD_ gpucache_record_of_GPUCACHE_CHECKED
#define GPUCACHE_STATE_ gpucache_state_of_GPUCACHE_CHECKED
#define GPUCACHE_CHECKED GPUCACHE_GLOBAL_ int *GPUCACHE_RECORD_, int GPUCACHE_STATE_,
#define GPUCACHE_PASS GPUCACHE_RECORD_, GPUCACHE_STATE_,

/* Whether a kernel launched before this one has failed. */
#if GPUCACHE_CHECKS == 2
#define GPUCACHE_FAILED_ ((GPUCACHE_STATE_ & 1) && *(volatile GPUCACHE_GLOBAL_ int *)GPUCACHE_RECORD_ >= 0)
#else
#define GPUCACHE_FAILED_ 0
#endif

/* The type of an operand, and its 64 bits. A conditional has the common type of both its sides and evaluates
 * only the side that is taken: half of 1 is 0 only for integers, and half of 0 - 1 is 0 only for signed
 * integers. */
#define GPUCACHE_IS_FLOATING_(x) ((1 ? 1 : (x)) / 2 != 0)
#define GPUCACHE_IS_SIGNED_(x) (((1 ? 0 : (x)) - 1) / 2 == 0)
#define GPUCACHE_TYPE_(x) (GPUCACHE_IS_FLOATING_(x) ? GPUCACHE_FLOATING_TYPE_ : GPUCACHE_IS_SIGNED_(x) ? 1 : 2)
#define GPUCACHE_WORD_(x) (GPUCACHE_IS_FLOATING_(x) ? GPUCACHE_FLOATING_(x) : (gpucache_word_)(x))

/* Record a failure with its operands, padded to eight; its format stays on the host. */
#define GPUCACHE_FAIL_(function, ...) GPUCACHE_FILLED_(function, __VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0, )
#define GPUCACHE_FILLED_(function, code, format, a, b, c, d, e, f, g, h, count, ...) \
    function(GPUCACHE_RECORD_, GPUCACHE_STATE_, code, __LINE__, count, \
        GPUCACHE_TYPE_(a) | GPUCACHE_TYPE_(b) << 4 | GPUCACHE_TYPE_(c) << 8 | GPUCACHE_TYPE_(d) << 12 | \
        GPUCACHE_TYPE_(e) << 16 | GPUCACHE_TYPE_(f) << 20 | GPUCACHE_TYPE_(g) << 24 | GPUCACHE_TYPE_(h) << 28, \
        GPUCACHE_WORD_(a), GPUCACHE_WORD_(b), GPUCACHE_WORD_(c), GPUCACHE_WORD_(d), \
        GPUCACHE_WORD_(e), GPUCACHE_WORD_(f), GPUCACHE_WORD_(g), GPUCACHE_WORD_(h))

/* A kernel that does not begin or end as its checks need does not compile, and the compiler names these. */
#define GPUCACHE_RETURNS_ gpucache_only_behind_GPUCACHE_BEGIN_else_name_a_sync_point
#define GPUCACHE_ENDS_ gpucache_the_last_statement_must_be_GPUCACHE_END_SYNC

#define GPUCACHE_BEGIN \
    enum { GPUCACHE_RETURNS_ }; \
    do { \
        if (GPUCACHE_FAILED_) \
            return; \
    } while (0)

/* PoCL takes a value that another work-item of the group wrote before a barrier for one of this work-item,
 * unless it is volatile; and after the last barrier of a kernel that may leave before it, all work-items
 * take the path of the first one, unless one more barrier is at the end. Compilers known to do neither
 * skip this: on Intel's, a kernel with many barriers takes 1.4 to 1.7 times as long with volatile. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__INTEL_LLVM_COMPILER)
#define GPUCACHE_SHARED_
#define GPUCACHE_END_BARRIER_() ((void)0)
#else
#define GPUCACHE_SHARED_ volatile
#define GPUCACHE_END_BARRIER_() GPUCACHE_BARRIER_()
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) /* C++ does not jump over declarations with values */
#define GPUCACHE_MUST_END_ ((void)0)
#define GPUCACHE_END_ ((void)0)
#else
#define GPUCACHE_MUST_END_ \
    if (0) \
        goto GPUCACHE_ENDS_
#define GPUCACHE_END_ \
    GPUCACHE_ENDS_: \
    ((void)0)
#endif

/* A failing work-item records the turn in which it failed, and each sync point looks for its own turn: a
 * faster work-item that fails after the sync point records a later turn, so no second barrier is needed. */
#define GPUCACHE_BEGIN_SYNC \
    GPUCACHE_LOCAL_ GPUCACHE_SHARED_ int gpucache_failed, gpucache_left; \
    int gpucache_turn = 1; \
    gpucache_failed = GPUCACHE_FAILED_; \
    gpucache_left = 0; \
    GPUCACHE_BARRIER_(); \
    if (gpucache_failed) \
        return; \
    GPUCACHE_MUST_END_

#define GPUCACHE_SYNC(name) \
    do { \
        goto gpucache_sync_##name; \
        gpucache_sync_##name: \
        GPUCACHE_BARRIER_(); \
        if (gpucache_left == gpucache_turn) \
            return; \
        ++gpucache_turn; \
    } while (0)

#define GPUCACHE_END_SYNC(name) \
    do { \
        goto gpucache_sync_##name; \
        gpucache_sync_##name: \
        GPUCACHE_END_; \
        GPUCACHE_END_BARRIER_(); \
    } while (0)

/* The code of a check without a number, such as a check in a header or a macro. */
#define GPUCACHE_UNNUMBERED_ 0x7fffffff

/* gpucache puts GPUCACHE_CHECK_N(number, ...) in the place of GPUCACHE_CHECK(...), and so on. */
#define GPUCACHE_CHECK(...) GPUCACHE_CHECK_N(GPUCACHE_UNNUMBERED_, __VA_ARGS__)
#define GPUCACHE_CHECK_SYNC(...) GPUCACHE_CHECK_SYNC_N(GPUCACHE_UNNUMBERED_, __VA_ARGS__)
#define GPUCACHE_CHECK_INSIDE(...) GPUCACHE_CHECK_INSIDE_N(GPUCACHE_UNNUMBERED_, __VA_ARGS__)

#define GPUCACHE_CHECK_N(number, condition, ...) \
    do { \
        (void)GPUCACHE_RETURNS_; \
        if (!(condition)) { \
            GPUCACHE_FAIL_(gpucache_fail_, number, __VA_ARGS__); \
            return; \
        } \
    } while (0)

#define GPUCACHE_CHECK_SYNC_N(number, name, condition, ...) \
    do { \
        if (!(condition)) { \
            GPUCACHE_FAIL_SYNC_(number, __VA_ARGS__); \
            gpucache_left = gpucache_turn; \
            goto gpucache_sync_##name; \
        } \
    } while (0)

#define GPUCACHE_CHECK_INSIDE_N(number, condition, ...) \
    do { \
        if (!(condition)) { \
            GPUCACHE_FAIL_(gpucache_fail_, number, __VA_ARGS__); \
            return 1; \
        } \
    } while (0)

/* A negative index is a large one here. */
#define GPUCACHE_ELEMENTS_(place, buffer) \
    (((GPUCACHE_GLOBAL_ const gpucache_word_ *)(GPUCACHE_RECORD_ + 28))[place] / sizeof(*(buffer)))
#define GPUCACHE_IS_INSIDE_(place, buffer, index) ((gpucache_word_)(index) < GPUCACHE_ELEMENTS_(place, buffer))

#define GPUCACHE_CHECK_INDEX_N(number, place, buffer, index) \
    GPUCACHE_CHECK_N(number, GPUCACHE_IS_INSIDE_(place, buffer, index), "", index, \
        GPUCACHE_ELEMENTS_(place, buffer))

#define GPUCACHE_CHECK_INDEX_SYNC_N(number, place, name, buffer, index) \
    GPUCACHE_CHECK_SYNC_N(number, name, GPUCACHE_IS_INSIDE_(place, buffer, index), "", index, \
        GPUCACHE_ELEMENTS_(place, buffer))

#define GPUCACHE_CALL(...) \
    do { \
        (void)GPUCACHE_RETURNS_; \
        if (__VA_ARGS__) \
            return; \
    } while (0)

#define GPUCACHE_CALL_SYNC(name, ...) \
    do { \
        if (__VA_ARGS__) { \
            gpucache_left = gpucache_turn; \
            goto gpucache_sync_##name; \
        } \
    } while (0)

#define GPUCACHE_CALL_INSIDE(...) \
    do { \
        if (__VA_ARGS__) \
            return 1; \
    } while (0)

#endif
#endif
