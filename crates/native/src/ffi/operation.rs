//! A native coroutine: an object that `await`, tasks and `asyncio.iscoroutine` take for one.
//!
//! It does nothing until it is first awaited, completes without yielding when it can, and otherwise yields an
//! asyncio future and goes on when that is done. What it cannot do well natively it hands over to a Python
//! coroutine, to which everything is forwarded from then on.
#![allow(unsafe_code, reason = "defines an object type on the raw C API")]

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::Guarded;
use super::attached::attached;

/// Freed operations whose memory is kept and used again: as many as a busy loop has at once.
const KEPT: usize = 256;
/// A larger result is not kept alive until the next one comes; see [`STOP`].
const SMALL_RESULT: ffi::Py_ssize_t = 16 * 1024;

/// What one step came to.
pub(crate) enum Progress {
    /// The result; `None` is Python's.
    Return(Option<Py<PyAny>>),
    /// Wait for this future.
    Yield(Py<PyAny>),
    /// Let this coroutine do it.
    Delegate(Py<PyAny>),
}

/// The body of an operation.
pub(crate) trait Step {
    /// Go on: at first, and each time the future that was yielded is done.
    fn step(&mut self, py: Python<'_>) -> PyResult<Progress>;

    /// The operation is given up while it waits: an exception was thrown in, or it was closed or dropped.
    fn interrupt(&mut self, py: Python<'_>);

    /// The Python objects that it holds, for the garbage collector.
    fn referents(&self) -> [Option<&Py<PyAny>>; 3];

    /// What it is called in messages.
    fn name(&self) -> &'static str;
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    New,
    Waiting,
    Running,
    Done,
    /// The object of [`completed`], which stays as it is.
    Forever,
}

#[repr(C)]
struct Object {
    head: ffi::PyObject,
    step: Option<Box<dyn Step>>,
    /// The coroutine that everything is forwarded to, or NULL.
    delegate: *mut ffi::PyObject,
    phase: Cell<Phase>,
    tracked: Cell<bool>,
}

static TYPE: OnceLock<Py<PyType>> = OnceLock::new();
static COMPLETED: OnceLock<Py<PyAny>> = OnceLock::new();
static FREE: Guarded<RefCell<Vec<*mut Object>>> = Guarded::new(RefCell::new(Vec::new()));
/// The exception that last told a result, used again when nobody else has it any more: making one costs more
/// than reading a line does.
static STOP: Guarded<Cell<*mut ffi::PyObject>> = Guarded::new(Cell::new(ptr::null_mut()));

/// The body of [`completed`]: it has no state, so that one object serves for all.
struct Nothing;

impl Step for Nothing {
    fn step(&mut self, _: Python<'_>) -> PyResult<Progress> {
        Ok(Progress::Return(None))
    }

    fn interrupt(&mut self, _: Python<'_>) {}

    fn referents(&self) -> [Option<&Py<PyAny>>; 3] {
        [None, None, None]
    }

    fn name(&self) -> &'static str {
        "StreamWriter.drain"
    }
}

/// An operation that has nothing to do: awaiting it completes at once with `None`, as often as it is awaited.
pub(crate) fn completed(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    if let Some(operation) = COMPLETED.get() {
        return Ok(operation.bind(py).clone());
    }
    let operation = new(py, Box::new(Nothing))?;
    // SAFETY: an object of ours, just made.
    unsafe { (*operation.as_ptr().cast::<Object>()).phase.set(Phase::Forever) };
    Ok(COMPLETED.get_or_init(|| operation.unbind()).bind(py).clone())
}

/// Make an operation.
pub(crate) fn new<'py>(py: Python<'py>, step: Box<dyn Step>) -> PyResult<Bound<'py, PyAny>> {
    let class = TYPE.get().ok_or_else(|| PyTypeError::new_err("the operation type is not defined"))?;
    let recycled = FREE.borrow_mut().pop();
    // SAFETY: attached; the type is a heap type of this layout. A recycled block was allocated for it and is
    // nobody's: PyObject_Init gives it its type and first reference. Every field is written before anybody else
    // sees the object, also when memory ran out: then nothing was made.
    unsafe {
        let object = match recycled {
            Some(block) => {
                ffi::PyObject_Init(block.cast(), class.as_ptr().cast());
                block
            }
            None => ffi::PyObject_GC_New::<Object>(class.as_ptr().cast()),
        };
        let owned = Bound::from_owned_ptr_or_err(py, object.cast())?;
        (&raw mut (*object).step).write(Some(step));
        (&raw mut (*object).delegate).write(ptr::null_mut());
        (&raw mut (*object).phase).write(Cell::new(Phase::New));
        (&raw mut (*object).tracked).write(Cell::new(false));
        Ok(owned)
    }
}

