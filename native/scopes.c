/* The series of a step in their order, each with its moments, become ScopeMetrics. Twins: scopes_in_python() and
   _scopes() of _internal/messages/encode_metrics.py. */
#include "encode.h"

#define STATE_SIZE 64
#define USUAL_PREFIX 128

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

static int is_same_reduction(PyObject *one, PyObject *other)
{
    if (one == other)
        return 1;
    const Py_ssize_t offsets[] = {
        definition_slot.across, definition_slot.within, definition_slot.over, definition_slot.unsaid};
    for (int i = 0; i < 4; i++) {
        int equal = PyObject_RichCompareBool(slot(one, offsets[i]), slot(other, offsets[i]), Py_EQ);
        if (equal <= 0)
            return equal;
    }
    return 1;
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

/* The arguments: `StepPartials` of a step, whose dictionaries live as long as they do, its number, its axis, and what
   returns the next `ml.seq`. Returns [(points, body), …]. */
PyObject *encoded_scopes(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
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
