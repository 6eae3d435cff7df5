/* The part of OpenCL's binary interface that the layer uses: Khronos' OpenCL specification gives the types,
   the values and the functions; its cl_loader_layers extension gives the layer's own functions; the order of
   the functions in a loader's table is that of the cl_khr_icd extension. With it the layer compiles where no
   OpenCL headers are installed. tests/native compares it with Khronos' headers. */
#ifndef GPUCACHE_OPENCL_ABI_H
#define GPUCACHE_OPENCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_int cl_build_status;
typedef cl_uint cl_kernel_arg_info, cl_kernel_info, cl_program_build_info, cl_program_info;
typedef cl_uint cl_command_queue_info, cl_context_info;
typedef uint64_t cl_mem_flags, cl_device_type;
typedef intptr_t cl_context_properties;
typedef cl_uint cl_device_info, cl_platform_info, cl_layer_api_version, cl_layer_info;

typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_context *cl_context;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_event *cl_event;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_program *cl_program;
typedef void (*cl_program_notify)(cl_program program, void *data);
typedef void (*cl_context_notify)(const char *error, const void *more, size_t size, void *data);

enum {
    CL_SUCCESS = 0,
    CL_BUILD_SUCCESS = 0,
    CL_BUILD_ERROR = -2,
    CL_OUT_OF_RESOURCES = -5,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_COMPILE_PROGRAM_FAILURE = -15,
    CL_LINK_PROGRAM_FAILURE = -17,
    CL_KERNEL_ARG_INFO_NOT_AVAILABLE = -19,
    CL_INVALID_VALUE = -30,
    CL_INVALID_DEVICE = -33,
    CL_INVALID_CONTEXT = -34,
    CL_INVALID_OPERATION = -59,

    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_PLATFORM_VENDOR = 0x0903,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_VENDOR = 0x102C,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_PLATFORM = 0x1031,
    CL_DEVICE_PARENT_DEVICE = 0x1042,
    CL_CONTEXT_DEVICES = 0x1081,
    CL_PROGRAM_REFERENCE_COUNT = 0x1160,
    CL_PROGRAM_CONTEXT = 0x1161,
    CL_PROGRAM_DEVICES = 0x1163,
    CL_PROGRAM_SOURCE = 0x1164,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_NUM_KERNELS = 0x1167,
    CL_PROGRAM_KERNEL_NAMES = 0x1168,
    CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT = 0x116A,
    CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT = 0x116B,
    CL_PROGRAM_BUILD_STATUS = 0x1181,
    CL_PROGRAM_BUILD_OPTIONS = 0x1182,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_FUNCTION_NAME = 0x1190,
    CL_KERNEL_PROGRAM = 0x1194,
    CL_KERNEL_ATTRIBUTES = 0x1195,

    CL_LAYER_API_VERSION = 0x4240,
    CL_LAYER_NAME = 0x4241,
    CL_LAYER_API_VERSION_100 = 100,
};

/* A loader's table of functions. Those that the layer does not need are counted, and passed on unchanged. */
typedef struct cl_icd_dispatch {
    void *unused_0[1];
    cl_int (*clGetPlatformInfo)(cl_platform_id, cl_platform_info, size_t, void *, size_t *);
    void *unused_2[1];
    cl_int (*clGetDeviceInfo)(cl_device_id, cl_device_info, size_t, void *, size_t *);
    cl_context (*clCreateContext)(const cl_context_properties *, cl_uint, const cl_device_id *, cl_context_notify,
                                  void *, cl_int *);
    cl_context (*clCreateContextFromType)(const cl_context_properties *, cl_device_type, cl_context_notify, void *,
                                          cl_int *);
    void *unused_6[2];
    cl_int (*clGetContextInfo)(cl_context, cl_context_info, size_t, void *, size_t *);
    void *unused_9[3];
    cl_int (*clGetCommandQueueInfo)(cl_command_queue, cl_command_queue_info, size_t, void *, size_t *);
    void *unused_13[1];
    cl_mem (*clCreateBuffer)(cl_context, cl_mem_flags, size_t, void *, cl_int *);
    void *unused_15[11];
    cl_program (*clCreateProgramWithSource)(cl_context, cl_uint, const char **, const size_t *, cl_int *);
    cl_program (*clCreateProgramWithBinary)(cl_context, cl_uint, const cl_device_id *, const size_t *,
                                            const unsigned char **, cl_int *, cl_int *);
    cl_int (*clRetainProgram)(cl_program);
    cl_int (*clReleaseProgram)(cl_program);
    cl_int (*clBuildProgram)(cl_program, cl_uint, const cl_device_id *, const char *, cl_program_notify, void *);
    void *unused_31[1];
    cl_int (*clGetProgramInfo)(cl_program, cl_program_info, size_t, void *, size_t *);
    cl_int (*clGetProgramBuildInfo)(cl_program, cl_device_id, cl_program_build_info, size_t, void *, size_t *);
    cl_kernel (*clCreateKernel)(cl_program, const char *, cl_int *);
    cl_int (*clCreateKernelsInProgram)(cl_program, cl_uint, cl_kernel *, cl_uint *);
    cl_int (*clRetainKernel)(cl_kernel);
    cl_int (*clReleaseKernel)(cl_kernel);
    void *unused_38[1];
    cl_int (*clGetKernelInfo)(cl_kernel, cl_kernel_info, size_t, void *, size_t *);
    void *unused_40[19];
    cl_int (*clEnqueueNDRangeKernel)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                                     const size_t *, cl_uint, const cl_event *, cl_event *);
    void *unused_60[5];
    void *(*clGetExtensionFunctionAddress)(const char *);
    void *unused_66[32];
    cl_int (*clCompileProgram)(cl_program, cl_uint, const cl_device_id *, const char *, cl_uint,
                               const cl_program *, const char **, cl_program_notify, void *);
    cl_program (*clLinkProgram)(cl_context, cl_uint, const cl_device_id *, const char *, cl_uint,
                                const cl_program *, cl_program_notify, void *, cl_int *);
    void *unused_100[1];
    cl_int (*clGetKernelArgInfo)(cl_kernel, cl_uint, cl_kernel_arg_info, size_t, void *, size_t *);
    void *unused_102[5];
    void *(*clGetExtensionFunctionAddressForPlatform)(cl_platform_id, const char *);
    void *unused_108[29];
    cl_kernel (*clCloneKernel)(cl_kernel, cl_int *);
    cl_program (*clCreateProgramWithIL)(cl_context, const void *, size_t, cl_int *);
    void *unused_139[6];
    cl_int (*clSetProgramSpecializationConstant)(cl_program, cl_uint, size_t, const void *);
    void *unused_146[110]; /* more than any loader has */
} cl_icd_dispatch;

#endif
