/* Finished timers become spans on the wire. Twin: _internal/timers/encode_spans.py, which encodes what few spans have. */
#include "bytes.h"

#define TIMER_LEVEL ((Text){"ml.timer.level", 14})
#define STEP ((Text){"ml.step", 7})
#define AXIS ((Text){"ml.step.axis", 12})

#define SPAN_TAG 0x12
#define NAME_TAG 0x2a
#define ATTRIBUTE_TAG 0x4a
#define ROOT_SIZE 28
#define CHILD_SIZE 38
#define TIMES_SIZE 20
#define USUAL_NUMBER 48
#define AT_ONCE 64 /* spans: few enough that the first is still in the cache when the last is there */
#define USUAL_SPAN 160 /* bytes: where they are fewer or more, the message shrinks or grows */

static struct {
    PyObject *spans, *scope; /* what encodes them in Python, and what its answer begins with */
    PyObject *sixty_four;
    PyObject *span_type, *definition_type, *step_type, *axis_type;
    Py_ssize_t begin_ns, end_ns, more, parent_id, span_id, span_step, trace_id, definition;
    Py_ssize_t definition_name, level, axis, index, axis_name;
} of;

static int bind(PyObject *arguments)
{
    PyObject *spans, *scope, *span, *definition, *step, *axis;
    if (!PyArg_ParseTuple(arguments, "OSO!OOO", &spans, &scope, &PyType_Type, &span, &definition, &step, &axis))
        return -1;
    const struct {
        PyObject *type;
        const char *name;
        Py_ssize_t *offset;
    } wanted[] = {
        {span, "begin_ns", &of.begin_ns},
        {span, "end_ns", &of.end_ns},
        {span, "more", &of.more},
        {span, "parent_id", &of.parent_id},
        {span, "span_id", &of.span_id},
        {span, "step", &of.span_step},
        {span, "trace_id", &of.trace_id},
        {span, "definition", &of.definition},
        {definition, "name", &of.definition_name},
        {definition, "level", &of.level},
        {step, "axis", &of.axis},
        {step, "index", &of.index},
        {axis, "name", &of.axis_name},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].offset = slot_offset(wanted[i].type, wanted[i].name)) < 0)
            return -1;
    of.sixty_four = PyLong_FromLong(64);
    if (of.sixty_four == NULL)
        return -1;
    of.spans = Py_NewRef(spans);
    of.scope = Py_NewRef(scope);
    of.span_type = Py_NewRef(span);
    of.definition_type = Py_NewRef(definition);
    of.step_type = Py_NewRef(step);
    of.axis_type = Py_NewRef(axis);
    return 0;
}

typedef struct {
    uint64_t trace_high, trace_low, own, parent, begin_ns, end_ns;
    int64_t level, index;
    int has_step;
    Text name, axis;
} Span;

/* All that is read here returns 1, or 0 where Python has to encode the span. */

static int as_trace(PyObject *trace, Span *span)
{
    if (trace == NULL || !PyLong_CheckExact(trace))
        return 0;
    span->trace_low = PyLong_AsUnsignedLongLongMask(trace);
    PyObject *high = PyNumber_Rshift(trace, of.sixty_four);
    int done = high != NULL && as_unsigned(high, &span->trace_high);
    Py_XDECREF(high);
    /* Of the shift: no memory, which Python says where it encodes the span. */
    PyErr_Clear();
    return done;
}

/* A time of the epoch; both numbers are small enough for their sum to be a number of 64 bits. */
static int as_time(PyObject *time, int64_t offset_ns, uint64_t *time_ns)
{
    int64_t number;
    if (!as_signed(time, &number) || number < 0 || number > INT64_MAX / 2 || number + offset_ns < 0)
        return 0;
    *time_ns = number + offset_ns;
    return 1;
}