/// What advancing came to, as the C API wants it.
enum Advanced {
    Yielded(*mut ffi::PyObject),
    Returned(*mut ffi::PyObject),
    Raised,
}

/// Go on with the operation.
///
/// # Safety
/// Attached; `object` is alive and stays so.
unsafe fn advance(object: *mut Object) -> Advanced {
    // SAFETY: as the caller promises, for all of this function.
    let this = unsafe { &*object };
    if this.phase.get() == Phase::Forever {
        // SAFETY: attached.
        unsafe {
            ffi::Py_INCREF(ffi::Py_None());
            return Advanced::Returned(ffi::Py_None());
        }
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        attached(|py| {
            let delegate = this.delegate;
            if !delegate.is_null() {
                // SAFETY: the delegate is alive: the object holds it.
                return unsafe { send_to(py, this, delegate) };
            }
            match this.phase.get() {
                Phase::New | Phase::Waiting | Phase::Forever => {}
                Phase::Running => {
                    PyRuntimeError::new_err("coroutine already executing").restore(py);
                    return Advanced::Raised;
                }
                Phase::Done => {
                    PyRuntimeError::new_err("cannot reuse already awaited coroutine").restore(py);
                    return Advanced::Raised;
                }
            }
            this.phase.set(Phase::Running);
            // SAFETY: the body is out of the object while it runs, so nobody else can reach it.
            let step = unsafe { (*object).step.take() };
            let Some(mut step) = step else {
                this.phase.set(Phase::Done);
                return Advanced::Raised;
            };
            match step.step(py) {
                Ok(Progress::Return(value)) => {
                    this.phase.set(Phase::Done);
                    drop(step);
                    Advanced::Returned(value.map_or_else(|| py.None().into_ptr(), Py::into_ptr))
                }
                Ok(Progress::Yield(future)) => {
                    this.phase.set(Phase::Waiting);
                    // SAFETY: nobody else has put a body in meanwhile: the phase kept them out.
                    unsafe { (*object).step = Some(step) };
                    if !this.tracked.replace(true) {
                        // SAFETY: all fields are valid; tracked once.
                        unsafe { ffi::PyObject_GC_Track(object.cast()) };
                    }
                    Advanced::Yielded(future.into_ptr())
                }
                Ok(Progress::Delegate(coroutine)) => {
                    this.phase.set(Phase::Waiting);
                    drop(step);
                    // SAFETY: the object takes the reference over, and is tracked from here on.
                    unsafe {
                        (*object).delegate = coroutine.into_ptr();
                        if !this.tracked.replace(true) {
                            ffi::PyObject_GC_Track(object.cast());
                        }
                        send_to(py, this, (*object).delegate)
                    }
                }
                Err(error) => {
                    this.phase.set(Phase::Done);
                    drop(step);
                    error.restore(py);
                    Advanced::Raised
                }
            }
        })
    }));
    outcome.unwrap_or_else(|_| {
        attached(|py| PySystemError::new_err("panic in a headrace operation").restore(py));
        Advanced::Raised
    })
}

