/* What a step has gathered becomes metrics on the wire. Twin: _internal/messages/encode_metrics.py.

   The series of a step are put in order (scopes.c). Those with the same reduction (reduction_text.c) become a ScopeMetrics
   (groups.c), each of them a few points (points.c). Here it is known what the Python has.

   What is not usual (a number of another type) is encoded in Python, a series at a time. */
#include "encode.h"

struct python python;
struct pending_slot pending_slot;
struct series_slot series_slot;
struct bucket_slot bucket_slot;
struct definition_slot definition_slot;
Py_ssize_t series_size, definition_size;

static int bind(PyObject *arguments)
{
    PyObject *pending, *series, *definition, *reduction, *order, *buckets, *functions, *constants;
    if (!PyArg_ParseTuple(
            arguments, "OOOOOOO!O!", &pending, &series, &definition, &reduction, &order, &buckets, &PyTuple_Type,
            &functions, &PyTuple_Type, &constants))
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
        {series, "sums", &series_slot.sums},
        {buckets, "scale", &bucket_slot.scale},
        {buckets, "zeros", &bucket_slot.zeros},
        {buckets, "positive", &bucket_slot.positive},
        {buckets, "negative", &bucket_slot.negative},
        {definition, "reduction", &definition_slot.reduction},
        {reduction, "across", &definition_slot.across},
        {reduction, "within", &definition_slot.within},
        {reduction, "over", &definition_slot.over},
        {reduction, "unsaid", &definition_slot.unsaid},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].offset = slot_offset(wanted[i].type, wanted[i].name)) < 0)
            return -1;
    if (!PyArg_ParseTuple(
            functions, "OOOOOOOOOOOO", &python.scopes, &python.metrics, &python.gauge, &python.whole_gauge,
            &python.short_prefix, &python.long_prefix, &python.gauge_prefix, &python.known_prefix, &python.attributes,
            &python.head, &python.key_values, &python.asked) ||
        !PyArg_ParseTuple(constants, "SSS", &python.before_m2, &python.before_wsum, &python.before_wxsum))
        return -1;
    series_size = ((PyTypeObject *)series)->tp_basicsize;
    definition_size = ((PyTypeObject *)definition)->tp_basicsize;
    python.pending_type = Py_NewRef(pending);
    python.series_type = Py_NewRef(series);
    python.definition_type = Py_NewRef(definition);
    python.reduction_type = Py_NewRef(reduction);
    python.order_type = Py_NewRef(order);
    python.buckets_type = Py_NewRef(buckets);
    Py_INCREF(functions); /* for ever: what was taken from them is borrowed */
    Py_INCREF(constants);
    return 0;
}

static PyMethodDef definitions[] = {
    {"encoded_scopes", (PyCFunction)(void (*)(void))encoded_scopes, METH_FASTCALL, "See encode_metrics.py."},
    {"encoded_gauge", (PyCFunction)(void (*)(void))encoded_gauge, METH_FASTCALL, "See encode_metrics.py."},
};

static PyObject *encoders(PyObject *module, PyObject *arguments)
{
    if (bind(arguments) < 0)
        return NULL;
    return Py_BuildValue("(NN)", PyCFunction_New(&definitions[0], NULL), PyCFunction_New(&definitions[1], NULL));
}

PyMethodDef encode_functions[] = {
    {"encoders", encoders, METH_VARARGS,
     "Return `encoded_scopes` and `encoded_gauge`: (StepPartials, Series, Definition, Reduction, Order, "
     "ExponentialBuckets, functions and constants of encode_metrics.py)."},
    {NULL, NULL, 0, NULL},
};
