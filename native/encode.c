/* What a step has gathered becomes metrics on the wire. Twin: _internal/encode.py.

   What is not usual (exponential buckets, a number of another type) is encoded there, a series at a time. */
#include "bytes.h"

static struct {
    PyObject *pending_type, *series_type, *definition_type, *reduction_type, *order_type;
    PyObject *scopes, *metrics, *gauge, *whole_gauge;
    PyObject *short_prefix, *long_prefix, *gauge_prefix, *known_prefix, *attributes, *key_values;
    PyObject *first, *last; /* what is asked for */
    PyObject *before_m2, *before_wsum, *before_wxsum;
} python;

static struct {
    Py_ssize_t first_ns, last_ns, moments, order, m2, weights, buckets;
} pending_slot;

static struct {
    Py_ssize_t attributes, constants, definition, m2, order, plain, ranged, short_prefix, long_prefix;
} series_slot;

static struct {
    Py_ssize_t reduction, across, within, over;
} definition_slot;

/* Bytes of these objects, and of those whose size is not known before they are read. */
static Py_ssize_t series_size, definition_size;
#define STATE_SIZE 64
#define USUAL_PREFIX 128

static int bind(PyObject *arguments)
{
    PyObject *pending, *series, *definition, *reduction, *order, *functions, *constants;
    if (!PyArg_ParseTuple(
            arguments, "OOOOOO!O!", &pending, &series, &definition, &reduction, &order, &PyTuple_Type, &functions,
            &PyTuple_Type, &constants))
        return -1;
    const struct {
        PyObject *type;
        const char *name;
        Py_ssize_t *offset;
    } wanted[] = {
        {pending, "first_ns", &pending_slot.first_ns},
        {pending, "last_ns", &pending_slot.last_ns},
        {pending, "moments", &pending_slot.moments},
        {pending, "order", &pending_slot.order},
        {pending, "m2", &pending_slot.m2},
        {pending, "weights", &pending_slot.weights},
        {pending, "buckets", &pending_slot.buckets},
        {series, "attributes", &series_slot.attributes},
        {series, "constants", &series_slot.constants},
        {series, "definition", &series_slot.definition},
        {series, "m2", &series_slot.m2},
        {series, "order", &series_slot.order},
        {series, "plain", &series_slot.plain},
        {series, "ranged", &series_slot.ranged},
        {series, "short_prefix", &series_slot.short_prefix},
        {series, "long_prefix", &series_slot.long_prefix},
        {definition, "reduction", &definition_slot.reduction},
        {reduction, "across", &definition_slot.across},
        {reduction, "within", &definition_slot.within},
        {reduction, "over", &definition_slot.over},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].offset = slot_offset(wanted[i].type, wanted[i].name)) < 0)
            return -1;
    if (!PyArg_ParseTuple(
            functions, "OOOOOOOOOO", &python.scopes, &python.metrics, &python.gauge, &python.whole_gauge,
            &python.short_prefix, &python.long_prefix, &python.gauge_prefix, &python.known_prefix, &python.attributes,
            &python.key_values) ||
        !PyArg_ParseTuple(constants, "SSS", &python.before_m2, &python.before_wsum, &python.before_wxsum))
        return -1;
    python.first = PyUnicode_InternFromString("first");
    python.last = PyUnicode_InternFromString("last");
    if (python.first == NULL || python.last == NULL)
        return -1;
    series_size = ((PyTypeObject *)series)->tp_basicsize;
    definition_size = ((PyTypeObject *)definition)->tp_basicsize;
    python.pending_type = Py_NewRef(pending);
    python.series_type = Py_NewRef(series);
    python.definition_type = Py_NewRef(definition);
    python.reduction_type = Py_NewRef(reduction);
    python.order_type = Py_NewRef(order);
    Py_INCREF(functions); /* for ever: what was taken from them is borrowed */
    Py_INCREF(constants);
    return 0;
}

/* What is asked of a group of series. */

typedef struct {
    PyObject *reduction, *text;
    int takes_first, takes_last;
} Asked;

#define ASKED 16

static Asked known_asked[ASKED];
static unsigned next_asked;

/* 1, 0 or -1. */
static int asks_for(PyObject *reduction, PyObject *name)
{
    PyObject *within = slot(reduction, definition_slot.within), *across = slot(reduction, definition_slot.across);
    if (within == NULL || across == NULL) {
        PyErr_SetString(PyExc_TypeError, "a reduction has neither `within` nor `across`");
        return -1;
    }
    return within != Py_None ? PyObject_RichCompareBool(within, name, Py_EQ) : PySequence_Contains(across, name);
}

