/* Requests of metrics, taken apart, and what is known in them. Twins: parts_in_python() of receiver/request_parts.py,
   find_form_in_python() of receiver/known_forms.py, and known_in_python() of receiver/fast_path.py. */
#include "bytes.h"

#define FIRST 0x0a /* resource, or scope, or a ResourceMetrics of a request */
#define SECOND 0x12 /* a ScopeMetrics, or a Metric */
#define THIRD 0x1a /* schema_url */

/* Bytes of a message that end before `end`. */
typedef struct {
    const unsigned char *at, *end;
} Span;

static inline Py_ssize_t size_of(Span span)
{
    return span.end - span.at;
}

/* The next field of `rest`, one that has a length: its tag, or -1 where there is no such field. */
static inline int next_field(Span *rest, Span *field)
{
    if (size_of(*rest) < 2)
        return -1;
    int tag = *rest->at++;
    uint64_t size = *rest->at++;
    if (size > 0x7f) {
        size &= 0x7f;
        for (int shift = 7; shift <= 28; shift += 7) {
            if (rest->at == rest->end)
                return -1;
            unsigned char byte = *rest->at++;
            size |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
    }
    if (size > (uint64_t)size_of(*rest))
        return -1;
    *field = (Span){rest->at, rest->at + size};
    rest->at = field->end;
    return tag;
}

/* parts() */

static int append(PyObject *list, PyObject *item)
{
    int failed = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

static int is_text(Span span)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)span.at, size_of(span), NULL);
    Py_XDECREF(text);
    return text != NULL;
}

/* Where the scopes of a ResourceMetrics lie, and its resource: 0, or -1, perhaps without an exception. */
static int read_resource(const unsigned char *body, Span rest, PyObject *places, Span *resource)
{
    Span field;
    *resource = (Span){NULL, NULL};
    while (rest.at < rest.end) {
        int tag = next_field(&rest, &field);
        if (tag == SECOND) {
            if (append(places, Py_BuildValue("(nn)", field.at - body, field.end - body)) < 0)
                return -1;
        }
        else if (tag == FIRST && size_of(*resource) == 0)
            *resource = field;
        else if (tag != THIRD || !is_text(field))
            return -1;
    }
    return 0;
}

static PyObject *part_of(PyTypeObject *type, const unsigned char *body, Span rest)
{
    Span resource;
    PyObject *places = PyList_New(0);
    if (places == NULL || read_resource(body, rest, places, &resource) < 0) {
        Py_XDECREF(places);
        return NULL;
    }
    PyObject *fields[] = {PyBytes_FromStringAndSize((const char *)resource.at, size_of(resource)), places};
    return named_tuple(type, fields, 2);
}

static PyObject *parts(PyObject *type, PyObject *body)
{
    if (!PyBytes_CheckExact(body))
        Py_RETURN_NONE;
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(body);
    Span rest = {begin, begin + PyBytes_GET_SIZE(body)}, field;
    PyObject *every = PyList_New(0);
    int failed = every == NULL ? -1 : 0;
    while (!failed && rest.at < rest.end)
        failed = next_field(&rest, &field) != FIRST ||
                 append(every, part_of((PyTypeObject *)type, begin, field)) < 0;
    if (!failed)
        return every;
    Py_XDECREF(every);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyMethodDef parts_definition = {"parts", parts, METH_O, "See request_parts.py."};

static PyObject *request_reader(PyObject *module, PyObject *type)
{
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "expected ResourcePart");
        return NULL;
    }
    return PyCFunction_New(&parts_definition, type);
}

/* known() */

static struct {
    PyTypeObject *fragment, *packed, *watermark;
} classes;

/* A message of this form has the constant bytes where the mask is set. */
static int fits(Span message, PyObject *mask, PyObject *constant)
{
    Py_ssize_t size = size_of(message), i = 0;
    if (!PyBytes_CheckExact(mask) || !PyBytes_CheckExact(constant) || PyBytes_GET_SIZE(mask) != size ||
        PyBytes_GET_SIZE(constant) != size)
        return 0;
    const char *kept = PyBytes_AS_STRING(mask), *wanted = PyBytes_AS_STRING(constant);
    const char *found = (const char *)message.at;
    for (; i + 64 <= size; i += 64) {
        uint64_t a[8], b[8], c[8], other = 0;
        memcpy(a, found + i, 64);
        memcpy(b, kept + i, 64);
        memcpy(c, wanted + i, 64);
        for (int word = 0; word < 8; word++)
            other |= (a[word] & b[word]) ^ c[word];
        if (other)
            return 0;
    }
    for (; i < size; i++)
        if ((found[i] & kept[i]) != wanted[i])
            return 0;
    return 1;
}

