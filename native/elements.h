/* What the elements of a tensor are together: sums and extremes of numbers that lie in a row. */
#ifndef OTEL_ML_ELEMENTS_H
#define OTEL_ML_ELEMENTS_H

#include "native.h"

#pragma GCC visibility push(hidden)

/* How many bytes ahead the memory is asked for. A processor looks ahead by itself up to the end of a page, and waits at the
   beginning of the next: 133,000 gradients, after the backward pass that made them, take 220 µs without, and 90 so. */
#define AHEAD 2048

/* `largest` is the largest magnitude: NaN where any number is. */
typedef struct {
    double square, largest;
    Py_ssize_t zeros;
} Found;

/* Where a number is NaN, all three are. */
typedef struct {
    double sum, low, high;
} Extent;

/* How numbers of one type are looked at. */
typedef struct {
    Found (*look)(const char *at, Py_ssize_t n);
    Extent (*span)(const char *at, Py_ssize_t n);
} Kind;

extern const Kind of_64_bits, of_32_bits, of_16_bits, of_brain_type;

#pragma GCC visibility pop

#endif