/* What a reduction asks for, known of the last ones: a program has few. 0 or -1. */
static int asked_by(PyObject *reduction, Asked *asked)
{
    for (int i = 0; i < ASKED; i++)
        if (known_asked[i].reduction == reduction) {
            *asked = known_asked[i];
            return 0;
        }
    asked->reduction = reduction;
    if ((asked->takes_first = asks_for(reduction, python.first)) < 0 ||
        (asked->takes_last = asks_for(reduction, python.last)) < 0 || (asked->text = PyObject_Str(reduction)) == NULL)
        return -1;
    Py_INCREF(reduction);
    Asked *place = &known_asked[next_asked++ % ASKED], before = *place;
    *place = *asked;
    Py_XDECREF(before.reduction);
    Py_XDECREF(before.text);
    return 0;
}

static int is_same_reduction(PyObject *one, PyObject *other)
{
    if (one == other)
        return 1;
    const Py_ssize_t offsets[] = {definition_slot.across, definition_slot.within, definition_slot.over};
    for (int i = 0; i < 3; i++) {
        int equal = PyObject_RichCompareBool(slot(one, offsets[i]), slot(other, offsets[i]), Py_EQ);
        if (equal <= 0)
            return equal;
    }
    return 1;
}

/* The series of a step in their order, each with its moments. */

typedef struct {
    int64_t order;
    Py_ssize_t place; /* where orders are equal */
    PyObject *series, *state, *reduction;
    PyObject *seen; /* its first and last record, where it has no moments */
} Entry;

typedef struct {
    Entry *entries;
    Py_ssize_t n;
} Every;

static int by_order(const void *left, const void *right)
{
    const Entry *one = left, *other = right;
    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return one->place < other->place ? -1 : 1;
}

static void add_entry(Every *every, PyObject *series, PyObject *state, PyObject *seen)
{
    prefetch(series, series_size);
    prefetch(state != NULL ? state : seen, STATE_SIZE);
    every->entries[every->n] = (Entry){0, every->n, series, state, NULL, seen};
    every->n++;
}

/* 0 or -1. All references are borrowed. */
static int list_entries(Every *every, PyObject *moments, PyObject *order)
{
    PyObject *series, *state, *seen;
    Py_ssize_t place = 0;
    every->entries = PyMem_New(Entry, PyDict_GET_SIZE(moments) + PyDict_GET_SIZE(order) + 1);
    if (every->entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    while (PyDict_Next(moments, &place, &series, &state))
        add_entry(every, series, state, NULL);
    place = 0;
    while (PyDict_Next(order, &place, &series, &seen)) {
        int known = PyDict_GET_SIZE(moments) ? PyDict_Contains(moments, series) : 0;
        if (known < 0)
            return -1;
        if (!known)
            add_entry(every, series, NULL, seen);
    }
    return 0;
}

static void prefetch_parts(const Entry *entry)
{
    prefetch(slot(entry->series, series_slot.order), 1);
    prefetch(slot(entry->series, series_slot.definition), definition_size);
    prefetch(slot(entry->series, series_slot.short_prefix), USUAL_PREFIX);
    if (slot(entry->series, series_slot.ranged) == Py_True)
        prefetch(slot(entry->series, series_slot.long_prefix), USUAL_PREFIX);
    PyObject *numbers = entry->state != NULL ? entry->state : entry->seen;
    if (PyTuple_Check(numbers))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++)
            prefetch(PyTuple_GET_ITEM(numbers, i), 1);
}

/* 1, or 0 where it is none as all are. */
static int read_entry(Entry *entry)
{
    if (!as_signed(slot(entry->series, series_slot.order), &entry->order))
        return 0;
    PyObject *definition = slot(entry->series, series_slot.definition);
    if (definition == NULL || !is_exactly(definition, python.definition_type))
        return 0;
    entry->reduction = slot(definition, definition_slot.reduction);
    return entry->reduction != NULL && is_exactly(entry->reduction, python.reduction_type);
}

