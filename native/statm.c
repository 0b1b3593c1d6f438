/* Resident and virtual memory of this process, from the kernel's counters. Twin: Statm.read() of
   diagnostics/hardware/process_memory.py, which opens the file, and reads it where what is read here is another one.

   The GIL is kept: nothing waits for a disk, and to let go of it with cold caches takes longer than to read. */
#include "native.h"

#include <unistd.h>

#define MOST_BYTES 128
#define FIELDS 7 /* proc(5) */

/* Whether these are whole numbers, a space between each two and a newline after the last. */
static int are_fields(const char *at, const char *end, unsigned long long *fields)
{
    for (int i = 0; i < FIELDS; i++) {
        const char *begin = at;
        for (fields[i] = 0; at < end && *at >= '0' && *at <= '9'; at++)
            fields[i] = 10 * fields[i] + (unsigned long long)(*at - '0');
        if (at == begin || at == end || *at++ != (i < FIELDS - 1 ? ' ' : '\n'))
            return 0;
    }
    return at == end;
}

static PyObject *statm(PyObject *module, PyObject *const *arguments, Py_ssize_t n)
{
    if (n != 3 || !PyType_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "expected a descriptor, the bytes of a page and ProcessMemory");
        return NULL;
    }
    long descriptor = PyLong_AsLong(arguments[0]), page = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    char text[MOST_BYTES];
    unsigned long long fields[FIELDS];
    ssize_t size = pread((int)descriptor, text, sizeof text, 0);
    if (size < 0 || !are_fields(text, text + size, fields))
        Py_RETURN_NONE;
    PyObject *bytes[] = {
        PyLong_FromUnsignedLongLong(fields[1] * (unsigned long long)page),
        PyLong_FromUnsignedLongLong(fields[0] * (unsigned long long)page),
    };
    return named_tuple((PyTypeObject *)arguments[2], bytes, 2);
}

PyMethodDef statm_functions[] = {
    {"statm", (PyCFunction)(void (*)(void))statm, METH_FASTCALL,
     "Return such a `ProcessMemory` of what stands in /proc/self/statm; None where it is another file: "
     "(descriptor, bytes of a page, ProcessMemory)."},
    {NULL, NULL, 0, NULL},
};
