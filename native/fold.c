/* Folding: records are taken apart into what each step has gathered. Twins: Folder._take_apart() of _internal/fold.py,
   Pending.reduce() of _internal/pending.py. The fold lock is held by the caller.

   What is rare (the first record of a series, its first weight, quantiles, deviations, values of a device) is called in
   Python. So is `sum`, which adds more exactly from Python 3.12 on. */
#include "native.h"

static struct {
    PyObject *pending, *order, *row, *definitions;
    PyObject *fold_special, *pending_of, *count, *merge, *is_weighted, *sum; /* sum: a function; the others: names */
    struct {
        Py_ssize_t first_ns, last_ns, groups, rows, moments, order, weights;
    } of_pending;
    struct {
        Py_ssize_t special, internal, moments, ordered, buckets, m2, weighted, order;
    } of_series;
    struct {
        Py_ssize_t series, weighted;
    } of_row;
    Py_ssize_t step_pending;
    PyObject *series, *step, *unsettled;
} fold;

static PyObject *bind_fold(PyObject *module, PyObject *arguments)
{
    static const char *const of_pending[] = {"first_ns", "last_ns", "groups", "rows", "moments", "order", "weights", NULL};
    static const char *const of_series[] = {"special", "internal", "moments", "ordered", "buckets", "m2", "weighted", "order", NULL};
    static const char *const of_row[] = {"series", "_weighted", NULL};
    static const char *const of_step[] = {"pending", NULL};
    PyObject *pending, *order, *series, *row, *step, *definitions, *unsettled;
    if (!PyArg_ParseTuple(arguments, "OO!OOOOO", &pending, &PyType_Type, &order, &series, &row, &step, &definitions,
                          &unsettled))
        return NULL;
    if (slots_of(pending, &fold.of_pending.first_ns, of_pending) < 0 ||
        slots_of(series, &fold.of_series.special, of_series) < 0 || slots_of(row, &fold.of_row.series, of_row) < 0 ||
        slots_of(step, &fold.step_pending, of_step) < 0)
        return NULL;
    PyObject *builtins = PyImport_ImportModule("builtins");
    fold.sum = builtins == NULL ? NULL : PyObject_GetAttrString(builtins, "sum");
    Py_XDECREF(builtins);
    fold.fold_special = PyUnicode_InternFromString("_fold_special");
    fold.pending_of = PyUnicode_InternFromString("_pending");
    fold.count = PyUnicode_InternFromString("_count");
    fold.merge = PyUnicode_InternFromString("_merge");
    fold.is_weighted = PyUnicode_InternFromString("weighted");
    if (!fold.sum || !fold.fold_special || !fold.pending_of || !fold.count || !fold.merge || !fold.is_weighted)
        return NULL;
    fold.pending = Py_NewRef(pending);
    fold.order = Py_NewRef(order);
    fold.series = Py_NewRef(series);
    fold.row = Py_NewRef(row);
    fold.step = Py_NewRef(step);
    fold.unsettled = Py_NewRef(unsettled);
    fold.definitions = Py_NewRef(definitions);
    Py_RETURN_NONE;
}

static inline int is_true(PyObject *series, Py_ssize_t offset)
{
    return slot(series, offset) == Py_True;
}

static int are_floats(PyObject *values)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++)
        if (!PyFloat_CheckExact(PyList_GET_ITEM(values, i)))
            return 0;
    return 1;
}

/* Whether Series.settle() came to its end, which a fork may have kept it from in the parent. */
static inline int is_settled(PyObject *series)
{
    return slot(series, fold.of_series.order) != fold.unsettled;
}

/* A tuple of four, of which the references are taken over; NULL where one of them is. Plain tuples come from Python's
   list of free ones, which the garbage collector does not count: `tests/unit/otel_ml/record/test_garbage.py`. */
static PyObject *four(PyTypeObject *type, PyObject *a, PyObject *b, PyObject *c, PyObject *d)
{
    int is_whole = a && b && c && d;
    PyObject *made = !is_whole ? NULL : type == &PyTuple_Type ? PyTuple_New(4) : type->tp_alloc(type, 4);
    if (made == NULL) {
        Py_XDECREF(a), Py_XDECREF(b), Py_XDECREF(c), Py_XDECREF(d);
        return NULL;
    }
    PyTuple_SET_ITEM(made, 0, a);
    PyTuple_SET_ITEM(made, 1, b);
    PyTuple_SET_ITEM(made, 2, c);
    PyTuple_SET_ITEM(made, 3, d);
    return made;
}

