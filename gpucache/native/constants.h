/* Made by python -m gpucache.cli.generate. */
#define LINE_UNSEEN "no OpenCL, NVRTC or hipRTC build was seen; gpucache-run(1) has reasons"
#define LINE_UNSEEN_CODE "no OpenCL, NVRTC or hipRTC build was seen before the command ended with exit code %d"
#define LINE_NO_ROOM "no OpenCL, NVRTC or hipRTC build was seen; if a library says 'cannot allocate memory in static TLS block', it needs more room than there is with LD_AUDIT; raise glibc.rtld.optional_static_tls in GLIBC_TUNABLES, or run it with --no-nvrtc"
#define LINE_NOTHING "no build from source was seen; the program's own cache may have answered, or its OpenCL loader reads no layers"
#define LINE_NOTHING_CODE "no build from source was seen before the command ended with exit code %d"
#define LINE_BINARY "no build from source was seen; 1 program was loaded from a binary, for example from PyOpenCL's own cache"
#define LINE_BINARIES "no build from source was seen; %d programs were loaded from binaries, for example from PyOpenCL's own cache"
#define MARK ".gpucache-scratch"
#define TAG_NAME "CACHEDIR.TAG"
#define TAG_TEXT "Signature: 8a477f597d28d172789f06886806bc55\n# This file marks a cache made by gpucache, which backups may leave out.\n# For information see https://bford.info/cachedir/\n"
#define ROOM 4096
#define ROOM_NAME "glibc.rtld.optional_static_tls"
#define LOG_CAP 1048576
#define LIBRARY_ABI 1
#define SOCKET_CAP 100
#define PASSED_ON SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT
#define FUNCTIONS_OF_FILES {"open", 'o'}, {"open64", 'o'}, {"openat", 'a'}, {"openat64", 'a'}, {"fopen", 'f'}, {"fopen64", 'f'}, {"access", 'e'}, {"stat", 's'}, {"stat64", 's'}, {"__xstat", 'x'}, {"__xstat64", 'x'}
