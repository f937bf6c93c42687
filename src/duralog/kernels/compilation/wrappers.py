"""The extension module's C source: for each kernel, a function that Python calls.

It takes the buffers of its array arguments, releases the GIL, calls the kernel as numba's calling convention has it,
and builds the result. An array is anything with a contiguous, aligned buffer of the right kind and size of items and
number of dimensions; one that the kernel writes to must be writable. Of records and of single bytes only the size is
compared. The callers' arrays stay alive during the call.

numba's convention: `int32_t kernel(result *, void **exception, arguments...)`, 0 or -2 (None) for success. An array
is passed as memory info and owner (both none), number and size of items, data, shape and strides; a tuple as its
members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duralog.kernels.compilation.levels import Level

MODULE = "_machine_code"

_HEAD = r"""
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether a buffer has numbers of this machine's byte order, of a kind that one of the letters means. */
static int has_numbers(const Py_buffer *view, const char *letters)
{
    const char *format = view->format;
    if (format == NULL)
        return 0;
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    return *format != 0 && format[1] == 0 && strchr(letters, *format) != NULL;
}

/* `letters` are empty if only the size of the items matters: formats of records take long to make. */
static int take_array(PyObject *given, Py_buffer *view, int writable, int dimensions, Py_ssize_t item,
                      const char *letters, const char *kernel)
{
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0) | (*letters ? PyBUF_FORMAT : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return 0;
    if (view->ndim != dimensions || view->itemsize != item)
        PyErr_Format(PyExc_TypeError, "%s needs an array of %d dimensions with items of %zd bytes, not of %d with %zd",
                     kernel, dimensions, item, view->ndim, view->itemsize);
    else if (*letters && !has_numbers(view, letters))
        PyErr_Format(PyExc_TypeError, "%s needs an array of one of the formats %s, not of %s", kernel, letters,
                     view->format == NULL ? "bytes" : view->format);
    else if (*letters && view->len && (uintptr_t)view->buf % (uintptr_t)item)
        PyErr_Format(PyExc_TypeError, "%s needs an array that is aligned to %zd bytes", kernel, item);
    else
        return 1;
    PyBuffer_Release(view);
    return 0;
}

static int take_number(PyObject *given, int64_t *number)
{
    *number = PyLong_AsLongLong(given);
    return !(*number == -1 && PyErr_Occurred());
}

static int take_bool(PyObject *given, bool *truth)
{
    int found = PyObject_IsTrue(given);
    *truth = found > 0;
    return found >= 0;
}

static PyObject *take_member(PyObject *tuple, Py_ssize_t size, Py_ssize_t at, const char *kernel)
{
    if (PyTuple_Check(tuple) && PyTuple_Size(tuple) == size)
        return PyTuple_GetItem(tuple, at);
    PyErr_Format(PyExc_TypeError, "%s needs a tuple of %zd", kernel, size);
    return NULL;
}

static PyObject *failed(const char *kernel, int32_t status)
{
    return PyErr_Format(PyExc_RuntimeError, "the kernel %s ended with status %d", kernel, (int)status);
}
"""

_TAIL = r"""
static PyObject *levels(PyObject *self, PyObject *unused)
{
    PyObject *found = PyList_New(0), *tuple;
    if (found == NULL)
        return NULL;
%(supported)s
    tuple = PyList_AsTuple(found);
    Py_DECREF(found);
    return tuple;
fail:
    Py_DECREF(found);
    return NULL;
}

static PyObject *functions(PyObject *self, PyObject *level)
{
    const char *name = PyUnicode_AsUTF8AndSize(level, NULL);
    PyMethodDef *method;
    PyObject *made;
    if (name == NULL)
        return NULL;
%(chosen)s
        return PyErr_Format(PyExc_ValueError, "there is no code for the level %%s", name);
    made = PyDict_New();
    if (made == NULL)
        return NULL;
    for (; method->ml_name != NULL; method++) {
        PyObject *function = PyCFunction_NewEx(method, NULL, NULL);
        if (function == NULL || PyDict_SetItemString(made, method->ml_name, function) < 0) {
            Py_XDECREF(function);
            Py_DECREF(made);
            return NULL;
        }
        Py_DECREF(function);
    }
    return made;
}

