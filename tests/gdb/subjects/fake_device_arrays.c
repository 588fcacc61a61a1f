/* A FAKE of jaxlib's ArrayImpl and of cupy's _ndarray_base and MemoryPointer: objects with their names and the fields that theirs
   have in front (jaxlib 0.10, cupy 14), where neither library is. */
#include <Python.h>

typedef struct {
    PyObject_HEAD
    void *table;
    PyObject *weak;
    Py_ssize_t size, *shape[3], *strides[3];
    int c_contiguous, f_contiguous, small;
    PyObject *dtype, *data, *base;
} cupy_array;
typedef struct {
    PyObject_HEAD
    void *table;
    Py_ssize_t ptr;
    int device;
    PyObject *memory;
} cupy_pointer;
typedef struct {
    PyObject_HEAD
    PyObject *weak, *dict;
    char initialized;
    PyObject *aval;
    char weak_type;
    PyObject *dtype;
    Py_ssize_t *shape[3];
    PyObject *sharding, *numpy_value;
    void *rest[70];
} jax_array;

static PyType_Slot none[] = {{0, 0}};
static PyType_Spec specs[] = {
    {"cupy._core.core._ndarray_base", sizeof(cupy_array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, none},
    {"cupy.cuda.memory.MemoryPointer", sizeof(cupy_pointer), 0, Py_TPFLAGS_DEFAULT, none},
    {"jaxlib._jax.ArrayImpl", sizeof(jax_array), 0, Py_TPFLAGS_DEFAULT, none},
};

static void fill(Py_ssize_t **vector, PyObject *numbers)
{
    Py_ssize_t n = PyTuple_Size(numbers);
    vector[0] = n ? malloc(8 * n) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        vector[0][i] = PyLong_AsSsize_t(PyTuple_GetItem(numbers, i));
    vector[1] = vector[2] = vector[0] ? vector[0] + n : 0;
}

static PyObject *of_cupy(PyObject *self, PyObject *args)
{
    PyObject *type, *pointer_type, *shape, *strides, *dtype;
    Py_ssize_t ptr;
    int device;
    if (!PyArg_ParseTuple(args, "OOOOOni", &type, &pointer_type, &shape, &strides, &dtype, &ptr, &device))
        return 0;
    cupy_array *a = (cupy_array *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    cupy_pointer *p = (cupy_pointer *)((PyTypeObject *)pointer_type)->tp_alloc((PyTypeObject *)pointer_type, 0);
    a->size = 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++)
        a->size *= PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
    fill(a->shape, shape);
    fill(a->strides, strides);
    p->ptr = ptr;
    p->device = device;
    a->dtype = Py_NewRef(dtype);
    a->data = (PyObject *)p;
    a->base = Py_NewRef(Py_None);
    return (PyObject *)a;
}

static PyObject *of_jax(PyObject *self, PyObject *args)
{
    PyObject *type, *aval, *shape, *dtype, *sharding;
    if (!PyArg_ParseTuple(args, "OOOOO", &type, &aval, &shape, &dtype, &sharding))
        return 0;
    jax_array *a = (jax_array *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    a->initialized = 1;
    a->aval = Py_NewRef(aval);
    a->dtype = Py_NewRef(dtype);
    fill(a->shape, shape);
    a->sharding = Py_NewRef(sharding);
    a->numpy_value = Py_NewRef(Py_None);
    return (PyObject *)a;
}

static PyMethodDef methods[] = {{"of_cupy", of_cupy, METH_VARARGS, ""}, {"of_jax", of_jax, METH_VARARGS, ""}, {0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fake_device_arrays", 0, -1, methods};

PyMODINIT_FUNC PyInit_fake_device_arrays(void)
{
    PyObject *m = PyModule_Create(&module);
    PyModule_AddObject(m, "array", PyType_FromSpec(&specs[0]));
    PyModule_AddObject(m, "MemoryPointer", PyType_FromSpec(&specs[1]));
    PyModule_AddObject(m, "ArrayImpl", PyType_FromSpec(&specs[2]));
    return m;
}