/* 1, or 0 where some are not as all are. */
static int read_entries(Every *every)
{
    int sorted = 1;
    for (Py_ssize_t i = 0; i < every->n; i++) {
        if (!is_exactly(every->entries[i].series, python.series_type))
            return 0;
        prefetch_parts(&every->entries[i]);
    }
    for (Py_ssize_t i = 0; i < every->n; i++) {
        if (!read_entry(&every->entries[i]))
            return 0;
        sorted = sorted && (i == 0 || every->entries[i - 1].order <= every->entries[i].order);
    }
    if (!sorted)
        qsort(every->entries, every->n, sizeof(Entry), by_order);
    return 1;
}

/* From here on code of Python may run. */
static void keep_entries(Every *every)
{
    for (Py_ssize_t i = 0; i < every->n; i++) {
        Py_INCREF(every->entries[i].series);
        Py_XINCREF(every->entries[i].state);
        Py_XINCREF(every->entries[i].seen);
        Py_INCREF(every->entries[i].reduction);
    }
}

static void drop_entries(Every *every)
{
    for (Py_ssize_t i = 0; i < every->n; i++) {
        Py_DECREF(every->entries[i].series);
        Py_XDECREF(every->entries[i].state);
        Py_XDECREF(every->entries[i].seen);
        Py_DECREF(every->entries[i].reduction);
    }
}

/* The `scope` of a ScopeMetrics. */

#define KEY(text) ((Text){text, sizeof text - 1})
/* wire/attributes.py */
#define SCOPE_NAME KEY("otel_ml")
#define STEP KEY("ml.step")
#define AXIS KEY("ml.step.axis")
#define REDUCTION KEY("ml.reduction")
#define SEQ KEY("ml.seq")
#define SEQ_POINTS KEY("ml.seq.points")

#define SCOPE_TAG 0x0a
#define METRIC_TAG 0x12
#define SCOPE_ATTRIBUTE_TAG 0x1a

typedef struct {
    int has_step, has_axis, has_reduction;
    int64_t step, seq, points;
    Text axis, reduction;
} About;

/* Whether both are such as can be encoded here. */
static int as_about(PyObject *step, PyObject *axis, About *about)
{
    *about = (About){.has_step = step != Py_None, .has_axis = axis != Py_None};
    return (!about->has_step || as_signed(step, &about->step)) && (!about->has_axis || as_text(axis, &about->axis));
}

static Py_ssize_t about_size(const About *about)
{
    return field_size(SCOPE_NAME.size) + (about->has_step ? number_attribute_size(STEP, about->step) : 0) +
           (about->has_axis ? text_attribute_size(AXIS, about->axis) : 0) +
           (about->has_reduction ? text_attribute_size(REDUCTION, about->reduction) : 0) +
           number_attribute_size(SEQ, about->seq) + number_attribute_size(SEQ_POINTS, about->points);
}

static unsigned char *put_about(unsigned char *at, const About *about, Py_ssize_t size)
{
    at = put_text(put_head(at, SCOPE_TAG, size), 0x0a, SCOPE_NAME);
    if (about->has_step)
        at = put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, STEP, about->step);
    if (about->has_axis)
        at = put_text_attribute(at, SCOPE_ATTRIBUTE_TAG, AXIS, about->axis);
    if (about->has_reduction)
        at = put_text_attribute(at, SCOPE_ATTRIBUTE_TAG, REDUCTION, about->reduction);
    at = put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, SEQ, about->seq);
    return put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, SEQ_POINTS, about->points);
}

/* Points. What writes one returns 1, or 0 where Python has to, or -1 with an exception. */

#define TIMES_SIZE 18
#define SHORT_SIZE 36
#define LONG_SIZE 54
#define DELTA_SIZE 2
#define GAUGE_SIZE 18
#define GAUGE_FIELD 5
#define HISTOGRAM_FIELD 9
#define GAUGE_ATTRIBUTES 7
#define HISTOGRAM_ATTRIBUTES 9

/* Bytes a point has in all: where they are fewer or more, the message shrinks or grows. */
#define USUAL_POINT 112
#define FIRST_VALUE 64

typedef struct {
    PyObject *pending, *order, *m2, *weights, *buckets, *next_number;
    unsigned char times[TIMES_SIZE];
    Asked asked;
    About about;
    Out out;
    Py_ssize_t points;
    PyObject *first_too; /* a list, once there is one */
} Scope;

typedef struct {
    uint64_t count;
    double total, low, high;
} Moments;

static inline int as_moments(PyObject *state, Moments *moments)
{
    return PyTuple_CheckExact(state) && PyTuple_GET_SIZE(state) == 4 &&
           as_unsigned(PyTuple_GET_ITEM(state, 0), &moments->count) &&
           as_double(PyTuple_GET_ITEM(state, 1), &moments->total) &&
           as_double(PyTuple_GET_ITEM(state, 2), &moments->low) &&
           as_double(PyTuple_GET_ITEM(state, 3), &moments->high);
}

