/* Numbers that lie at the same places of many messages. Twins: gathered_in_python() and newest_in_python() of aggregation/points.py. */
#include "bytes.h"

/* Words from which it pays to let another thread have the interpreter meanwhile. */
#define WORTH_IT (1 << 14)

/* Places in a message, each of eight bytes: int64 of numpy. */
typedef struct {
    Py_buffer view;
    const int64_t *at;
    Py_ssize_t n;
} Offsets;

static int offsets_of(PyObject *object, Py_ssize_t size, Offsets *offsets)
{
    if (PyObject_GetBuffer(object, &offsets->view, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    offsets->at = offsets->view.buf;
    offsets->n = offsets->view.len / (Py_ssize_t)sizeof *offsets->at;
    for (Py_ssize_t i = 0; i < offsets->n; i++)
        if (offsets->at[i] < 0 || offsets->at[i] > size - (Py_ssize_t)sizeof *offsets->at) {
            PyErr_Format(PyExc_ValueError, "a message of %zd bytes has no number at %lld", size, (long long)offsets->at[i]);
            PyBuffer_Release(&offsets->view);
            return -1;
        }
    return 0;
}

static int are_messages(PyObject *messages, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(messages); i++)
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(messages, i)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(messages, i)) != size) {
            PyErr_Format(PyExc_ValueError, "expected messages of %zd bytes", size);
            return 0;
        }
    return 1;
}

static void copy_words(PyObject *messages, const Offsets *offsets, char *to)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(messages); i++) {
        const char *message = PyBytes_AS_STRING(PyTuple_GET_ITEM(messages, i));
        for (Py_ssize_t j = 0; j < offsets->n; j++, to += 8)
            memcpy(to, message + offsets->at[j], 8);
    }
}

static PyObject *words_of(PyObject *messages, const Offsets *offsets)
{
    Py_ssize_t words = PyTuple_GET_SIZE(messages) * offsets->n;
    PyObject *found = PyBytes_FromStringAndSize(NULL, 8 * words);
    if (found == NULL || words < WORTH_IT) {
        if (found != NULL)
            copy_words(messages, offsets, PyBytes_AS_STRING(found));
        return found;
    }
    /* What is read stays without the GIL: bytes never change, the tuple holds them, and the view holds the offsets.
       What is written nobody else has seen. */
    Py_BEGIN_ALLOW_THREADS
    copy_words(messages, offsets, PyBytes_AS_STRING(found));
    Py_END_ALLOW_THREADS
    return found;
}

static PyObject *gathered(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 3 || !PyList_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "expected a list of messages, offsets, and the size of a message");
        return NULL;
    }
    Py_ssize_t size = PyLong_AsSsize_t(arguments[2]);
    Offsets offsets;
    if ((size == -1 && PyErr_Occurred()) || offsets_of(arguments[1], size, &offsets) < 0)
        return NULL;
    PyObject *messages = PyList_AsTuple(arguments[0]); /* they stay, whoever has the interpreter meanwhile */
    PyObject *found = messages != NULL && are_messages(messages, size) ? words_of(messages, &offsets) : NULL;
    Py_XDECREF(messages);
    PyBuffer_Release(&offsets.view);
    return found;
}

static PyObject *newest(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    Offsets offsets;
    if (n != 2 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "expected a message and offsets");
        return NULL;
    }
    if (offsets_of(arguments[1], PyBytes_GET_SIZE(arguments[0]), &offsets) < 0)
        return NULL;
    int64_t highest = INT64_MIN;
    for (Py_ssize_t i = 0; i < offsets.n; i++) {
        int64_t number;
        memcpy(&number, PyBytes_AS_STRING(arguments[0]) + offsets.at[i], sizeof number);
        highest = number > highest ? number : highest;
    }
    PyBuffer_Release(&offsets.view);
    return PyLong_FromLongLong(highest);
}

PyMethodDef gather_functions[] = {
    {"gathered", (PyCFunction)(void (*)(void))gathered, METH_FASTCALL,
     "Return the words of eight bytes at the offsets of each message, one after the other: (messages, offsets, size)."},
    {"newest", (PyCFunction)(void (*)(void))newest, METH_FASTCALL, "Return the highest int64: (message, offsets)."},
    {NULL, NULL, 0, NULL},
};
