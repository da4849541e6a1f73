/* The main of a fuzz target outside libFuzzer: hands it each file that the command line names, and prints how
 * many it took. What a target finds wrong it says by crashing, so `make check` keeps every finding found. */
#include "require.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    uint8_t *data = NULL;
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        /* Exactly as large as the input, so that the address sanitizer sees a read one byte past it. */
        data = malloc(size ? (size_t)size : 1);
    }
    int failed = !data || fread(data, 1, (size_t)size, file) != (size_t)size;
    (void)fclose(file);
    if (failed)
        (void)fprintf(stderr, "cannot read %s\n", path);
    else
        failed = LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        /* Before the run: after a crash the last line names the input. */
        (void)printf("%s\n", argv[i]);
        (void)fflush(stdout);
        if (replay(argv[i]) != 0)
            return 1;
    }
    return 0;
}