static int as_step(PyObject *step, Span *span)
{
    if (step == NULL || !is_exactly(step, of.step_type))
        return 0;
    PyObject *axis = slot(step, of.axis), *index = slot(step, of.index);
    if (axis == NULL || index == NULL)
        return 0;
    span->has_step = axis != Py_None && index != Py_None;
    return !span->has_step || (is_exactly(axis, of.axis_type) && as_signed(index, &span->index) &&
                               as_text(slot(axis, of.axis_name), &span->axis));
}

static int as_span(PyObject *object, int64_t offset_ns, Span *span)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)of.span_type) || slot(object, of.more) != Py_None)
        return 0;
    PyObject *definition = slot(object, of.definition);
    return definition != NULL && is_exactly(definition, of.definition_type) &&
           as_text(slot(definition, of.definition_name), &span->name) &&
           as_signed(slot(definition, of.level), &span->level) && as_step(slot(object, of.span_step), span) &&
           as_trace(slot(object, of.trace_id), span) && as_unsigned(slot(object, of.span_id), &span->own) &&
           as_unsigned(slot(object, of.parent_id), &span->parent) &&
           as_time(slot(object, of.begin_ns), offset_ns, &span->begin_ns) &&
           as_time(slot(object, of.end_ns), offset_ns, &span->end_ns);
}

static unsigned char *put_id(unsigned char *at, uint64_t id)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        *at++ = (unsigned char)(id >> shift);
    return at;
}

static unsigned char *put_ids(unsigned char *at, const Span *span)
{
    at = put_id(put_id(put_head(at, 0x0a, 16), span->trace_high), span->trace_low);
    at = put_id(put_head(at, 0x12, 8), span->own);
    return span->parent ? put_id(put_head(at, 0x22, 8), span->parent) : at;
}

static Py_ssize_t span_size(const Span *span)
{
    Py_ssize_t size = (span->parent ? CHILD_SIZE : ROOT_SIZE) + TIMES_SIZE;
    size += (span->name.size ? field_size(span->name.size) : 0) + number_attribute_size(TIMER_LEVEL, span->level);
    if (span->has_step)
        size += number_attribute_size(STEP, span->index) + text_attribute_size(AXIS, span->axis);
    return size;
}

static int put_span(Out *out, const Span *span)
{
    Py_ssize_t size = span_size(span);
    unsigned char *at = room_for(out, field_size(size));
    if (at == NULL)
        return -1;
    at = put_ids(put_head(at, SPAN_TAG, size), span);
    if (span->name.size)
        at = put_text(at, NAME_TAG, span->name);
    *at++ = 0x30; /* kind: internal */
    *at++ = 1;
    at = put_fixed(put_fixed(at, 0x39, span->begin_ns), 0x41, span->end_ns);
    at = put_number_attribute(at, ATTRIBUTE_TAG, TIMER_LEVEL, span->level);
    if (span->has_step) {
        at = put_number_attribute(at, ATTRIBUTE_TAG, STEP, span->index);
        at = put_text_attribute(at, ATTRIBUTE_TAG, AXIS, span->axis);
    }
    wrote_to(out, at);
    return 0;
}

/* Encode `spans` from `begin` on in Python, as far as each has more than others; return where that ends, or -1. */
static Py_ssize_t put_in_python(Out *out, PyObject *spans, Py_ssize_t begin, PyObject *offset_ns)
{
    Py_ssize_t end = begin + 1;
    for (; end < PyList_GET_SIZE(spans); end++) {
        PyObject *span = PyList_GET_ITEM(spans, end);
        if (!PyObject_TypeCheck(span, (PyTypeObject *)of.span_type) || slot(span, of.more) == Py_None)
            break;
    }
    PyObject *some = PyList_GetSlice(spans, begin, end);
    PyObject *body = some == NULL ? NULL : PyObject_CallFunctionObjArgs(of.spans, some, offset_ns, NULL);
    Py_XDECREF(some);
    if (body == NULL)
        return -1;
    Py_ssize_t scope = PyBytes_GET_SIZE(of.scope), size = PyBytes_Check(body) ? PyBytes_GET_SIZE(body) - scope : -1;
    unsigned char *at = NULL;
    if (size < 0)
        PyErr_Format(PyExc_TypeError, "%R returned %R", of.spans, body);
    else if ((at = room_for(out, size)) != NULL)
        wrote_to(out, put(at, PyBytes_AS_STRING(body) + scope, size));
    Py_DECREF(body);
    return at == NULL ? -1 : end;
}

