/* What the files share that encode what a step has gathered: encode.c says how they go together. */
#ifndef OTEL_ML_ENCODE_H
#define OTEL_ML_ENCODE_H

#include "bytes.h"

/* -fvisibility is of definitions alone: what is declared here would else be reached through a table. */
#pragma GCC visibility push(hidden)

extern struct python {
    PyObject *pending_type, *series_type, *definition_type, *reduction_type, *order_type, *buckets_type;
    PyObject *scopes, *metrics, *gauge, *whole_gauge;
    PyObject *short_prefix, *long_prefix, *gauge_prefix, *known_prefix, *attributes, *head, *key_values, *asked;
    PyObject *before_m2, *before_wsum, *before_wxsum;
} python;

extern struct pending_slot {
    Py_ssize_t first_ns, last_ns, moments, order, m2, weights, buckets;
} pending_slot;

extern struct series_slot {
    Py_ssize_t attributes, constants, definition, m2, order, plain, ranged, short_prefix, long_prefix, sums;
} series_slot;

/* Of ExponentialBuckets. */
extern struct bucket_slot {
    Py_ssize_t scale, zeros, positive, negative;
} bucket_slot;

extern struct definition_slot {
    Py_ssize_t reduction, across, within, over, unsaid;
} definition_slot;

/* Bytes of these objects, and of those whose size is not known before they are read. */
extern Py_ssize_t series_size, definition_size;

/* reduction_text.c */

typedef struct {
    PyObject *reduction, *text, *defaults; /* the last is NULL where it has none */
    int takes_first, takes_last;
} Asked;

/* 0 or -1. */
int asked_by(PyObject *reduction, Asked *asked);

/* scopes.c */

typedef struct {
    int64_t order;
    Py_ssize_t place; /* where orders are equal */
    PyObject *series, *state, *reduction;
    PyObject *seen; /* its first and last record, where it has no moments */
} Entry;

PyObject *encoded_scopes(PyObject *module, PyObject *const *arguments, Py_ssize_t n);

/* scope_head.c */

typedef struct {
    int has_step, has_axis, has_reduction, has_defaults;
    int64_t step, seq, points;
    Text axis, reduction, defaults;
} About;

int as_about(PyObject *step, PyObject *axis, About *about);
Py_ssize_t about_size(const About *about);
unsigned char *put_about(unsigned char *at, const About *about, Py_ssize_t size);

/* A ScopeMetrics in the making. */

#define TIMES_SIZE 18

typedef struct {
    PyObject *pending, *order, *m2, *weights, *buckets, *next_number;
    unsigned char times[TIMES_SIZE];
    Asked asked;
    About about;
    Out out;
    Py_ssize_t points;
    PyObject *first_too; /* a list, once there is one */
} Scope;

/* constants.c */

PyObject *as_bytes(PyObject *answer);
PyObject *constant(PyObject *series, int number, Py_ssize_t size, PyObject *make, const char *format, ...);
int attributes_of(PyObject *series, int number, PyObject **attributes);

/* A prefix that stands in a slot; `make` of Python makes it. NULL with an exception. */
static inline PyObject *prefix_at(PyObject *series, Py_ssize_t offset, PyObject *make)
{
    PyObject *prefix = slot(series, offset);
    if (prefix != NULL && PyBytes_CheckExact(prefix) && PyBytes_GET_SIZE(prefix))
        return Py_NewRef(prefix);
    return as_bytes(PyObject_CallOneArg(make, series));
}

static inline unsigned char *put_bytes(unsigned char *at, PyObject *bytes)
{
    return put(at, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
}

static inline Py_ssize_t size_of(PyObject *bytes)
{
    return bytes == NULL ? 0 : PyBytes_GET_SIZE(bytes);
}

/* Points. What writes one returns 1, or 0 where Python has to, or -1 with an exception. */

/* histogram.c */
int put_plain(Scope *scope, const Entry *entry);
int put_histogram(Scope *scope, PyObject *series, PyObject *state);

/* exponential.c */
int put_exponential(Scope *scope, const Entry *entry, PyObject *buckets);

/* gauge.c */

#define GAUGE_SIZE 18
#define GAUGE_ATTRIBUTES 7

/* The first and the last record of a series. */
typedef struct {
    uint64_t first_ns, last_ns;
    double first, last;
    int is_one; /* both are the same */
} Order;

int put_gauge(Out *out, PyObject *series, uint64_t time_ns, double value);
int as_order(PyObject *object, Order *order);
int put_order(Scope *scope, PyObject *series, PyObject *object);

/* points.c: 0 or -1 */
int put_part(Out *out, PyObject *part);
int put_series(Scope *scope, const Entry *entry);

/* groups.c */
int add_group(PyObject *scopes, Scope *scope, const Entry *entries, Py_ssize_t n);

/* whole_gauge.c */
PyObject *encoded_gauge(PyObject *module, PyObject *const *arguments, Py_ssize_t n);

#pragma GCC visibility pop

#endif
