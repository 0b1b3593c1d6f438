/* What a ScopeMetrics says of itself: its `scope`. Twin: scope_bytes() of _internal/messages/encode_metrics.py. */
#include "encode.h"

#define KEY(text) ((Text){text, sizeof text - 1})
/* wire/attributes.py */
#define SCOPE_NAME KEY("otel_ml")
#define STEP KEY("ml.step")
#define AXIS KEY("ml.step.axis")
#define REDUCTION KEY("ml.reduction")
#define REDUCTION_DEFAULT KEY("ml.reduction.default")
#define SEQ KEY("ml.seq")
#define SEQ_POINTS KEY("ml.seq.points")

#define SCOPE_TAG 0x0a
#define SCOPE_ATTRIBUTE_TAG 0x1a

/* Whether both are such as can be encoded here. */
int as_about(PyObject *step, PyObject *axis, About *about)
{
    *about = (About){.has_step = step != Py_None, .has_axis = axis != Py_None};
    return (!about->has_step || as_signed(step, &about->step)) && (!about->has_axis || as_text(axis, &about->axis));
}

Py_ssize_t about_size(const About *about)
{
    return field_size(SCOPE_NAME.size) + (about->has_step ? number_attribute_size(STEP, about->step) : 0) +
           (about->has_axis ? text_attribute_size(AXIS, about->axis) : 0) +
           (about->has_reduction ? text_attribute_size(REDUCTION, about->reduction) : 0) +
           (about->has_defaults ? text_attribute_size(REDUCTION_DEFAULT, about->defaults) : 0) +
           number_attribute_size(SEQ, about->seq) + number_attribute_size(SEQ_POINTS, about->points);
}

unsigned char *put_about(unsigned char *at, const About *about, Py_ssize_t size)
{
    at = put_text(put_head(at, SCOPE_TAG, size), 0x0a, SCOPE_NAME);
    if (about->has_step)
        at = put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, STEP, about->step);
    if (about->has_axis)
        at = put_text_attribute(at, SCOPE_ATTRIBUTE_TAG, AXIS, about->axis);
    if (about->has_reduction)
        at = put_text_attribute(at, SCOPE_ATTRIBUTE_TAG, REDUCTION, about->reduction);
    if (about->has_defaults)
        at = put_text_attribute(at, SCOPE_ATTRIBUTE_TAG, REDUCTION_DEFAULT, about->defaults);
    at = put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, SEQ, about->seq);
    return put_number_attribute(at, SCOPE_ATTRIBUTE_TAG, SEQ_POINTS, about->points);
}