/* What Python answered, if it is bytes; else NULL with an exception. Takes over the reference. */
static PyObject *as_bytes(PyObject *answer)
{
    if (answer == NULL || PyBytes_CheckExact(answer))
        return answer;
    PyErr_Format(PyExc_TypeError, "expected bytes, got %R", answer);
    Py_DECREF(answer);
    return NULL;
}

static inline unsigned char *put_bytes(unsigned char *at, PyObject *bytes)
{
    return put(at, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
}

static inline Py_ssize_t size_of(PyObject *bytes)
{
    return bytes == NULL ? 0 : PyBytes_GET_SIZE(bytes);
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

static inline unsigned char *put_moments(unsigned char *at, const Scope *scope, const Moments *moments)
{
    at = put(at, scope->times, TIMES_SIZE);
    return put_double(put_fixed(at, 0x21, moments->count), 0x29, moments->total);
}

static inline unsigned char *put_range(unsigned char *at, const Moments *moments)
{
    return put_double(put_double(at, 0x59, moments->low), 0x61, moments->high);
}

/* A prefix that stands in a slot; `make` of Python makes it. NULL with an exception. */
static PyObject *prefix_at(PyObject *series, Py_ssize_t offset, PyObject *make)
{
    PyObject *prefix = slot(series, offset);
    if (prefix != NULL && PyBytes_CheckExact(prefix) && PyBytes_GET_SIZE(prefix))
        return Py_NewRef(prefix);
    return as_bytes(PyObject_CallOneArg(make, series));
}

static int put_plain(Scope *scope, const Entry *entry)
{
    Moments moments;
    if (entry->state == NULL || !as_moments(entry->state, &moments))
        return 0;
    int ranged = is_ranged(entry->series, &moments);
    PyObject *prefix = ranged ? prefix_at(entry->series, series_slot.long_prefix, python.long_prefix)
                              : prefix_at(entry->series, series_slot.short_prefix, python.short_prefix);
    if (prefix == NULL)
        return -1;
    unsigned char *at = room_for(&scope->out, PyBytes_GET_SIZE(prefix) + LONG_SIZE + DELTA_SIZE);
    if (at != NULL) {
        at = put_moments(put_bytes(at, prefix), scope, &moments);
        wrote_to(&scope->out, put_delta(ranged ? put_range(at, &moments) : at));
    }
    Py_DECREF(prefix);
    return at == NULL ? -1 : 1;
}

/* What is kept in `series.constants` under (number, size), else made by `make` of Python; a new reference or NULL. */
static PyObject *constant(PyObject *series, int number, Py_ssize_t size, PyObject *make, const char *format, ...)
{
    PyObject *constants = slot(series, series_slot.constants), *found = NULL;
    if (constants != NULL && PyDict_CheckExact(constants)) {
        PyObject *key = Py_BuildValue("(in)", number, size);
        if (key == NULL)
            return NULL;
        found = Py_XNewRef(PyDict_GetItemWithError(constants, key));
        Py_DECREF(key);
    }
    if (found == NULL && !PyErr_Occurred()) {
        va_list values;
        va_start(values, format);
        PyObject *arguments = Py_VaBuildValue(format, values);
        va_end(values);
        found = arguments == NULL ? NULL : PyObject_CallObject(make, arguments);
        Py_XDECREF(arguments);
    }
    return as_bytes(found);
}

/* The encoded attributes of a series: 1 (NULL where it has none), 0 or -1. */
static int attributes_of(PyObject *series, int number, PyObject **attributes)
{
    PyObject *pairs = slot(series, series_slot.attributes);
    *attributes = NULL;
    if (pairs == NULL || !PyTuple_CheckExact(pairs))
        return 0;
    if (PyTuple_GET_SIZE(pairs) == 0)
        return 1;
    *attributes = constant(series, number, 0, python.attributes, "(iO)", number, series);
    return *attributes == NULL ? -1 : 1;
}

/* Attributes of a point that are values: deviations and weights. */
typedef struct {
    double m2, wsum, wxsum;
    int has_m2, has_weights;
} Values;

static int values_of(const Scope *scope, PyObject *series, Values *values)
{
    values->has_m2 = slot(series, series_slot.m2) == Py_True;
    if (values->has_m2 && !as_double(PyDict_GetItemWithError(scope->m2, series), &values->m2))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *weights = PyDict_GetItemWithError(scope->weights, series);
    values->has_weights = weights != NULL;
    if (weights == NULL)
        return PyErr_Occurred() ? -1 : 1;
    return PyTuple_CheckExact(weights) && PyTuple_GET_SIZE(weights) == 2 &&
           as_double(PyTuple_GET_ITEM(weights, 0), &values->wsum) &&
           as_double(PyTuple_GET_ITEM(weights, 1), &values->wxsum);
}

static Py_ssize_t values_size(const Values *values)
{
    return (values->has_m2 ? PyBytes_GET_SIZE(python.before_m2) + 8 : 0) +
           (values->has_weights ? PyBytes_GET_SIZE(python.before_wsum) + 8 + PyBytes_GET_SIZE(python.before_wxsum) + 8
                                : 0);
}

/* `before` ends with the tag of the double. */
static unsigned char *put_value(unsigned char *at, PyObject *before, double number)
{
    Py_ssize_t size = PyBytes_GET_SIZE(before) - 1;
    at = put(at, PyBytes_AS_STRING(before), size);
    return put_double(at, (unsigned char)PyBytes_AS_STRING(before)[size], number);
}

static unsigned char *put_values(unsigned char *at, const Values *values)
{
    if (values->has_m2)
        at = put_value(at, python.before_m2, values->m2);
    if (values->has_weights)
        at = put_value(put_value(at, python.before_wsum, values->wsum), python.before_wxsum, values->wxsum);
    return at;
}

static int put_histogram(Scope *scope, PyObject *series, PyObject *state)
{
    Moments moments;
    Values values = {0};
    PyObject *attributes;
    if (!as_moments(state, &moments))
        return 0;
    int done = values_of(scope, series, &values);
    if (done == 1)
        done = attributes_of(series, HISTOGRAM_ATTRIBUTES, &attributes);
    if (done != 1)
        return done;
    int ranged = is_ranged(series, &moments);
    Py_ssize_t size = (ranged ? LONG_SIZE : SHORT_SIZE) + size_of(attributes) + values_size(&values);
    PyObject *prefix = constant(
        series, HISTOGRAM_FIELD, size, python.known_prefix, "(Oini)", series, HISTOGRAM_FIELD, size, DELTA_SIZE);
    unsigned char *at = NULL;
    if (prefix != NULL && (at = room_for(&scope->out, PyBytes_GET_SIZE(prefix) + size + DELTA_SIZE)) != NULL) {
        at = put_moments(put_bytes(at, prefix), scope, &moments);
        if (attributes != NULL)
            at = put_bytes(at, attributes);
        at = put_values(at, &values);
        wrote_to(&scope->out, put_delta(ranged ? put_range(at, &moments) : at));
    }
    Py_XDECREF(prefix);
    Py_XDECREF(attributes);
    return at == NULL ? -1 : 1;
}

static int put_gauge(Out *out, PyObject *series, uint64_t time_ns, double value)
{
    PyObject *attributes;
    int done = attributes_of(series, GAUGE_ATTRIBUTES, &attributes);
    if (done != 1)
        return done;
    PyObject *prefix = prefix_at(series, series_slot.short_prefix, python.gauge_prefix);
    unsigned char *at = NULL;
    if (prefix != NULL && (at = room_for(out, PyBytes_GET_SIZE(prefix) + GAUGE_SIZE + size_of(attributes))) != NULL) {
        at = put_double(put_fixed(put_bytes(at, prefix), 0x19, time_ns), 0x21, value);
        if (attributes != NULL)
            at = put_bytes(at, attributes);
        wrote_to(out, at);
    }
    Py_XDECREF(prefix);
    Py_XDECREF(attributes);
    return at == NULL ? -1 : 1;
}

/* The first and the last record of a series. */
typedef struct {
    uint64_t first_ns, last_ns;
    double first, last;
    int is_one; /* both are the same */
} Order;

static int as_order(PyObject *object, Order *order)
{
    if (!is_exactly(object, python.order_type) || PyTuple_GET_SIZE(object) != 4)
        return 0;
    PyObject *first = PyTuple_GET_ITEM(object, 1), *last = PyTuple_GET_ITEM(object, 3);
    if (!as_unsigned(PyTuple_GET_ITEM(object, 0), &order->first_ns) || !as_double(first, &order->first) ||
        !as_unsigned(PyTuple_GET_ITEM(object, 2), &order->last_ns) || !as_double(last, &order->last))
        return 0;
    order->is_one = order->first_ns == order->last_ns && (first == last || order->first == order->last);
    return 1;
}

static int put_order(Scope *scope, PyObject *series, PyObject *object)
{
    Order order;
    if (!as_order(object, &order))
        return 0;
    if (!scope->asked.takes_last)
        return put_gauge(&scope->out, series, order.first_ns, order.first);
    int done = put_gauge(&scope->out, series, order.last_ns, order.last);
    if (done != 1 || !scope->asked.takes_first || order.is_one)
        return done;
    if (scope->first_too == NULL && (scope->first_too = PyList_New(0)) == NULL)
        return -1;
    return PyList_Append(scope->first_too, series) < 0 ? -1 : 1;
}

static int put_other(Scope *scope, const Entry *entry)
{
    PyObject *series = entry->series;
    int has_buckets = PyDict_GET_SIZE(scope->buckets) ? PyDict_Contains(scope->buckets, series) : 0;
    if (has_buckets != 0)
        return has_buckets < 0 ? -1 : 0;
    if (entry->seen != NULL)
        return put_order(scope, series, entry->seen);
    int done = put_histogram(scope, series, entry->state);
    if (done != 1 || PyDict_GET_SIZE(scope->order) == 0)
        return done;
    PyObject *seen = Py_XNewRef(PyDict_GetItemWithError(scope->order, series));
    if (seen == NULL)
        return PyErr_Occurred() ? -1 : 1;
    scope->points++;
    done = put_order(scope, series, seen);
    Py_DECREF(seen);
    return done;
}

static int put_part(Out *out, PyObject *part)
{
    if (!PyBytes_Check(part)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, got %R", part);
        return -1;
    }
    unsigned char *at = room_for(out, PyBytes_GET_SIZE(part));
    if (at == NULL)
        return -1;
    wrote_to(out, put_bytes(at, part));
    return 0;
}

/* Encode one series in Python. */
static int put_in_python(Scope *scope, PyObject *series)
{
    Py_ssize_t points;
    PyObject *parts, *first_too;
    PyObject *answer = PyObject_CallFunction(
        python.metrics, "[O]Oy#", series, scope->pending, (const char *)scope->times, (Py_ssize_t)TIMES_SIZE);
    if (answer == NULL)
        return -1;
    int failed = -1;
    if (PyArg_ParseTuple(answer, "nO!O!", &points, &PyList_Type, &parts, &PyList_Type, &first_too)) {
        scope->points += points;
        failed = 0;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts) && !failed; i++)
            failed = put_part(&scope->out, PyList_GET_ITEM(parts, i));
    }
    if (failed == 0 && PyList_GET_SIZE(first_too)) {
        if (scope->first_too == NULL)
            scope->first_too = PyList_New(0);
        failed = scope->first_too == NULL
                     ? -1
                     : PyList_SetSlice(scope->first_too, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, first_too);
    }
    Py_DECREF(answer);
    return failed;
}

