/* A cache in one file, for a command: unpacked before its start, and compared after its end. */
#ifndef GPUCACHE_ROOT_FILE_H
#define GPUCACHE_ROOT_FILE_H

/* Unpack a file into a directory that does not exist yet; 0 if Python has to, which says what is wrong with it. */
int root_file_unpacks(const char *path, const char *root);

/* Whether the directory is what the file has: the same files, and no entry used for the first time in a day. */
int root_file_is_current(void);

/* "; app.cache unchanged (1 entry, 4.2 KiB)", as gpucache/cli/run.py says it. */
int root_file_put(char *at, int size);

#endif
