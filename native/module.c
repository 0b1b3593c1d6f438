/* otel_ml._native: the hot path, compiled. Without it otel_ml does the same in Python. */
#include "native.h"

Py_ssize_t slot_offset(PyObject *type, const char *name)
{
    PyObject *member = PyObject_GetAttrString(type, name);
    if (member == NULL)
        return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(member, &PyMemberDescr_Type) && ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", type, name);
    Py_DECREF(member);
    return offset;
}

#define MOST_ARGUMENTS 16

PyObject *call_slow(PyObject *function, PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *names)
{
    PyObject *all[MOST_ARGUMENTS + 1];
    Py_ssize_t every = n + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (every > MOST_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "%R takes fewer than %zd arguments", function, every);
        return NULL;
    }
    all[0] = self;
    for (Py_ssize_t i = 0; i < every; i++)
        all[i + 1] = arguments[i];
    return PyObject_Vectorcall(function, all, n + 1, names);
}

static int execute(PyObject *module)
{
    PyMethodDef *const every[] = {record_functions, encode_functions, span_functions};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (PyModule_AddFunctions(module, every[i]) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_ml._native",
    .m_doc = "The hot path of otel_ml, compiled.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