static int put_series(Scope *scope, const Entry *entry)
{
    Py_ssize_t size = scope->out.size, points = scope->points++;
    int is_plain = slot(entry->series, series_slot.plain) == Py_True;
    int done = (is_plain ? put_plain : put_other)(scope, entry);
    if (done != 0)
        return done < 0 ? -1 : 0;
    scope->out.size = size;
    scope->points = points;
    return put_in_python(scope, entry->series);
}

/* Put what a ScopeMetrics says of itself before its metrics. */
static int put_scope(Scope *scope, Py_ssize_t points, Out *out)
{
    About about = scope->about;
    PyObject *number = PyObject_CallNoArgs(scope->next_number);
    if (number == NULL)
        return -1;
    about.seq = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (about.seq == -1 && PyErr_Occurred())
        return -1;
    about.points = points;
    about.has_reduction = 1;
    if (!as_text(scope->asked.text, &about.reduction)) {
        PyErr_Format(PyExc_TypeError, "expected the text of a reduction, got %R", scope->asked.text);
        return -1;
    }
    Py_ssize_t size = about_size(&about);
    unsigned char *end = room_for(out, field_size(size));
    if (end == NULL)
        return -1;
    unsigned char *at = end - out->size;
    memmove(at + field_size(size), at, out->size);
    put_about(at, &about, size);
    out->size += field_size(size);
    return 0;
}

