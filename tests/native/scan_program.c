/* Looks at each entry of the current directory that an argument names, with no more room than it takes: at its head, and
   at all of it. Prints how many heads were taken apart, and how many payloads are plainly sound PTX. */
#include "scan.c"

int main(int count, char **names) {
    int folder = open(".", O_RDONLY | O_DIRECTORY), apart = 0, plain = 0;
    for (int i = 1; i < count; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct stat status;
            struct seen *seen = malloc(sizeof *seen);
            unsigned char *bytes = stat(names[i], &status) ? NULL : malloc((size_t)status.st_size);
            if (!seen || !bytes) return 1;
            if (gpucache_look_at(folder, names[i], 1, whole, seen, bytes, (size_t)status.st_size) != 1) return 1;
            apart += seen->frame > 0;
            plain += seen->ptx[0] > 0;
            free(seen);
            free(bytes);
        }
    printf("%d %d\n", apart, plain);
    return 0;
}