/* The form of a message among those of its size, a tuple that begins with mask and constant: a new reference, or NULL.
   Whatever is made of it may run Python, which may forget forms. */
static PyObject *form_of(PyObject *forms, Span message)
{
    PyObject *size = PyLong_FromSsize_t(size_of(message));
    PyObject *known = size == NULL ? NULL : PyDict_GetItemWithError(forms, size);
    Py_XDECREF(size);
    if (known == NULL || !PyList_CheckExact(known))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(known); i++) {
        PyObject *form = PyList_GET_ITEM(known, i);
        if (PyTuple_Check(form) && PyTuple_GET_SIZE(form) > 2 &&
            fits(message, PyTuple_GET_ITEM(form, 0), PyTuple_GET_ITEM(form, 1)))
            return Py_NewRef(form);
    }
    return NULL;
}

static PyObject *find_form(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 2 || !PyDict_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "expected forms by size, and a message");
        return NULL;
    }
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(arguments[1]);
    PyObject *form = form_of(arguments[0], (Span){begin, begin + PyBytes_GET_SIZE(arguments[1])});
    return form != NULL || PyErr_Occurred() ? form : Py_NewRef(Py_None);
}

/* A ScopeMetrics in two: its scope, and its other fields. */
static int split(Span message, Span *scope, Span *others)
{
    Span rest = message, field;
    const unsigned char *behind = NULL;
    while (rest.at < rest.end) {
        int tag = next_field(&rest, &field);
        if (tag < 0)
            return 0;
        if (tag != FIRST) {
            behind = field.end;
            continue;
        }
        *scope = field;
        *others = behind == NULL ? (Span){field.end, message.end} : (Span){message.at, behind};
        return behind == NULL || field.end == message.end;
    }
    return 0;
}

/* The varint at the place (start, end) of a scope: 1, or 0 where the place is (0, 0), or -1. */
static int number_at(Span scope, PyObject *place, uint64_t *number)
{
    Py_ssize_t start, end;
    *number = 0;
    if (!PyTuple_Check(place) || !PyArg_ParseTuple(place, "nn", &start, &end))
        return -1;
    if (start < 0 || end > size_of(scope) || end - start > 9)
        return -1;
    for (Py_ssize_t i = start; i < end; i++)
        *number |= (uint64_t)(scope.at[i] & 0x7f) << 7 * (i - start);
    return end > start;
}

/* What a scope of a known form says; `axis` and `reduction` are borrowed. */
typedef struct {
    PyObject *axis, *reduction;
    uint64_t step, seq, points;
    int has_step, has_points;
} Head;

#define STEP 2 /* fields of `_Form` of scope_cache.py */
#define SEQ 3
#define POINTS 4
#define AXIS 5
#define REDUCTION 6

static int head_of(PyObject *form, Span scope, Head *head)
{
    if (PyTuple_GET_SIZE(form) != REDUCTION + 1)
        return 0;
    head->axis = PyTuple_GET_ITEM(form, AXIS);
    head->reduction = PyTuple_GET_ITEM(form, REDUCTION);
    head->has_step = number_at(scope, PyTuple_GET_ITEM(form, STEP), &head->step);
    head->has_points = number_at(scope, PyTuple_GET_ITEM(form, POINTS), &head->points);
    return head->has_step >= 0 && head->has_points >= 0 &&
           number_at(scope, PyTuple_GET_ITEM(form, SEQ), &head->seq) >= 0;
}

static PyObject *step_of(const Head *head)
{
    return head->has_step ? PyLong_FromUnsignedLongLong(head->step) : Py_NewRef(Py_None);
}