/* Append (points, body) to `scopes`; takes over `out`. */
static int add_scope(PyObject *scopes, Scope *scope, Py_ssize_t points, Out *out)
{
    if (put_scope(scope, points, out) < 0) {
        drop_out(out);
        return -1;
    }
    PyObject *body = finish_out(out);
    PyObject *both = body == NULL ? NULL : Py_BuildValue("nN", points, body);
    int failed = both == NULL ? -1 : PyList_Append(scopes, both);
    Py_XDECREF(both);
    return failed;
}

static int put_first_value(Out *out, PyObject *series, PyObject *object)
{
    Order order;
    int done = as_order(object, &order) ? put_gauge(out, series, order.first_ns, order.first) : 0;
    if (done != 0)
        return done < 0 ? -1 : 0;
    PyObject *first = PySequence_GetSlice(object, 0, 2);
    PyObject *arguments = first == NULL ? NULL : Py_BuildValue("(O)", series);
    Py_XSETREF(arguments, arguments == NULL ? NULL : PySequence_Concat(arguments, first));
    PyObject *part = arguments == NULL ? NULL : PyObject_CallObject(python.gauge, arguments);
    int failed = part == NULL ? -1 : put_part(out, part);
    Py_XDECREF(part);
    Py_XDECREF(arguments);
    Py_XDECREF(first);
    return failed;
}

