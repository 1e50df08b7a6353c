// Runs the entry point of a model: driver JOB RESULTS.
//
// The job holds the number of values that the entry point takes, and for each its kind and a number: of bytes, which
// follow for an input or a constant, or the value itself. The results are the bytes of the outputs, one after another.
// Ends with status 3, naming the value, if the model wrote outside of one.
//
// All that generated code calls besides the C library is here: the threading layer, by POSIX threads, for the functions
// of teams, which are linked from LLVM IR.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER, INPUT, CONSTANT, OUTPUT, ARENA };
enum { LINE = 64, MARGIN = 4096, MOST_THREADS = 16, MARK = 0xA5 };

typedef void task_function(char **args, int64_t *dims, int64_t *steps, void *data);

extern void entry(int64_t *values) __asm__("tw.main.packed");

int32_t tilewright_thread_limit = MOST_THREADS;

int tilewright_yield(void) { return sched_yield(); }

struct share {
    task_function *task;
    char *arg;
    int64_t count, *steps;
    void *data;
};

static void *run_share(void *given) {
    struct share *share = given;
    share->task(&share->arg, &share->count, share->steps, share->data);
    return NULL;
}

static void parallel_for(void *task, char **args, int64_t *dims, int64_t *steps, void *data, int64_t inner_ndim,
                         int64_t array_count, int32_t num_threads) {
    pthread_t threads[MOST_THREADS];
    struct share shares[MOST_THREADS];
    for (int i = 0; i < num_threads; i++) {
        int64_t first = dims[0] * i / num_threads, last = dims[0] * (i + 1) / num_threads;
        shares[i] = (struct share){task, args[0] + first * steps[0], last - first, steps, data};
        if (pthread_create(&threads[i], NULL, run_share, &shares[i])) abort();
    }
    for (int i = 0; i < num_threads; i++) pthread_join(threads[i], NULL);
}

void *tilewright_parallel_for = parallel_for;

static int64_t read_number(FILE *file) {
    int64_t number;
    if (fread(&number, sizeof number, 1, file) != 1) abort();
    return number;
}

int main(int argc, char **argv) {
    FILE *job = fopen(argv[1], "rb"), *results = fopen(argv[2], "wb");
    if (argc != 3 || !job || !results) return 2;
    int64_t count = read_number(job);
    int64_t *kinds = calloc(count, sizeof *kinds), *sizes = calloc(count, sizeof *sizes);
    int64_t *values = calloc(count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        kinds[i] = read_number(job);
        values[i] = sizes[i] = read_number(job);
        if (kinds[i] == NUMBER) continue;
        // As NumPy's: arrays of callers begin at multiples of 16 bytes only.
        int64_t shift = kinds[i] == INPUT || kinds[i] == OUTPUT ? 16 : 0;
        int64_t whole = (sizes[i] + 2 * MARGIN + LINE) / LINE * LINE;
        char *memory = aligned_alloc(LINE, whole);
        if (!memory) return 2;
        memset(memory, MARK, whole);
        values[i] = (int64_t)(memory + MARGIN + shift);
        if (kinds[i] == INPUT || kinds[i] == CONSTANT)
            if (fread((char *)values[i], 1, sizes[i], job) != (size_t)sizes[i]) return 2;
    }
    entry(values);
    for (int64_t i = 0; i < count; i++) {
        if (kinds[i] == NUMBER) continue;
        const unsigned char *start = (unsigned char *)values[i];
        for (int64_t at = 1; at <= MARGIN / 2; at++)
            if (start[-at] != MARK || start[sizes[i] + at - 1] != MARK) {
                fprintf(stderr, "the model wrote outside of value %lld\n", (long long)i);
                return 3;
            }
        if (kinds[i] == OUTPUT) fwrite(start, 1, sizes[i], results);
    }
    return fclose(results) ? 2 : 0;
}
