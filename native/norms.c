/* Sums and extremes of small tensors in the host's memory. Twins: `_statistics()` of diagnostics/dynamics/host.py, and
   `_of_host()` of diagnostics/rl/extent.py.

   Where a tensor lies, torch says by DLPack's exchange API: one call of C for each, that makes no object and runs no
   code of Python. The declarations are those of DLPack 1, whose layout is fixed. */
#include "native.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { HOST = 1 };
enum { IEEE = 2, BRAIN = 4 };

typedef struct {
    void *data;
    struct {
        int32_t type, number;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} View;

typedef struct {
    struct {
        uint32_t major, minor;
        void *older;
    } header;
    void (*not_used[3])(void);
    int (*view)(void *tensor, View *out); /* nothing waits, nothing is owned; -1 with an exception */
    void (*stream)(void);
} Exchange;

static struct {
    PyObject *type, *parameter_type;
    int (*view)(void *tensor, View *out);
} torch;

static PyObject *bind_tensors(PyObject *module, PyObject *arguments)
{
    PyObject *type, *parameter_type, *capsule;
    if (!PyArg_ParseTuple(arguments, "OOO", &type, &parameter_type, &capsule))
        return NULL;
    const Exchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (exchange == NULL)
        return NULL;
    if (exchange->header.major != 1 || exchange->view == NULL) {
        PyErr_Format(PyExc_ValueError, "%R is of DLPack %u, and shows no tensor", capsule, exchange->header.major);
        return NULL;
    }
    torch.type = Py_NewRef(type);
    torch.parameter_type = Py_NewRef(parameter_type);
    torch.view = exchange->view;
    Py_RETURN_NONE;
}

/* Elements of a view that has no gaps; -1 where it has some, or more elements than `most`. */
static Py_ssize_t elements(const View *view, Py_ssize_t most)
{
    int64_t n = 1, expected = 1;
    for (int32_t i = 0; i < view->dimensions; i++) {
        if (view->shape[i] == 0)
            return 0;
        if (view->shape[i] < 0 || view->shape[i] > most / n)
            return -1;
        n *= view->shape[i];
    }
    for (int32_t i = view->dimensions - 1; i >= 0 && view->strides != NULL; i--) {
        if (view->shape[i] != 1 && view->strides[i] != expected)
            return -1;
        expected *= view->shape[i];
    }
    return (Py_ssize_t)n;
}

typedef struct {
    double square, largest;
    Py_ssize_t zeros;
} Found;

/* Numbers without their sign, from their bits: as whole numbers they are in the same order, with Inf above all finite
   ones and NaN above Inf. So the largest is NaN where any is, as it has to be. */

static inline double of_32(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline double of_64(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline double of_brain(uint16_t bits)
{
    return of_32((uint32_t)bits << 16);
}

static inline double of_16(uint16_t bits)
{
    if (bits >= 0x7c00)
        return bits == 0x7c00 ? INFINITY : NAN;
    return bits < 0x400 ? bits * 0x1p-24 : of_32(((uint32_t)bits << 13) + 0x38000000);
}

/* Four sums, for an addition takes four times as long as the processor needs to begin the next. */
#define LOOK_AT(k)                                                    \
    {                                                                 \
        magnitude = bits[i + k] & mask;                               \
        double number = of(magnitude);                                \
        squares[k] += number * number;                                \
        zeros += magnitude == 0;                                      \
        largest = magnitude > largest ? magnitude : largest;          \
    }
#define LOOK(name, whole, of_bits, without_sign)                      \
    static Found name(const void *data, Py_ssize_t n)                 \
    {                                                                 \
        const whole *bits = data, mask = without_sign;                \
        double (*const of)(whole) = of_bits;                          \
        double squares[4] = {0, 0, 0, 0};                             \
        whole magnitude, largest = 0;                                 \
        Py_ssize_t zeros = 0, i = 0;                                  \
        for (; i + 4 <= n; i += 4) {                                  \
            LOOK_AT(0) LOOK_AT(1) LOOK_AT(2) LOOK_AT(3)               \
        }                                                             \
        for (; i < n; i++)                                            \
            LOOK_AT(0)                                                \
        double square = squares[0] + squares[1] + squares[2] + squares[3]; \
        return (Found){square, of(largest), zeros};                   \
    }

LOOK(look_64, uint64_t, of_64, 0x7fffffffffffffff)
LOOK(look_32, uint32_t, of_32, 0x7fffffff)
LOOK(look_brain, uint16_t, of_brain, 0x7fff)
LOOK(look_16, uint16_t, of_16, 0x7fff)

typedef struct {
    double sum, low, high;
} Extent;

/* Where a number is NaN, so are both ends. */
#define SPAN(name, whole, of_bits)                                    \
    static Extent name(const void *data, Py_ssize_t n)                \
    {                                                                 \
        const whole *bits = data;                                     \
        Extent found = {0, INFINITY, -INFINITY};                      \
        for (Py_ssize_t i = 0; i < n; i++) {                          \
            double number = of_bits(bits[i]);                         \
            found.sum += number;                                      \
            found.low = found.low <= number ? found.low : number;     \
            found.high = found.high >= number ? found.high : number;  \
            if (number != number)                                     \
                return (Extent){NAN, NAN, NAN};                       \
        }                                                             \
        return found;                                                 \
    }

static inline double of_16_signed(uint16_t bits)
{
    return bits & 0x8000 ? -of_16(bits & 0x7fff) : of_16(bits);
}

SPAN(span_64, uint64_t, of_64)
SPAN(span_32, uint32_t, of_32)
SPAN(span_brain, uint16_t, of_brain)
SPAN(span_16, uint16_t, of_16_signed)

typedef struct {
    Found (*look)(const void *data, Py_ssize_t n);
    Extent (*span)(const void *data, Py_ssize_t n);
} Kind;

static const Kind *kind_of(const View *view)
{
    static const Kind of_64_bits = {look_64, span_64}, of_32_bits = {look_32, span_32}, of_16_bits = {look_16, span_16},
                      of_brain_type = {look_brain, span_brain};
    if (view->type.lanes != 1)
        return NULL;
    switch (view->type.code << 8 | view->type.bits) {
    case IEEE << 8 | 64:
        return &of_64_bits;
    case IEEE << 8 | 32:
        return &of_32_bits;
    case IEEE << 8 | 16:
        return &of_16_bits;
    case BRAIN << 8 | 16:
        return &of_brain_type;
    default:
        return NULL;
    }
}

/* See where the numbers of a tensor lie: how many, or -1 where it is none of those that are looked at here. */
static Py_ssize_t see(PyObject *tensor, Py_ssize_t most, const void **data, const Kind **kind)
{
    View view;
    if (!is_exactly(tensor, torch.parameter_type) && !is_exactly(tensor, torch.type))
        return -1;
    if (torch.view(tensor, &view) < 0) { /* sparse, on no device, inside a transformation: torch says it to Python */
        PyErr_Clear();
        return -1;
    }
    *kind = kind_of(&view);
    if (view.device.type != HOST || *kind == NULL)
        return -1;
    Py_ssize_t n = elements(&view, most);
    if (n > 0 && view.data == NULL) /* its memory was given back */
        return -1;
    *data = n > 0 ? (const char *)view.data + view.byte_offset : NULL;
    return n;
}

enum { SIZES, SQUARES, ZEROS, LARGEST, COLUMNS };

/* Put what was found into the columns; -1 with an exception. */
static int keep(PyObject *columns, Py_ssize_t i, Py_ssize_t n, Found found)
{
    PyObject *numbers[COLUMNS] = {
        [SIZES] = PyLong_FromSsize_t(n),
        [SQUARES] = PyFloat_FromDouble(found.square),
        [ZEROS] = PyLong_FromSsize_t(found.zeros),
        [LARGEST] = PyFloat_FromDouble(found.largest),
    };
    int failed = 0;
    for (int column = 0; column < COLUMNS; column++) {
        failed |= numbers[column] == NULL;
        PyList_SET_ITEM(PyTuple_GET_ITEM(columns, column), i, numbers[column]);
    }
    return failed ? -1 : 0;
}

static PyObject *new_columns(Py_ssize_t n)
{
    PyObject *columns = PyTuple_New(COLUMNS);
    for (int column = 0; columns != NULL && column < COLUMNS; column++) {
        PyObject *numbers = PyList_New(n);
        if (numbers == NULL)
            Py_CLEAR(columns);
        else
            PyTuple_SET_ITEM(columns, column, numbers);
    }
    return columns;
}

static PyObject *statistics(PyObject *module, PyObject *arguments)
{
    PyObject *given;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyList_Type, &given, &most))
        return NULL;
    if (torch.view == NULL)
        Py_RETURN_NONE;
    PyObject *tensors = PyList_AsTuple(given); /* which nobody changes meanwhile */
    PyObject *columns = tensors == NULL ? NULL : new_columns(PyTuple_GET_SIZE(tensors));
    for (Py_ssize_t i = 0; columns != NULL && columns != Py_None && i < PyTuple_GET_SIZE(tensors); i++) {
        const void *data;
        const Kind *kind;
        Py_ssize_t n = see(PyTuple_GET_ITEM(tensors, i), most, &data, &kind);
        if (n < 0)
            Py_SETREF(columns, Py_NewRef(Py_None));
        else if (keep(columns, i, n, kind->look(data, n)) < 0)
            Py_CLEAR(columns);
    }
    Py_XDECREF(tensors);
    return columns;
}

/* Of all tensors together. */
typedef struct {
    double square, largest;
    Py_ssize_t elements, zeros, bad;
} Total;

/* 1, or 0 where a tensor is none of those that are looked at here. Nothing here runs code of Python. */
static int total_of(PyObject *tensors, Py_ssize_t most, Total *total)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); i++) {
        const void *data;
        const Kind *kind;
        Py_ssize_t n = see(PyList_GET_ITEM(tensors, i), most, &data, &kind);
        if (n < 0)
            return 0;
        Found found = kind->look(data, n);
        total->elements += n;
        total->square += found.square;
        total->zeros += found.zeros;
        total->bad += !(found.largest < INFINITY);
        if (!(found.largest <= total->largest) && total->largest == total->largest) /* NaN stays */
            total->largest = found.largest;
    }
    return 1;
}