/// Send `None` to the delegate.
///
/// # Safety
/// `delegate` is alive and stays so.
unsafe fn send_to(_: Python<'_>, this: &Object, delegate: *mut ffi::PyObject) -> Advanced {
    let mut result = ptr::null_mut();
    // SAFETY: attached, both pointers are valid.
    match unsafe { ffi::PyIter_Send(delegate, ffi::Py_None(), &raw mut result) } {
        ffi::PySendResult::PYGEN_NEXT => Advanced::Yielded(result),
        ffi::PySendResult::PYGEN_RETURN => {
            this.phase.set(Phase::Done);
            Advanced::Returned(result)
        }
        ffi::PySendResult::PYGEN_ERROR => {
            this.phase.set(Phase::Done);
            Advanced::Raised
        }
    }
}

unsafe extern "C" fn am_send(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: CPython calls this attached, with a live object and a place for the result.
    unsafe {
        match advance(object.cast()) {
            Advanced::Yielded(value) => {
                *result = value;
                ffi::PySendResult::PYGEN_NEXT
            }
            Advanced::Returned(value) => {
                *result = value;
                ffi::PySendResult::PYGEN_RETURN
            }
            Advanced::Raised => {
                *result = ptr::null_mut();
                ffi::PySendResult::PYGEN_ERROR
            }
        }
    }
}

unsafe extern "C" fn iternext(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object.
    unsafe {
        match advance(object.cast()) {
            Advanced::Yielded(value) => value,
            Advanced::Returned(value) => {
                // NULL without an exception says "ended with None", which costs no exception object.
                if value == ffi::Py_None() {
                    ffi::Py_DECREF(value);
                } else {
                    stop_again(value);
                }
                ptr::null_mut()
            }
            Advanced::Raised => ptr::null_mut(),
        }
    }
}

/// Raise `StopIteration(value)` for who will take the value and forget the exception: `await` does.
///
/// # Safety
/// Attached; `value` is alive, and its reference is taken.
unsafe fn stop_again(value: *mut ffi::PyObject) {
    // SAFETY: as the caller promises. What STOP holds is an exact StopIteration, made below, of which it has one
    // reference; when that is the only one, nobody sees it change. One that somebody has caught, so that it got a
    // traceback or more, is not used again. `args` stay empty: who awaits looks at `value` alone.
    unsafe {
        if ffi::PyBytes_CheckExact(value) != 0 && ffi::PyBytes_Size(value) > SMALL_RESULT {
            stop_with(value);
            ffi::Py_DECREF(value);
            return;
        }
        let mut kept = STOP.replace(ptr::null_mut()).cast::<ffi::PyStopIterationObject>();
        if !kept.is_null()
            && (ffi::Py_REFCNT(kept.cast()) != 1
                || !(*kept).traceback.is_null()
                || !(*kept).context.is_null()
                || !(*kept).cause.is_null()
                || !(*kept).notes.is_null()
                || !(*kept).dict.is_null())
        {
            ffi::Py_DECREF(kept.cast());
            kept = ptr::null_mut();
        }
        if kept.is_null() {
            kept = ffi::PyObject_CallNoArgs(ffi::PyExc_StopIteration).cast();
            if kept.is_null() {
                ffi::Py_DECREF(value);
                return;
            }
        }
        // What dropping the old value runs may come here again: this exception is put back only after it.
        let old = std::mem::replace(&mut (*kept).value, value);
        ffi::Py_XDECREF(old);
        ffi::Py_INCREF(kept.cast());
        raise(kept.cast());
        let other = STOP.replace(kept.cast());
        ffi::Py_XDECREF(other);
    }
}

/// Set the exception `exception`, whose reference is taken, as it is: without a context.
///
/// # Safety
/// Attached; `exception` is an exception.
unsafe fn raise(exception: *mut ffi::PyObject) {
    // SAFETY: as the caller promises.
    unsafe {
        let class = ffi::Py_TYPE(exception).cast();
        ffi::Py_INCREF(class);
        // Deprecated since 3.12, whose successor 3.11 does not have; it does the same with an instance.
        #[allow(deprecated)]
        ffi::PyErr_Restore(class, exception, ptr::null_mut());
    }
}