/* Set a key of a dictionary, and let go of the value. */
static int put(PyObject *dictionary, PyObject *key, PyObject *value)
{
    int failed = value == NULL ? -1 : PyDict_SetItem(dictionary, key, value);
    Py_XDECREF(value);
    return failed;
}

/* Pending.add */
static int add(PyObject *groups, PyObject *series, PyObject *value)
{
    PyObject *group = PyDict_GetItemWithError(groups, series);
    if (group == NULL)
        return PyErr_Occurred() ? -1 : PyDict_SetItem(groups, series, value);
    if (PyList_CheckExact(group))
        return PyList_Append(group, value);
    PyObject *both = PyList_New(2);
    if (both != NULL) {
        PyList_SET_ITEM(both, 0, Py_NewRef(group));
        PyList_SET_ITEM(both, 1, Py_NewRef(value));
    }
    return put(groups, series, both);
}

/* Pending._add_order */
static int add_order(PyObject *order, PyObject *series, PyObject *value, PyObject *time)
{
    PyObject *seen = PyDict_GetItemWithError(order, series), *made;
    PyTypeObject *type = (PyTypeObject *)fold.order;
    if (seen == NULL && PyErr_Occurred())
        return -1;
    if (seen == NULL)
        made = four(type, Py_NewRef(time), Py_NewRef(value), Py_NewRef(time), Py_NewRef(value));
    else {
        PyObject *const *old = &PyTuple_GET_ITEM(seen, 0);
        int is_last = PyObject_RichCompareBool(time, old[2], Py_GE);
        int is_first = is_last ? 0 : PyObject_RichCompareBool(time, old[0], Py_LT);
        if (is_last < 0 || is_first < 0)
            return -1;
        if (is_last)
            made = four(type, Py_NewRef(old[0]), Py_NewRef(old[1]), Py_NewRef(time), Py_NewRef(value));
        else if (is_first)
            made = four(type, Py_NewRef(time), Py_NewRef(value), Py_NewRef(old[2]), Py_NewRef(old[3]));
        else
            return 0;
    }
    return put(order, series, made);
}

static int is_in_rows(PyObject *series, PyObject *rows)
{
    PyObject *row;
    for (Py_ssize_t place = 0; PyDict_Next(rows, &place, &row, NULL);) {
        PyObject *every = slot(row, fold.of_row.series);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(every); i++)
            if (PyTuple_GET_ITEM(every, i) == series)
                return 1;
    }
    return 0;
}

/* Pending._add_weight, of a series that has nothing in this step, or has weights already; 0 where it is another */
static int add_weight(PyObject *pending, PyObject *series, double value, double weight)
{
    PyObject *weights = slot(pending, fold.of_pending.weights);
    PyObject *sums = PyDict_GetItemWithError(weights, series);
    double total = 0.0, weighted = 0.0;
    if (sums != NULL) {
        total = PyFloat_AsDouble(PyTuple_GET_ITEM(sums, 0));
        weighted = PyFloat_AsDouble(PyTuple_GET_ITEM(sums, 1));
    } else if (PyErr_Occurred())
        return -1;
    else if (is_in_rows(series, slot(pending, fold.of_pending.rows)) ||
             PyDict_Contains(slot(pending, fold.of_pending.moments), series) ||
             PyDict_Contains(slot(pending, fold.of_pending.groups), series))
        return 0;
    return put(weights, series, Py_BuildValue("(dd)", total + weight, weighted + weight * value)) < 0 ? -1 : 1;
}

/* Pending.add_special, of a record whose series is settled; 0 where it has to be done in Python. */
static int add_special(PyObject *pending, PyObject *series, PyObject *value, PyObject *time)
{
    PyObject *number = value, *weight = NULL;
    if (!is_settled(series) || is_true(series, fold.of_series.internal))
        return 0; /* not settled, or not counted */
    int is_weighted = is_true(series, fold.of_series.weighted);
    if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2 && is_weighted) {
        number = PyTuple_GET_ITEM(value, 0);
        weight = PyTuple_GET_ITEM(value, 1);
    }
    if (!PyFloat_CheckExact(number) || (weight != NULL && !PyFloat_CheckExact(weight)))
        return 0;
    if (is_weighted) {
        double by = weight == NULL ? 1.0 : PyFloat_AS_DOUBLE(weight);
        int done = add_weight(pending, series, PyFloat_AS_DOUBLE(number), by);
        if (done <= 0)
            return done;
    }
    if (is_true(series, fold.of_series.ordered) &&
        add_order(slot(pending, fold.of_pending.order), series, number, time) < 0)
        return -1;
    if ((is_true(series, fold.of_series.moments) || is_true(series, fold.of_series.buckets)) &&
        add(slot(pending, fold.of_pending.groups), series, number) < 0)
        return -1;
    return 1;
}