static PyObject *sums(PyObject *module, PyObject *arguments)
{
    PyObject *tensors;
    PyTypeObject *type;
    Py_ssize_t most;
    double share;
    Total total = {0};
    if (!PyArg_ParseTuple(arguments, "O!ndO!", &PyList_Type, &tensors, &most, &share, &PyType_Type, &type))
        return NULL;
    if (torch.view == NULL || !total_of(tensors, most, &total))
        Py_RETURN_NONE;
    PyObject *numbers[] = {
        PyLong_FromSsize_t(total.elements),
        PyFloat_FromDouble(total.square),
        PyFloat_FromDouble(total.square * share),
        PyLong_FromSsize_t(total.zeros),
        PyFloat_FromDouble((double)total.zeros * share),
        PyFloat_FromDouble(total.largest),
        PyLong_FromSsize_t(total.bad),
    };
    return named_tuple(type, numbers, sizeof numbers / sizeof *numbers);
}

static PyObject *extent(PyObject *module, PyObject *arguments)
{
    PyObject *tensor;
    PyTypeObject *type;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "OnO!", &tensor, &most, &PyType_Type, &type))
        return NULL;
    const void *data;
    const Kind *kind;
    Py_ssize_t n = torch.view == NULL ? -1 : see(tensor, most, &data, &kind);
    if (n <= 0)
        Py_RETURN_NONE;
    Extent found = kind->span(data, n);
    PyObject *numbers[] = {
        PyFloat_FromDouble(found.sum / (double)n),
        PyLong_FromSsize_t(n),
        PyFloat_FromDouble(found.low),
        PyFloat_FromDouble(found.high),
    };
    return named_tuple(type, numbers, sizeof numbers / sizeof *numbers);
}

PyMethodDef norms_functions[] = {
    {"bind_tensors", bind_tensors, METH_VARARGS, "Know torch: (Tensor, Parameter, Tensor.__dlpack_c_exchange_api__)."},
    {"statistics", statistics, METH_VARARGS,
     "Return sizes, sums of squares, zeros and largest magnitudes of tensors; None unless each is of a plain type, "
     "contiguous, of floating point, in the host's memory and of at most so many elements: (tensors, most)."},
    {"sums", sums, METH_VARARGS,
     "Return such a `Sums` of such tensors, each element of which counts as `share`: (tensors, most, share, Sums)."},
    {"extent", extent, METH_VARARGS,
     "Return such an `Extent` of the elements of such a tensor; None also where it has none: (tensor, most, Extent)."},
    {NULL, NULL, 0, NULL},
};