/* The same series twice in one ScopeMetrics would be the same identity: the first values get their own. */
static int add_first_values(PyObject *scopes, Scope *scope)
{
    Out out;
    Py_ssize_t n = PyList_GET_SIZE(scope->first_too);
    int failed = begin_out(&out, FIRST_VALUE * n);
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        PyObject *series = PyList_GET_ITEM(scope->first_too, i);
        PyObject *order = PyObject_GetItem(scope->order, series);
        failed = order == NULL ? -1 : put_first_value(&out, series, order);
        Py_XDECREF(order);
    }
    if (!failed)
        return add_scope(scopes, scope, n, &out);
    drop_out(&out);
    return -1;
}

static int add_group(PyObject *scopes, Scope *scope, const Entry *entries, Py_ssize_t n)
{
    if (asked_by(entries->reduction, &scope->asked) < 0 || begin_out(&scope->out, USUAL_POINT * n) < 0)
        return -1;
    Py_INCREF(scope->asked.text); /* Python may run below, and another thread ask for many others */
    scope->points = 0;
    scope->first_too = NULL;
    int failed = 0;
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        failed = put_series(scope, &entries[i]);
        if (i % PIECE == PIECE - 1)
            let_others_on();
    }
    if (failed)
        drop_out(&scope->out);
    else
        failed = add_scope(scopes, scope, scope->points, &scope->out);
    if (!failed && scope->first_too != NULL)
        failed = add_first_values(scopes, scope);
    Py_XDECREF(scope->first_too);
    Py_DECREF(scope->asked.text);
    return failed;
}

static PyObject *scopes_of(Scope *scope, const Every *every)
{
    PyObject *scopes = PyList_New(0);
    Py_ssize_t end;
    for (Py_ssize_t begin = 0; scopes != NULL && begin < every->n; begin = end) {
        const Entry *entries = every->entries + begin;
        int same = 1;
        for (end = begin + 1; end < every->n; end++)
            if ((same = is_same_reduction(entries->reduction, every->entries[end].reduction)) != 1)
                break;
        if (same < 0 || add_group(scopes, scope, entries, end - begin) < 0)
            Py_CLEAR(scopes);
    }
    return scopes;
}

/* The dictionaries of a step and its times: 1, or 0 where one is not what it should be. */
static int as_scope(PyObject *pending, Scope *scope)
{
    uint64_t first_ns, last_ns;
    scope->pending = pending;
    scope->order = slot(pending, pending_slot.order);
    scope->m2 = slot(pending, pending_slot.m2);
    scope->weights = slot(pending, pending_slot.weights);
    scope->buckets = slot(pending, pending_slot.buckets);
    PyObject *const dictionaries[] = {scope->order, scope->m2, scope->weights, scope->buckets};
    for (int i = 0; i < 4; i++)
        if (dictionaries[i] == NULL || !PyDict_CheckExact(dictionaries[i]))
            return 0;
    if (!as_unsigned(slot(pending, pending_slot.first_ns), &first_ns) ||
        !as_unsigned(slot(pending, pending_slot.last_ns), &last_ns))
        return 0;
    put_fixed(put_fixed(scope->times, 0x11, first_ns), 0x19, last_ns);
    return 1;
}