/* One fold, while it goes on. */
typedef struct {
    PyObject *folder, *part, *touched;
    PyObject *step, *pending, *time; /* borrowed from `part`, from `touched`, from `part` */
    Py_ssize_t next, values;
} Fold;

/* Folder._fold_special */
static int fold_slowly(Fold *now, PyObject *series, PyObject *value)
{
    PyObject *nothing = PyObject_CallMethodObjArgs(
        now->folder, fold.fold_special, now->pending, now->step, series, value, now->time, NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static int fold_value(Fold *now, PyObject *series, PyObject *value)
{
    if (PyFloat_CheckExact(value) && slot(series, fold.of_series.special) == Py_False)
        return add(slot(now->pending, fold.of_pending.groups), series, value);
    int done = add_special(now->pending, series, value, now->time);
    return done > 0 ? 0 : done < 0 ? -1 : fold_slowly(now, series, value);
}

/* Set `owner.slot` to `time` where that is earlier (Py_LT) or later (Py_GT). */
static int extend(PyObject *owner, Py_ssize_t offset, PyObject *time, int comparison)
{
    int is_beyond = PyObject_RichCompareBool(time, slot(owner, offset), comparison);
    if (is_beyond > 0)
        set_slot(owner, offset, Py_NewRef(time));
    return is_beyond < 0 ? -1 : 0;
}

static int leave_step(Fold *now)
{
    return now->pending == NULL ? 0 : extend(now->pending, fold.of_pending.last_ns, now->time, Py_GT);
}

/* Folder._pending, and how much it holds before this fold */
static int enter_step(Fold *now, PyObject *step, PyObject *time)
{
    PyObject *pending = slot(step, fold.step_pending);
    if (pending == NULL || pending == Py_None) {
        pending = PyObject_CallMethodObjArgs(now->folder, fold.pending_of, step, time, NULL);
        if (pending == NULL)
            return -1;
    } else {
        Py_INCREF(pending);
        if (extend(pending, fold.of_pending.first_ns, time, Py_LT) < 0)
            goto failed;
    }
    if (!is_exactly(pending, fold.pending)) {
        PyErr_Format(PyExc_TypeError, "expected a Pending, got %R", pending);
        goto failed;
    }
    PyObject *size = PyLong_FromSsize_t(PyDict_GET_SIZE(slot(pending, fold.of_pending.moments)) +
                                        PyDict_GET_SIZE(slot(pending, fold.of_pending.order)));
    PyObject *kept = size == NULL ? NULL : PyDict_SetDefault(now->touched, pending, size);
    Py_XDECREF(size);
    if (kept == NULL)
        goto failed;
    Py_DECREF(pending); /* `touched` holds it */
    now->step = step;
    now->pending = pending;
    return 0;
failed:
    Py_DECREF(pending);
    return -1;
}

/* Row.is_plain */
static int is_plain(PyObject *row)
{
    PyObject *weighted = PyObject_GetAttr(fold.definitions, fold.is_weighted), *series = slot(row, fold.of_row.series);
    int is_known = weighted == NULL ? -1 : PyObject_RichCompareBool(slot(row, fold.of_row.weighted), weighted, Py_EQ);
    if (is_known) {
        Py_XDECREF(weighted);
        return is_known;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(series); i++)
        if (is_true(PyTuple_GET_ITEM(series, i), fold.of_series.special)) {
            Py_DECREF(weighted);
            return 0;
        }
    set_slot(row, fold.of_row.weighted, weighted);
    return 1;
}

/* Pending.add_row */
static int add_row(PyObject *pending, PyObject *row, PyObject *values)
{
    PyObject *rows = slot(pending, fold.of_pending.rows), *before = PyDict_GetItemWithError(rows, row);
    if (before == NULL)
        return PyErr_Occurred() ? -1 : PyDict_SetItem(rows, row, values);
    if (PyList_CheckExact(before))
        return PyList_Append(before, values);
    PyObject *both = PyList_New(2);
    if (both != NULL) {
        PyList_SET_ITEM(both, 0, Py_NewRef(before));
        PyList_SET_ITEM(both, 1, Py_NewRef(values));
    }
    return put(rows, row, both);
}

/* Folder._fold_row: its values are the items that follow */
static int fold_row(Fold *now, PyObject *row)
{
    PyObject *series = slot(row, fold.of_row.series);
    Py_ssize_t width = PyTuple_GET_SIZE(series);
    if (width > PyList_GET_SIZE(now->part) - now->next) {
        PyErr_Format(PyExc_ValueError, "expected %zd values after a row, got fewer", width);
        return -1;
    }
    PyObject *values = PyTuple_New(width);
    int failed = values == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; !failed && i < width; i++)
        PyTuple_SET_ITEM(values, i, Py_NewRef(PyList_GET_ITEM(now->part, now->next + i)));
    now->next += width;
    now->values += width;
    int is_whole = failed ? -1 : is_plain(row);
    if (is_whole)
        failed = is_whole < 0 ? -1 : add_row(now->pending, row, values);
    for (Py_ssize_t i = 0; !is_whole && !failed && i < width; i++)
        failed = fold_value(now, PyTuple_GET_ITEM(series, i), PyTuple_GET_ITEM(values, i));
    Py_XDECREF(values);
    return failed;
}

static int fold_list(Fold *now, PyObject *series, PyObject *values)
{
    if (!are_floats(values) || !is_settled(series) || is_true(series, fold.of_series.internal))
        return fold_slowly(now, series, values);
    now->values += PyList_GET_SIZE(values) - 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++)
        if (fold_value(now, series, PyList_GET_ITEM(values, i)) < 0)
            return -1;
    return 0;
}