/* Ask for spans, then for their numbers; a span of another type has none. */
static void prefetch_spans(PyObject *spans, Py_ssize_t begin, Py_ssize_t end)
{
    end = Py_MIN(end, PyList_GET_SIZE(spans));
    for (Py_ssize_t i = begin; i < end; i++)
        prefetch(PyList_GET_ITEM(spans, i), ((PyTypeObject *)of.span_type)->tp_basicsize);
    const Py_ssize_t numbers[] = {of.trace_id, of.span_id, of.parent_id, of.begin_ns, of.end_ns};
    for (Py_ssize_t i = begin; i < end; i++) {
        PyObject *span = PyList_GET_ITEM(spans, i);
        if (PyObject_TypeCheck(span, (PyTypeObject *)of.span_type))
            for (size_t each = 0; each < sizeof numbers / sizeof *numbers; each++)
                prefetch(slot(span, numbers[each]), USUAL_NUMBER);
    }
}

/* Encode one span, or several of those that Python encodes; return where the next one is, or -1. */
static Py_ssize_t put_next(Out *out, PyObject *spans, Py_ssize_t place, PyObject *offset)
{
    Span span;
    int64_t offset_ns;
    if (!as_signed(offset, &offset_ns) || offset_ns > INT64_MAX / 2 ||
        !as_span(PyList_GET_ITEM(spans, place), offset_ns, &span))
        return put_in_python(out, spans, place, offset);
    return put_span(out, &span) < 0 ? -1 : place + 1;
}

static int put_spans(Out *out, PyObject *spans, PyObject *offset)
{
    Py_ssize_t asked_for = 0, piece = PIECE;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(spans);) {
        if (i >= asked_for) {
            asked_for = i + AT_ONCE;
            prefetch_spans(spans, i, asked_for);
        }
        if ((i = put_next(out, spans, i, offset)) < 0)
            return -1;
        if (i >= piece) {
            piece = i + PIECE;
            /* Spans that were taken: nobody else has the list, so it is the same afterwards. */
            let_others_on();
        }
    }
    return 0;
}

static PyObject *encoded_spans(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Out out;
    if (n != 2 || !PyList_CheckExact(arguments[0]))
        return PyObject_Vectorcall(of.spans, arguments, n, NULL);
    Py_ssize_t scope = PyBytes_GET_SIZE(of.scope);
    if (begin_out(&out, scope + USUAL_SPAN * PyList_GET_SIZE(arguments[0])) < 0)
        return NULL;
    wrote_to(&out, put(room_for(&out, scope), PyBytes_AS_STRING(of.scope), scope));
    if (put_spans(&out, arguments[0], arguments[1]) < 0) {
        drop_out(&out);
        return NULL;
    }
    return finish_out(&out);
}

static PyMethodDef definition = {
    "encoded_spans", (PyCFunction)(void (*)(void))encoded_spans, METH_FASTCALL, "See encode_spans.py."};

static PyObject *span_encoder(PyObject *module, PyObject *arguments)
{
    return bind(arguments) < 0 ? NULL : PyCFunction_New(&definition, NULL);
}

PyMethodDef span_functions[] = {
    {"span_encoder", span_encoder, METH_VARARGS,
     "Return `encoded_spans`: (that of Python, what its answers begin with, Recording, TimerDefinition, Step, Axis)."},
    {NULL, NULL, 0, NULL},
};