/* The arguments: a step's `Pending`, whose dictionaries live as long as it does, its number, its axis, and what returns
   the next `ml.seq`. Returns [(points, body), …]. */
static PyObject *encoded_scopes(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Scope scope;
    Every every = {NULL, 0};
    PyObject *scopes = NULL;
    PyObject *moments = n == 4 && is_exactly(arguments[0], python.pending_type)
                            ? slot(arguments[0], pending_slot.moments)
                            : NULL;
    if (moments == NULL || !PyDict_CheckExact(moments) || !as_scope(arguments[0], &scope) ||
        !as_about(arguments[1], arguments[2], &scope.about))
        return PyObject_Vectorcall(python.scopes, arguments, n, NULL);
    scope.next_number = arguments[3];
    if (list_entries(&every, moments, scope.order) < 0) {
        PyMem_Free(every.entries);
        return NULL;
    }
    int usual = read_entries(&every);
    if (usual) {
        keep_entries(&every);
        scopes = scopes_of(&scope, &every);
        drop_entries(&every);
    }
    PyMem_Free(every.entries);
    return usual ? scopes : PyObject_Vectorcall(python.scopes, arguments, n, NULL);
}

/* A ScopeMetrics with one whole number: a manifest or a position. */

#define NAME_TAG 0x0a
#define DATA_TAG (GAUGE_FIELD << 3 | 2)
#define POINTS_TAG 0x0a

static PyObject *gauge_of(const About *about, Text name, uint64_t time_ns, int64_t value, PyObject *attributes)
{
    Py_ssize_t scope = about_size(about), point = GAUGE_SIZE + size_of(attributes);
    Py_ssize_t metric = field_size(name.size) + field_size(field_size(point));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, field_size(scope) + field_size(metric));
    if (bytes == NULL)
        return NULL;
    unsigned char *at = put_about((unsigned char *)PyBytes_AS_STRING(bytes), about, scope);
    at = put_text(put_head(at, METRIC_TAG, metric), NAME_TAG, name);
    at = put_head(put_head(at, DATA_TAG, field_size(point)), POINTS_TAG, point);
    at = put_fixed(put_fixed(at, 0x19, time_ns), 0x31, value);
    if (attributes != NULL)
        put_bytes(at, attributes);
    return bytes;
}

static PyObject *encoded_gauge(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    About about;
    Text name;
    int64_t value;
    uint64_t time_ns;
    if ((n != 6 && n != 7) || !as_text(arguments[0], &name) || name.size == 0 ||
        !as_about(arguments[2], arguments[1], &about) || !as_signed(arguments[3], &value) ||
        !as_unsigned(arguments[4], &time_ns) || !as_signed(arguments[5], &about.seq))
        return PyObject_Vectorcall(python.whole_gauge, arguments, n, NULL);
    about.points = 1;
    PyObject *attributes = NULL;
    if (n == 7 && arguments[6] != Py_None) {
        attributes = PyObject_CallFunction(python.key_values, "iO", GAUGE_ATTRIBUTES, arguments[6]);
        if (attributes == NULL || !PyBytes_Check(attributes)) {
            Py_XDECREF(attributes);
            return PyErr_Occurred() ? NULL : PyObject_Vectorcall(python.whole_gauge, arguments, n, NULL);
        }
    }
    PyObject *gauge = gauge_of(&about, name, time_ns, value, attributes);
    Py_XDECREF(attributes);
    return gauge;
}

static PyMethodDef definitions[] = {
    {"encoded_scopes", (PyCFunction)(void (*)(void))encoded_scopes, METH_FASTCALL, "See encode.py."},
    {"encoded_gauge", (PyCFunction)(void (*)(void))encoded_gauge, METH_FASTCALL, "See encode.py."},
};

static PyObject *encoders(PyObject *module, PyObject *arguments)
{
    if (bind(arguments) < 0)
        return NULL;
    return Py_BuildValue("(NN)", PyCFunction_New(&definitions[0], NULL), PyCFunction_New(&definitions[1], NULL));
}

PyMethodDef encode_functions[] = {
    {"encoders", encoders, METH_VARARGS,
     "Return `encoded_scopes` and `encoded_gauge`: (Pending, Series, Definition, Reduction, Order, "
     "functions and constants of encode.py)."},
    {NULL, NULL, 0, NULL},
};
