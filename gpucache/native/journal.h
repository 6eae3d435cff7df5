/* The journal of a root, to which a process adds its hits: gpucache/store/bounded_log.py keeps it bounded. */
#ifndef GPUCACHE_JOURNAL_H
#define GPUCACHE_JOURNAL_H

/* Append a process's hits, without any miss; 0 if Python has to. Where the root is read-only nothing remains to be done. */
int journal_hits(const char *root, const char *program, unsigned long long hits, unsigned long long saved_ns);

#endif