static PyMethodDef methods[] = {
    {"levels", levels, METH_NOARGS, "The names of the levels that this CPU can run, the best first."},
    {"functions", functions, METH_O, "The kernels for a level, by name."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "%(module)s", "The kernels of duralog, compiled.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_%(module)s(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddStringConstant(made, "SOURCES", "%(sources)s") < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
"""


def module_source(signatures: Mapping[str, Mapping[str, Any]], levels: Sequence[Level], sources: str) -> str:
    """The C source of the module. `sources` is the digest of what the kernels were compiled from."""
    parts = [_HEAD]
    for level in levels:
        for name, signature in signatures.items():
            parts.append("\n".join(_wrapper(name, f"{level.c_name}_{name}", signature)))
        rows = [
            f'    {{"{name}", (PyCFunction)(void (*)(void))call_{level.c_name}_{name}, METH_FASTCALL, NULL}},'
            for name in signatures
        ]
        parts.append("\n".join([f"static PyMethodDef {level.c_name}_methods[] = {{", *rows, "    {0},", "};"]))
    supported = [_offer(level) for level in levels]
    chosen = [f'    if (strcmp(name, "{level.name}") == 0) method = {level.c_name}_methods; else' for level in levels]
    tail = {"supported": "\n".join(supported), "chosen": "\n".join(chosen), "module": MODULE, "sources": sources}
    return "\n\n".join([*parts, _TAIL % tail])


def _offer(level: Level) -> str:
    return f"""    if ({level.supported}) {{
        PyObject *name = PyUnicode_FromString("{level.name}");
        if (name == NULL || PyList_Append(found, name) < 0) {{
            Py_XDECREF(name);
            goto fail;
        }}
        Py_DECREF(name);
    }}"""


class _Arguments:
    """Collects, over all arguments: how they are taken, and what is passed."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.declared: list[str] = []
        self.taken: list[str] = []
        self.passed: list[tuple[str, str]] = []
        """C type and expression."""
        self.arrays = 0

    def add(self, kind: Any, given: str) -> None:
        if isinstance(kind, dict):
            self._add_array(kind, given)
        elif isinstance(kind, list):
            for at, member in enumerate(kind):
                self.taken.append(f'member = take_member({given}, {len(kind)}, {at}, "{self.kernel}");')
                self.taken.append("if (member == NULL) goto done;")
                self.add(member, "member")
        else:
            variable = f"n{len(self.declared)}"
            c_type, take = ("bool", "take_bool") if kind == "bool" else ("int64_t", "take_number")
            self.declared.append(f"{c_type} {variable};")
            self.taken.append(f"if (!{take}({given}, &{variable})) goto done;")
            self.passed.append((kind, variable))

    def _add_array(self, kind: Mapping[str, Any], given: str) -> None:
        view = f"views[{self.arrays}]"
        self.arrays += 1
        wanted = f'{int(kind["writable"])}, {kind["dimensions"]}, {kind["items"]}, "{kind["letters"]}", "{self.kernel}"'
        self.taken.append(f"if (!take_array({given}, &{view}, {wanted})) goto done;")
        self.taken.append("taken++;")
        self.passed += [("void *", "NULL"), ("void *", "NULL")]
        self.passed += [("int64_t", f"{view}.len / {kind['items']}"), ("int64_t", str(kind["items"]))]
        self.passed.append(("void *", f"{view}.buf"))
        self.passed += [("int64_t", f"{view}.shape[{axis}]") for axis in range(kind["dimensions"])]
        self.passed += [("int64_t", f"{view}.strides[{axis}]") for axis in range(kind["dimensions"])]


def _wrapper(kernel: str, name: str, signature: Mapping[str, Any]) -> Iterator[str]:
    arguments = _Arguments(kernel)
    for at, kind in enumerate(signature["arguments"]):
        arguments.add(kind, f"given[{at}]")
    result = signature["result"]
    members = result if isinstance(result, list) else ["int64_t" if result is None else result]
    # In memory, numba has a byte for a bool.
    fields = " ".join(f"{'int8_t' if kind == 'bool' else kind} f{at};" for at, kind in enumerate(members))
    count = len(signature["arguments"])
    yield f"struct {name}_result {{ {fields} }};"
    types = ", ".join(["struct " + name + "_result *", "void **", *(kind for kind, _ in arguments.passed)])
    yield f'extern int32_t duralog_{name}({types}) __attribute__((visibility("hidden")));'
    yield f"static PyObject *call_{name}(PyObject *self, PyObject *const *given, Py_ssize_t count)"
    yield "{"
    yield f"    Py_buffer views[{max(1, arguments.arrays)}];"
    yield f"    struct {name}_result out = {{0}};"
    yield "    PyObject *made = NULL, *member = NULL;"
    yield "    void *exception = NULL;"
    yield "    int32_t status;"
    yield "    int taken = 0;"
    yield from (f"    {line}" for line in arguments.declared)
    yield "    (void)member;"
    yield f"    if (count != {count})"
    yield f'        return PyErr_Format(PyExc_TypeError, "{kernel} takes {count} arguments, not %zd", count);'
    yield from (f"    {line}" for line in arguments.taken)
    yield "    Py_BEGIN_ALLOW_THREADS"
    passed = ", ".join(["&out", "&exception", *(expression for _, expression in arguments.passed)])
    yield f"    status = duralog_{name}({passed});"
    yield "    Py_END_ALLOW_THREADS"
    yield "    if (status != 0 && status != -2)"
    yield f'        made = failed("{kernel}", status);'
    yield "    else"
    yield f"        made = {_built(result)};"
    yield "done:"
    yield "    while (taken > 0)"
    yield "        PyBuffer_Release(&views[--taken]);"
    yield "    return made;"
    yield "}"


_LETTERS = {"int64_t": "L", "uint64_t": "K", "int32_t": "i", "uint32_t": "I"}


def _built(result: Any) -> str:
    if result is None:
        return "Py_NewRef(Py_None)"
    if not isinstance(result, list):
        return f'Py_BuildValue("{_LETTERS[result]}", out.f0)'
    letters = "".join("O" if kind == "bool" else _LETTERS[kind] for kind in result)
    values = (f"out.f{at} ? Py_True : Py_False" if kind == "bool" else f"out.f{at}" for at, kind in enumerate(result))
    return f'Py_BuildValue("({letters})", {", ".join(values)})'