static int fold_record(Fold *now)
{
    PyObject *const *record = ((PyListObject *)now->part)->ob_item + now->next;
    PyObject *series = record[0], *step = record[1], *value = record[2], *time = record[3];
    now->next += 4;
    if (!is_exactly(step, fold.step) || (!is_exactly(series, fold.series) && !is_exactly(series, fold.row))) {
        PyErr_Format(PyExc_TypeError, "expected a Series and a Step, got %R and %R", series, step);
        return -1;
    }
    if (step != now->step && (leave_step(now) < 0 || enter_step(now, step, time) < 0))
        return -1;
    now->time = time;
    if (is_exactly(series, fold.row))
        return fold_row(now, series);
    now->values++;
    return PyList_CheckExact(value) ? fold_list(now, series, value) : fold_value(now, series, value);
}

static PyObject *take_apart(PyObject *module, PyObject *arguments)
{
    Fold now = {0};
    if (!PyArg_ParseTuple(arguments, "OO!", &now.folder, &PyList_Type, &now.part))
        return NULL;
    now.touched = PyDict_New();
    int failed = now.touched == NULL ? -1 : 0;
    while (!failed && now.next + 4 <= PyList_GET_SIZE(now.part))
        failed = fold_record(&now);
    if (!failed)
        failed = leave_step(&now);
    PyObject *values = failed ? NULL : PyLong_FromSsize_t(now.values);
    PyObject *nothing = values == NULL ? NULL : PyObject_CallMethodObjArgs(now.folder, fold.count, values, NULL);
    Py_XDECREF(values);
    Py_XDECREF(nothing);
    if (nothing == NULL)
        Py_CLEAR(now.touched);
    return now.touched;
}

/* _moments() of several values, each exactly a float: a new tuple. */
static PyObject *moments_of(PyObject *values, Py_ssize_t n)
{
    PyObject *sum = PyObject_CallOneArg(fold.sum, values);
    if (sum == NULL)
        return NULL;
    double total = PyFloat_AsDouble(sum);
    PyObject *low = PyList_GET_ITEM(values, 0), *high = low;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        double number = PyFloat_AS_DOUBLE(value); /* are_floats() was asked */
        if (number != number) { /* then the sum is NaN, too */
            low = high = sum;
            break;
        }
        if (number < PyFloat_AS_DOUBLE(low))
            low = value;
        if (number > PyFloat_AS_DOUBLE(high))
            high = value;
    }
    PyObject *made = four(&PyTuple_Type, PyLong_FromSsize_t(n), PyFloat_FromDouble(total), Py_NewRef(low), Py_NewRef(high));
    Py_DECREF(sum);
    return made;
}

static int are_moments(PyObject *tuple)
{
    return PyTuple_CheckExact(tuple) && PyTuple_GET_SIZE(tuple) == 4 && PyLong_CheckExact(PyTuple_GET_ITEM(tuple, 0)) &&
           PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 1)) && PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 2)) &&
           PyFloat_CheckExact(PyTuple_GET_ITEM(tuple, 3));
}

