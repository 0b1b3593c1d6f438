/* What points of histograms have in common, without bounds or with exponential buckets. */
#ifndef OTEL_ML_HISTOGRAM_H
#define OTEL_ML_HISTOGRAM_H

#include "encode.h"

#define DELTA_SIZE 2

typedef struct {
    uint64_t count;
    double total, low, high;
} Moments;

static inline int as_moments(PyObject *state, Moments *moments)
{
    return state != NULL && PyTuple_CheckExact(state) && PyTuple_GET_SIZE(state) == 4 &&
           as_unsigned(PyTuple_GET_ITEM(state, 0), &moments->count) &&
           as_double(PyTuple_GET_ITEM(state, 1), &moments->total) &&
           as_double(PyTuple_GET_ITEM(state, 2), &moments->low) &&
           as_double(PyTuple_GET_ITEM(state, 3), &moments->high);
}

/* Whether a point has minimum and maximum: once one of several records had, all do. */
static inline int is_ranged(PyObject *series, const Moments *moments)
{
    int is_known = slot(series, series_slot.ranged) == Py_True;
    if (!is_known && moments->count != 1) {
        set_slot(series, series_slot.ranged, Py_NewRef(Py_True));
        is_known = 1;
    }
    return is_known;
}

static inline unsigned char *put_delta(unsigned char *at)
{
    *at++ = 0x10;
    *at++ = 0x01;
    return at;
}

/* Times, count and sum: of the same numbers in both kinds of points. */
#define MOMENTS_SIZE (TIMES_SIZE + 18)

static inline unsigned char *put_moments(unsigned char *at, const Scope *scope, const Moments *moments)
{
    at = put(at, scope->times, TIMES_SIZE);
    return put_double(put_fixed(at, 0x21, moments->count), 0x29, moments->total);
}

/* Attributes of a point that are values: deviations and weights. */
typedef struct {
    double m2, wsum, wxsum;
    int has_m2, has_weights;
} Values;

#pragma GCC visibility push(hidden)

/* histogram.c: 1, 0 where Python has to, or -1 */
int values_of(const Scope *scope, PyObject *series, Values *values);
Py_ssize_t values_size(const Values *values);

/* `tag` is that of a point's attributes. */
unsigned char *put_values(unsigned char *at, unsigned char tag, const Values *values);

#pragma GCC visibility pop

#endif