/* How many points were sent under this running number: a Collector may have cut the message. */
static PyObject *points_of(const Head *head, PyObject *layout)
{
    if (head->has_points)
        return PyLong_FromUnsignedLongLong(head->points);
    PyObject *series = PyObject_GetAttrString(layout, "series");
    Py_ssize_t n = series == NULL ? -1 : PyObject_Length(series);
    Py_XDECREF(series);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *fragment(PyObject *writer, const Head *head, PyObject *layout, Span message)
{
    PyObject *packed[] = {Py_NewRef(layout), PyBytes_FromStringAndSize((const char *)message.at, size_of(message))};
    PyObject *fields[] = {
        Py_NewRef(writer),
        Py_NewRef(head->axis),
        step_of(head),
        Py_NewRef(head->reduction),
        PyLong_FromUnsignedLongLong(head->seq),
        points_of(head, layout),
        named_tuple(classes.packed, packed, 2),
    };
    return named_tuple(classes.fragment, fields, 7);
}

/* The watermark whose count stands at an offset; None where its decoder has something to say. */
static PyObject *watermark(PyObject *writer, const Head *head, PyObject *offset, Span message)
{
    Py_ssize_t at = PyLong_AsSsize_t(offset);
    int64_t count;
    if (at < 0 || at > size_of(message) - (Py_ssize_t)sizeof count)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    memcpy(&count, message.at + at, sizeof count);
    if (count < 0 || !head->has_step || head->axis == Py_None)
        return Py_NewRef(Py_None);
    PyObject *fields[] = {
        Py_NewRef(writer),
        Py_NewRef(head->axis),
        step_of(head),
        PyLong_FromLongLong(count),
        PyLong_FromUnsignedLongLong(head->seq),
    };
    return named_tuple(classes.watermark, fields, 5);
}

/* What the fields behind a scope say; None where that is not known. */
static PyObject *known_metrics(Span message, PyObject *writer, const Head *head, PyObject *layouts, PyObject *watermarks)
{
    PyObject *form = form_of(layouts, message), *found = NULL;
    if (form != NULL)
        found = fragment(writer, head, PyTuple_GET_ITEM(form, 2), message);
    else if (!PyErr_Occurred() && (form = form_of(watermarks, message)) != NULL)
        found = watermark(writer, head, PyTuple_GET_ITEM(form, 2), message);
    else if (!PyErr_Occurred())
        found = Py_NewRef(Py_None);
    Py_XDECREF(form);
    return found;
}

/* What a ScopeMetrics is known to say; None where it is not known. */
static PyObject *known_message(Span message, PyObject *writer, PyObject *const *forms)
{
    Span scope, others;
    Head head;
    PyObject *form = split(message, &scope, &others) ? form_of(forms[0], scope) : NULL, *found = NULL;
    if (form != NULL && head_of(form, scope, &head))
        found = known_metrics(others, writer, &head, forms[1], forms[2]);
    else if (!PyErr_Occurred())
        found = Py_NewRef(Py_None);
    Py_XDECREF(form);
    return found;
}

static int place_of(PyObject *place, PyObject *body, Span *message)
{
    Py_ssize_t start, end;
    if (!PyTuple_Check(place) || !PyArg_ParseTuple(place, "nn", &start, &end))
        return -1;
    if (start < 0 || start > end || end > PyBytes_GET_SIZE(body)) {
        PyErr_SetString(PyExc_ValueError, "expected places in the request");
        return -1;
    }
    const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(body);
    *message = (Span){begin + start, begin + end};
    return 0;
}

static PyObject *known(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 6 || !PyBytes_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
        !PyDict_CheckExact(arguments[3]) || !PyDict_CheckExact(arguments[4]) || !PyDict_CheckExact(arguments[5])) {
        PyErr_SetString(PyExc_TypeError, "expected a request, places in it, a Writer, and forms of three kinds");
        return NULL;
    }
    PyObject *every = PyList_New(0);
    int failed = every == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(arguments[1]); i++) {
        Span message;
        failed = place_of(PyList_GET_ITEM(arguments[1], i), arguments[0], &message);
        if (!failed)
            failed = append(every, known_message(message, arguments[2], arguments + 3));
    }
    if (failed)
        Py_CLEAR(every);
    return every;
}

static PyMethodDef known_definition = {"known", (PyCFunction)(void (*)(void))known, METH_FASTCALL, "See fast_path.py."};

static PyObject *message_reader(PyObject *module, PyObject *arguments)
{
    PyObject *fragment_type, *packed_type, *watermark_type;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyType_Type, &fragment_type, &PyType_Type, &packed_type, &PyType_Type,
                          &watermark_type))
        return NULL;
    classes.fragment = (PyTypeObject *)Py_NewRef(fragment_type);
    classes.packed = (PyTypeObject *)Py_NewRef(packed_type);
    classes.watermark = (PyTypeObject *)Py_NewRef(watermark_type);
    return PyCFunction_New(&known_definition, NULL);
}

PyMethodDef request_functions[] = {
    {"request_reader", request_reader, METH_O, "Return `parts`: (ResourcePart)."},
    {"find_form", (PyCFunction)(void (*)(void))find_form, METH_FASTCALL,
     "Return the form of a message; None where none of its size fits: (forms by size, message)."},
    {"message_reader", message_reader, METH_VARARGS, "Return `known`: (Fragment, Packed, Watermark)."},
    {NULL, NULL, 0, NULL},
};