/* _merged() */
static PyObject *merged(PyObject *old, PyObject *new)
{
    PyObject *const *a = &PyTuple_GET_ITEM(old, 0), *const *b = &PyTuple_GET_ITEM(new, 0);
    double old_low = PyFloat_AS_DOUBLE(a[2]), new_low = PyFloat_AS_DOUBLE(b[2]);
    PyObject *count = PyNumber_Add(a[0], b[0]);
    if (old_low != old_low || new_low != new_low) {
        PyObject *nan = PyFloat_FromDouble(old_low + new_low);
        return four(&PyTuple_Type, count, nan, Py_XNewRef(nan), Py_XNewRef(nan));
    }
    PyObject *total = PyFloat_FromDouble(PyFloat_AS_DOUBLE(a[1]) + PyFloat_AS_DOUBLE(b[1]));
    PyObject *low = new_low < old_low ? b[2] : a[2];
    PyObject *high = PyFloat_AS_DOUBLE(b[3]) > PyFloat_AS_DOUBLE(a[3]) ? b[3] : a[3];
    return four(&PyTuple_Type, count, total, Py_NewRef(low), Py_NewRef(high));
}

/* Pending._merge */
static int merge_slowly(PyObject *pending, PyObject *series, PyObject *group)
{
    PyObject *pairs = Py_BuildValue("[(OO)]", series, group);
    PyObject *nothing = pairs == NULL ? NULL : PyObject_CallMethodObjArgs(pending, fold.merge, pairs, NULL);
    Py_XDECREF(pairs);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static int merge(PyObject *pending, PyObject *series, PyObject *group)
{
    PyObject *moments = slot(pending, fold.of_pending.moments), *new;
    if (slot(series, fold.of_series.m2) != Py_False || slot(series, fold.of_series.buckets) != Py_False)
        return merge_slowly(pending, series, group);
    if (PyFloat_CheckExact(group))
        new = four(&PyTuple_Type, PyLong_FromLong(1), Py_NewRef(group), Py_NewRef(group), Py_NewRef(group));
    else if (!PyList_CheckExact(group) || !are_floats(group))
        return merge_slowly(pending, series, group);
    else
        new = moments_of(group, PyList_GET_SIZE(group));
    PyObject *old = new == NULL ? NULL : PyDict_GetItemWithError(moments, series);
    if (old == NULL)
        return new == NULL || PyErr_Occurred() ? (Py_XDECREF(new), -1) : put(moments, series, new);
    if (!are_moments(old)) {
        Py_DECREF(new);
        return merge_slowly(pending, series, group);
    }
    int failed = put(moments, series, merged(old, new));
    Py_DECREF(new);
    return failed;
}

/* A column of several rows of a Row. */
static PyObject *column_of(PyObject *rows, Py_ssize_t place)
{
    PyObject *column = PyList_New(PyList_GET_SIZE(rows));
    for (Py_ssize_t i = 0; column != NULL && i < PyList_GET_SIZE(rows); i++)
        PyList_SET_ITEM(column, i, Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(rows, i), place)));
    return column;
}

static int merge_row(PyObject *pending, PyObject *row, PyObject *rows)
{
    PyObject *series = slot(row, fold.of_row.series);
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(series); i++) {
        PyObject *group = PyList_CheckExact(rows) ? column_of(rows, i) : Py_NewRef(PyTuple_GET_ITEM(rows, i));
        failed = group == NULL ? -1 : merge(pending, PyTuple_GET_ITEM(series, i), group);
        Py_XDECREF(group);
    }
    return failed;
}

static PyObject *reduce(PyObject *module, PyObject *pending)
{
    if (!is_exactly(pending, fold.pending)) {
        PyErr_Format(PyExc_TypeError, "expected a Pending, got %R", pending);
        return NULL;
    }
    PyObject *groups = slot(pending, fold.of_pending.groups), *rows = slot(pending, fold.of_pending.rows);
    PyObject *key, *value;
    for (Py_ssize_t place = 0; PyDict_Next(groups, &place, &key, &value);)
        if (merge(pending, key, value) < 0)
            return NULL;
    for (Py_ssize_t place = 0; PyDict_Next(rows, &place, &key, &value);)
        if (merge_row(pending, key, value) < 0)
            return NULL;
    PyDict_Clear(groups);
    PyDict_Clear(rows);
    Py_RETURN_NONE;
}

PyMethodDef fold_functions[] = {
    {"bind_fold", bind_fold, METH_VARARGS, "Know the classes: (Pending, Order, Series, Row, Step, DEFINITIONS, UNSETTLED)."},
    {"take_apart", take_apart, METH_VARARGS, "Fold records: (folder, items); return what was touched and its size before."},
    {"reduce", reduce, METH_O, "Merge the groups of a Pending into its partials."},
    {NULL, NULL, 0, NULL},
};
