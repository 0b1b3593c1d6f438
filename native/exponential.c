/* Moments and exponential buckets of a series become an exponential histogram. Twins: _exponential() and _side() of
   _internal/messages/encode_metrics.py. */
#include "histogram.h"

#define EXPONENTIAL_FIELD 10
#define ATTRIBUTES 1
#define ATTRIBUTE_TAG (ATTRIBUTES << 3 | 2)
#define METRIC_TAG 0x12
#define DATA_TAG (EXPONENTIAL_FIELD << 3 | 2)
#define POINT_TAG 0x0a
#define POSITIVE_TAG (8 << 3 | 2)
#define NEGATIVE_TAG (9 << 3 | 2)
#define COUNTS_TAG 0x12
#define RANGE_SIZE 18
#define MOST_COUNTS 2048 /* MAX_BUCKETS of _internal/series/buckets.py */

/* Buckets of one sign, without gaps; `n` is 0 where there are none. */
typedef struct {
    int64_t low;
    Py_ssize_t n, counts_size;
    uint64_t counts[MOST_COUNTS];
} Side;

typedef struct {
    int64_t scale;
    uint64_t zeros;
    Side positive, negative;
} Buckets;

static inline uint64_t zigzag(int64_t number)
{
    return number >= 0 ? (uint64_t)number << 1 : (~(uint64_t)number << 1) + 1;
}

/* Where the first and the last bucket are: 1, or 0 where Python has to look. */
static int ends_of(PyObject *counts, int64_t *low, int64_t *high)
{
    PyObject *key;
    int64_t index;
    *low = INT64_MAX, *high = INT64_MIN;
    for (Py_ssize_t place = 0; PyDict_Next(counts, &place, &key, NULL);) {
        if (!as_signed(key, &index))
            return 0;
        *low = index < *low ? index : *low;
        *high = index > *high ? index : *high;
    }
    /* As unsigned ones, whose difference is right, however far they are apart. */
    return (uint64_t)*high - (uint64_t)*low < MOST_COUNTS;
}

static int as_side(PyObject *counts, Side *side)
{
    PyObject *key, *count;
    int64_t high, index;
    side->n = side->counts_size = 0;
    if (counts == NULL || !PyDict_CheckExact(counts))
        return 0;
    if (PyDict_GET_SIZE(counts) == 0)
        return 1;
    if (!ends_of(counts, &side->low, &high))
        return 0;
    side->n = (Py_ssize_t)(high - side->low + 1);
    memset(side->counts, 0, (size_t)side->n * sizeof *side->counts);
    /* Each within the array: ends_of() has seen all of these keys, and nothing ran since. */
    for (Py_ssize_t place = 0; PyDict_Next(counts, &place, &key, &count);)
        if (!as_signed(key, &index) || !as_unsigned(count, &side->counts[index - side->low]))
            return 0;
    for (Py_ssize_t i = 0; i < side->n; i++)
        side->counts_size += varint_size(side->counts[i]);
    return 1;
}

static int as_buckets(PyObject *object, Buckets *buckets)
{
    return is_exactly(object, python.buckets_type) && as_signed(slot(object, bucket_slot.scale), &buckets->scale) &&
           as_unsigned(slot(object, bucket_slot.zeros), &buckets->zeros) &&
           as_side(slot(object, bucket_slot.positive), &buckets->positive) &&
           as_side(slot(object, bucket_slot.negative), &buckets->negative);
}

static inline Py_ssize_t number_size(int64_t number)
{
    return number == 0 ? 0 : 1 + varint_size(zigzag(number));
}

static inline unsigned char *put_number(unsigned char *at, unsigned char tag, int64_t number)
{
    if (number == 0)
        return at;
    *at++ = tag;
    return put_varint(at, zigzag(number));
}

static Py_ssize_t side_payload(const Side *side)
{
    return number_size(side->low) + field_size(side->counts_size);
}

static Py_ssize_t side_size(const Side *side)
{
    return side->n == 0 ? 0 : field_size(side_payload(side));
}

static unsigned char *put_side(unsigned char *at, unsigned char tag, const Side *side)
{
    if (side->n == 0)
        return at;
    at = put_number(put_head(at, tag, side_payload(side)), 0x08, side->low);
    at = put_head(at, COUNTS_TAG, side->counts_size);
    for (Py_ssize_t i = 0; i < side->n; i++)
        at = put_varint(at, side->counts[i]);
    return at;
}

static Py_ssize_t buckets_size(const Buckets *buckets)
{
    return number_size(buckets->scale) + (buckets->zeros ? 9 : 0) + side_size(&buckets->positive) +
           side_size(&buckets->negative);
}

static unsigned char *put_buckets(unsigned char *at, const Buckets *buckets)
{
    at = put_number(at, 0x30, buckets->scale);
    if (buckets->zeros)
        at = put_fixed(at, 0x39, buckets->zeros);
    return put_side(put_side(at, POSITIVE_TAG, &buckets->positive), NEGATIVE_TAG, &buckets->negative);
}

/* What is before the only point of a metric; `head` is what says which metric it is. */
static unsigned char *put_metric(unsigned char *at, PyObject *head, Py_ssize_t metric, Py_ssize_t point)
{
    at = put_bytes(put_head(at, METRIC_TAG, metric), head);
    return put_head(put_head(at, DATA_TAG, field_size(point) + DELTA_SIZE), POINT_TAG, point);
}

/* 0 or -1 */
static int put_point(
    Scope *scope, PyObject *series, PyObject *attributes, const Moments *moments, const Values *values,
    const Buckets *buckets)
{
    PyObject *head = constant(series, EXPONENTIAL_FIELD, 0, python.head, "(O)", series);
    if (head == NULL)
        return -1;
    int ranged = is_ranged(series, moments);
    Py_ssize_t point = size_of(attributes) + values_size(values) + MOMENTS_SIZE + buckets_size(buckets) +
                       (ranged ? RANGE_SIZE : 0);
    Py_ssize_t metric = size_of(head) + field_size(field_size(point) + DELTA_SIZE);
    unsigned char *at = room_for(&scope->out, field_size(metric));
    if (at != NULL) {
        at = put_metric(at, head, metric, point);
        if (attributes != NULL)
            at = put_bytes(at, attributes);
        at = put_values(at, ATTRIBUTE_TAG, values);
        at = put_buckets(put_moments(at, scope, moments), buckets);
        if (ranged)
            at = put_double(put_double(at, 0x61, moments->low), 0x69, moments->high);
        wrote_to(&scope->out, put_delta(at));
    }
    Py_DECREF(head);
    return at == NULL ? -1 : 0;
}

int put_exponential(Scope *scope, const Entry *entry, PyObject *object)
{
    Moments moments;
    Values values = {0};
    Buckets buckets; /* 32 KiB, of which few are touched */
    PyObject *attributes;
    if (!as_moments(entry->state, &moments) || !as_buckets(object, &buckets))
        return 0;
    int done = values_of(scope, entry->series, &values);
    if (done == 1)
        done = attributes_of(entry->series, ATTRIBUTES, &attributes);
    if (done != 1)
        return done;
    int failed = put_point(scope, entry->series, attributes, &moments, &values, &buckets);
    Py_XDECREF(attributes);
    return failed ? -1 : 1;
}