/// Raise `StopIteration(value)`.
///
/// # Safety
/// Attached; `value` is alive.
unsafe fn stop_with(value: *mut ffi::PyObject) {
    // SAFETY: as the caller promises. The exception is made by a call, so that a tuple or an exception as
    // value is not taken apart.
    unsafe {
        let exception = ffi::PyObject_CallOneArg(ffi::PyExc_StopIteration, value);
        if !exception.is_null() {
            ffi::PyErr_SetObject(ffi::PyExc_StopIteration, exception);
            ffi::Py_DECREF(exception);
        }
    }
}

unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// `send(value)`: what is sent is not looked at, as futures send nothing but `None`.
unsafe extern "C" fn send(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object.
    unsafe {
        match advance(object.cast()) {
            Advanced::Yielded(value) => value,
            Advanced::Returned(value) => {
                stop_with(value);
                ffi::Py_DECREF(value);
                ptr::null_mut()
            }
            Advanced::Raised => ptr::null_mut(),
        }
    }
}

/// Give the body up, if it waits.
///
/// # Safety
/// Attached; `object` is alive.
unsafe fn give_up(object: *mut Object) {
    // SAFETY: as the caller promises; the body is taken out before it runs.
    unsafe {
        if (*object).phase.get() == Phase::Forever {
            return;
        }
        let waited = (*object).phase.replace(Phase::Done) == Phase::Waiting;
        if let Some(mut step) = (*object).step.take()
            && waited
        {
            let _ = catch_unwind(AssertUnwindSafe(|| attached(|py| step.interrupt(py))));
        }
    }
}

/// `throw(exception)`, or the older `throw(type, value, traceback)`.
unsafe extern "C" fn throw(object: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object and a tuple.
    unsafe {
        let this = object.cast::<Object>();
        let delegate = (*this).delegate;
        if !delegate.is_null() {
            let method = ffi::PyObject_GetAttrString(delegate, c"throw".as_ptr());
            if method.is_null() {
                return ptr::null_mut();
            }
            let result = ffi::PyObject_Call(method, args, ptr::null_mut());
            ffi::Py_DECREF(method);
            return result;
        }
        give_up(this);
        attached(|py| {
            let item = |index: ffi::Py_ssize_t| {
                (index < ffi::PyTuple_GET_SIZE(args))
                    .then(|| Bound::from_borrowed_ptr(py, ffi::PyTuple_GET_ITEM(args, index)))
                    .filter(|value| !value.is_none())
            };
            let raised = match (item(0), item(1)) {
                (Some(class), Some(value)) if class.is_instance_of::<PyType>() => {
                    if value.is_instance(&class).unwrap_or(false) { Ok(value) } else { class.call1((value,)) }
                }
                (Some(class), _) if class.is_instance_of::<PyType>() => class.call0(),
                (Some(value), _) => Ok(value),
                (None, _) => Err(PyTypeError::new_err("throw expected at least 1 argument, got 0")),
            };
            match raised {
                Ok(value) => PyErr::from_value(value).restore(py),
                Err(error) => error.restore(py),
            }
        });
        ptr::null_mut()
    }
}

unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object.
    unsafe {
        let this = object.cast::<Object>();
        let delegate = (*this).delegate;
        if !delegate.is_null() {
            return ffi::PyObject_CallMethodNoArgs(delegate, pyo3_close_name());
        }
        give_up(this);
        ffi::Py_INCREF(ffi::Py_None());
        ffi::Py_None()
    }
}

fn pyo3_close_name() -> *mut ffi::PyObject {
    attached(|py| pyo3::intern!(py, "close").as_ptr())
}

unsafe extern "C" fn name(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this attached, with a live object.
    let text = unsafe { (*object.cast::<Object>()).step.as_ref().map_or("operation", |step| step.name()) };
    attached(|py| pyo3::types::PyString::new(py, text).into_any().unbind().into_ptr())
}

unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls this with a live object; visiting neither runs code nor frees.
    unsafe {
        let this = object.cast::<Object>();
        let mut fields = [
            ffi::Py_TYPE(object).cast(),
            (*this).delegate,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        ];
        if let Some(step) = &(*this).step {
            for (field, held) in fields[2..].iter_mut().zip(step.referents()) {
                *field = held.map_or(ptr::null_mut(), Py::as_ptr);
            }
        }
        for field in fields {
            if !field.is_null() {
                let stop = visit(field, argument);
                if stop != 0 {
                    return stop;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: CPython calls this with a live object that it keeps alive.
    unsafe {
        let this = object.cast::<Object>();
        give_up(this);
        let delegate = std::mem::replace(&mut (*this).delegate, ptr::null_mut());
        ffi::Py_XDECREF(delegate);
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython calls this once, when the last reference is gone; the object is untracked before its
    // fields are dropped, and its type loses the reference that each instance holds.
    unsafe {
        let this = object.cast::<Object>();
        if (*this).tracked.get() {
            ffi::PyObject_GC_UnTrack(object.cast());
        }
        if (*this).phase.get() == Phase::New {
            never_awaited(this);
        }
        give_up(this);
        ffi::Py_XDECREF((*this).delegate);
        let class = ffi::Py_TYPE(object);
        ptr::drop_in_place(&raw mut (*this).step);
        let mut free = FREE.borrow_mut();
        if free.len() < KEPT {
            free.push(this);
        } else {
            drop(free);
            ffi::PyObject_GC_Del(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

/// Warn as CPython does for a coroutine that was dropped unawaited. An exception under way stays.
///
/// # Safety
/// Attached; the object is being deallocated, its fields are whole.
unsafe fn never_awaited(this: *mut Object) {
    // SAFETY: as the caller promises.
    let text = unsafe { (*this).step.as_ref().map_or("operation", |step| step.name()) };
    attached(|py| {
        let pending = PyErr::take(py);
        let category = py.get_type::<pyo3::exceptions::PyRuntimeWarning>();
        let message = format!("coroutine '{text}' was never awaited");
        if let Ok(message) = std::ffi::CString::new(message)
            && let Err(error) = PyErr::warn(py, &category, &message, 1)
        {
            error.write_unraisable(py, None);
        }
        if let Some(pending) = pending {
            pending.restore(py);
        }
    });
}

/// Make the type. Returns it; calling it again returns the same.
pub(crate) fn define(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    if let Some(class) = TYPE.get() {
        return Ok(class.bind(py).clone());
    }
    let method = |name: &'static std::ffi::CStr, function: ffi::PyCFunction, flags: c_int| ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: flags,
        ml_doc: ptr::null(),
    };
    let methods = Box::leak(Box::new([
        method(c"send", send, ffi::METH_O),
        method(c"throw", throw, ffi::METH_VARARGS),
        method(c"close", close, ffi::METH_NOARGS),
        ffi::PyMethodDef::zeroed(),
    ]));
    let getset = |attribute: *const c_char| ffi::PyGetSetDef {
        name: attribute,
        get: Some(name),
        ..ffi::PyGetSetDef::default()
    };
    let getsets = Box::leak(Box::new([
        getset(c"__name__".as_ptr()),
        getset(c"__qualname__".as_ptr()),
        ffi::PyGetSetDef::default(),
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_iter, itself as *mut c_void),
        slot(ffi::Py_tp_iternext, iternext as *mut c_void),
        slot(ffi::Py_am_await, itself as *mut c_void),
        slot(ffi::Py_am_send, am_send as *mut c_void),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getsets.as_mut_ptr().cast()),
        ffi::PyType_Slot::default(),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"headrace._native.Operation".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION)
            as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; name, methods and getsets live as long as the process, the slots are copied. The
    // functions match their slots and the layout of `Object`.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    let class = class.cast_into::<PyType>()?;
    let _ = TYPE.set(class.clone().unbind());
    Ok(class)
}
