//! The handle of a scheduled callback: `asyncio.Handle` and `asyncio.TimerHandle`, as native objects.
//!
//! - Up to three arguments lie in the object itself; more of them in a tuple in the first place.
//! - A handle that the loop alone refers to is not tracked by the garbage collector: nothing can make a cycle
//!   through it. One that is still referred to when the loop is done with it is tracked from then on.
//! - The memory of freed handles is kept and used again.
#![allow(unsafe_code, reason = "defines an object type on the raw C API")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::Guarded;

/// Arguments that need no tuple.
const INLINE_ARGUMENTS: usize = 3;
/// Freed handles that are kept: what a busy loop has in flight, at 104 bytes each.
const KEPT: usize = 1024;
/// `argument_count` of a handle whose first argument is the tuple of all of them.
const PACKED: u8 = u8::MAX;

#[repr(C)]
struct HandleObject {
    head: ffi::PyObject,
    /// NULL once the handle is cancelled.
    callback: *mut ffi::PyObject,
    arguments: [*mut ffi::PyObject; INLINE_ARGUMENTS],
    context: *mut ffi::PyObject,
    owner: *mut ffi::PyObject,
    /// Debug mode: the stack on which it was scheduled.
    source_traceback: *mut ffi::PyObject,
    /// Debug mode: its description from before it was cancelled.
    repr: *mut ffi::PyObject,
    weak_references: *mut ffi::PyObject,
    when: f64,
    argument_count: u8,
    cancelled: c_char,
    /// A timer that still lies in the loop's heap.
    scheduled: c_char,
    tracked: c_char,
}

struct Types {
    handle: Py<PyType>,
    timer: Py<PyType>,
    /// What `__class__` answers, so that `isinstance(handle, asyncio.Handle)` holds.
    handle_face: Py<PyAny>,
    timer_face: Py<PyAny>,
}

static TYPES: OnceLock<Types> = OnceLock::new();
static FREE: Guarded<RefCell<Vec<*mut HandleObject>>> = Guarded::new(RefCell::new(Vec::new()));
static ALIVE: Guarded<Cell<isize>> = Guarded::new(Cell::new(0));

fn types() -> &'static Types {
    TYPES.get().expect("the module's initialisation makes the types before a loop can exist")
}

/// What a new handle is made of.
pub(crate) struct Call<'a, 'py> {
    /// The loop.
    pub(crate) owner: Borrowed<'a, 'py, PyAny>,
    /// What to call.
    pub(crate) callback: Borrowed<'a, 'py, PyAny>,
    /// With what.
    pub(crate) arguments: &'a [*mut ffi::PyObject],
    /// In which context.
    pub(crate) context: Bound<'py, PyAny>,
}

/// Make a handle; with `when` (seconds on the loop's clock) a timer's.
pub(crate) fn new<'py>(call: Call<'_, 'py>, when: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
    let py = call.callback.py();
    let types = types();
    let class = if when.is_some() { &types.timer } else { &types.handle };
    let packed = if call.arguments.len() > INLINE_ARGUMENTS { Some(pack(py, call.arguments)?) } else { None };
    let recycled = FREE.borrow_mut().pop();
    // SAFETY: attached. A recycled block was allocated for this layout and size (both types share them) and is
    // nobody's; PyObject_Init gives it its type and first reference. A new one comes with both. Every field is
    // written before anybody else can see the object; stored pointers are new references.
    unsafe {
        let class = class.as_ptr().cast::<ffi::PyTypeObject>();
        let handle = match recycled {
            Some(block) => {
                ffi::PyObject_Init(block.cast(), class);
                block
            }
            None => ffi::PyObject_GC_New::<HandleObject>(class),
        };
        let owned = Bound::from_owned_ptr_or_err(py, handle.cast())?;
        ALIVE.set(ALIVE.get() + 1);
        let mut arguments = [ptr::null_mut(); INLINE_ARGUMENTS];
        let count = match packed {
            Some(tuple) => {
                arguments[0] = tuple.into_ptr();
                PACKED
            }
            None => {
                for (place, argument) in arguments.iter_mut().zip(call.arguments) {
                    ffi::Py_INCREF(*argument);
                    *place = *argument;
                }
                call.arguments.len() as u8
            }
        };
        (&raw mut (*handle).callback).write(call.callback.to_owned().into_ptr());
        (&raw mut (*handle).arguments).write(arguments);
        (&raw mut (*handle).context).write(call.context.into_ptr());
        (&raw mut (*handle).owner).write(call.owner.to_owned().into_ptr());
        (&raw mut (*handle).source_traceback).write(ptr::null_mut());
        (&raw mut (*handle).repr).write(ptr::null_mut());
        (&raw mut (*handle).weak_references).write(ptr::null_mut());
        (&raw mut (*handle).when).write(when.unwrap_or(0.0));
        (&raw mut (*handle).argument_count).write(count);
        (&raw mut (*handle).cancelled).write(0);
        (&raw mut (*handle).scheduled).write(c_char::from(when.is_some()));
        (&raw mut (*handle).tracked).write(0);
        Ok(owned)
    }
}

fn pack<'py>(py: Python<'py>, arguments: &[*mut ffi::PyObject]) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the pointers are a caller's arguments, alive for the length of its call.
    PyTuple::new(py, arguments.iter().map(|a| unsafe { Borrowed::from_ptr(py, *a) }.to_owned()))
}

/// The native handle that `object` is, if it is one.
fn native(object: Borrowed<'_, '_, PyAny>) -> Option<*mut HandleObject> {
    let types = types();
    let class = object.get_type_ptr().cast::<ffi::PyObject>();
    (class == types.handle.as_ptr() || class == types.timer.as_ptr()).then(|| object.as_ptr().cast())
}

/// Whether `object` is one of ours.
pub(crate) fn is_native(object: Borrowed<'_, '_, PyAny>) -> bool {
    native(object).is_some()
}

/// Whether this handle (one of ours) has been cancelled.
pub(crate) fn is_cancelled(object: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: the pointer is that of a live handle; the lock is held.
    native(object).is_some_and(|handle| unsafe { (*handle).cancelled != 0 })
}

/// Cancel one of ours: what it held is let go. Returns whether it was a timer that lies in the heap.
pub(crate) fn cancel(object: Borrowed<'_, '_, PyAny>) -> bool {
    let Some(handle) = native(object) else { return false };
    // SAFETY: a live handle, the lock is held. The fields are emptied before the references are dropped, which
    // may run any code; `object` keeps the handle itself alive meanwhile.
    unsafe {
        if (*handle).cancelled != 0 {
            return false;
        }
        (*handle).cancelled = 1;
        clear_call(handle);
        (*handle).scheduled != 0
    }
}

/// Note that a timer has left the heap.
pub(crate) fn unschedule(object: Borrowed<'_, '_, PyAny>) {
    if let Some(handle) = native(object) {
        // SAFETY: a live handle, the lock is held.
        unsafe { (*handle).scheduled = 0 };
    }
}

/// The loop that made this handle.
pub(crate) fn owner<'py>(object: Borrowed<'_, 'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live handle, the lock is held; the owner is set when it is made and kept until it is freed.
    native(object)
        .and_then(|h| unsafe { Borrowed::from_ptr_or_opt(object.py(), (*h).owner) })
        .map(Borrowed::to_owned)
}

/// Debug mode: keep the stack on which the handle was scheduled.
pub(crate) fn set_source_traceback(object: Borrowed<'_, '_, PyAny>, traceback: Bound<'_, PyAny>) {
    set_field(object, |h| &raw mut h.source_traceback, traceback);
}

/// Debug mode: keep the description from before the handle was cancelled.
pub(crate) fn set_repr(object: Borrowed<'_, '_, PyAny>, repr: Bound<'_, PyAny>) {
    set_field(object, |h| &raw mut h.repr, repr);
}

fn set_field(
    object: Borrowed<'_, '_, PyAny>,
    field: impl FnOnce(&mut HandleObject) -> *mut *mut ffi::PyObject,
    value: Bound<'_, PyAny>,
) {
    if let Some(handle) = native(object) {
        // SAFETY: a live handle, the lock is held; the old value is dropped after it has been replaced.
        unsafe {
            let place = field(&mut *handle);
            let old = place.replace(value.into_ptr());
            ffi::Py_XDECREF(old);
        }
    }
}

/// Call what the handle (one of ours) is for, in its context. One that is cancelled does nothing.
pub(crate) fn run(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    let Some(handle) = native(object.as_borrowed()) else { return Ok(()) };
    // SAFETY: a live handle, the lock is held. When others refer to it too, the call itself may cancel it, so
    // callback, arguments and context are held on the stack for the length of the call; otherwise only the
    // loop's own reference (`object`) keeps them, and nobody can reach the handle. The argument vector lives
    // on the stack, with the free place in front that PY_VECTORCALL_ARGUMENTS_OFFSET promises.
    unsafe {
        if (*handle).cancelled != 0 {
            return Ok(());
        }
        let callback = (*handle).callback;
        let context = (*handle).context;
        let count = (*handle).argument_count;
        let mut vector = [ptr::null_mut(); INLINE_ARGUMENTS + 1];
        vector[1..].copy_from_slice(&(*handle).arguments);
        let shared = ffi::Py_REFCNT(object.as_ptr()) > 1;
        if shared {
            for held in vector[1..].iter().chain(&[callback, context]) {
                ffi::Py_XINCREF(*held);
            }
        }
        let result = if ffi::PyContext_Enter(context) != 0 {
            ptr::null_mut()
        } else {
            let result = if count == PACKED {
                ffi::PyObject_Call(callback, vector[1], ptr::null_mut())
            } else {
                ffi::PyObject_Vectorcall(
                    callback,
                    vector.as_ptr().add(1),
                    usize::from(count) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                    ptr::null_mut(),
                )
            };
            leave(context, result)
        };
        let outcome = if result.is_null() {
            Err(PyErr::fetch(py))
        } else {
            ffi::Py_DECREF(result);
            Ok(())
        };
        if shared {
            for held in vector[1..].iter().chain(&[callback, context]) {
                ffi::Py_XDECREF(*held);
            }
            track(handle);
        }
        outcome
    }
}

/// The loop is about to drop its reference to this handle, which it did not [`run`] itself.
pub(crate) fn let_go(object: &Bound<'_, PyAny>) {
    if let Some(handle) = native(object.as_borrowed()) {
        // SAFETY: attached; a live handle.
        unsafe { track(handle) };
    }
}

/// Leave `context`, keeping the exception that a failed call left set. Returns `result`, or NULL.
///
/// # Safety
/// Attached; `context` is the current one; an exception is set when `result` is NULL.
unsafe fn leave(context: *mut ffi::PyObject, result: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as the caller promises. PyContext_Exit leaves a pending exception alone unless it fails itself,
    // which takes a callback that left its own context.
    unsafe {
        if ffi::PyContext_Exit(context) != 0 {
            ffi::Py_XDECREF(result);
            return ptr::null_mut();
        }
    }
    result
}

/// Hand the handle over to the garbage collector: the loop is done with it, others are not.
///
/// # Safety
/// Attached; `handle` is alive.
unsafe fn track(handle: *mut HandleObject) {
    // SAFETY: as the caller promises; an object is tracked once.
    unsafe {
        if (*handle).tracked == 0 && ffi::Py_REFCNT(handle.cast()) > 1 {
            (*handle).tracked = 1;
            ffi::PyObject_GC_Track(handle.cast());
        }
    }
}

/// Visit, for the garbage collector, a handle that the loop refers to.
///
/// One that nobody else refers to is not tracked: the loop answers for what it holds. Another one is reached
/// from elsewhere; what it holds is left out, which at worst keeps it alive.
pub(crate) fn traverse_held(
    object: &Py<PyAny>,
    visit: pyo3::gc::PyVisit<'_>,
) -> Result<(), pyo3::gc::PyTraverseError> {
    visit.call(object)?;
    let types = types();
    // SAFETY: a live object; traversal runs with the lock held (or the world stopped) and runs no code. `Py` is
    // a transparent pointer that is never NULL, so a field that is not NULL may be looked at as one.
    unsafe {
        let class = ffi::Py_TYPE(object.as_ptr()).cast::<ffi::PyObject>();
        if class != types.handle.as_ptr() && class != types.timer.as_ptr() {
            return Ok(());
        }
        let handle = object.as_ptr().cast::<HandleObject>();
        if (*handle).tracked != 0 || ffi::Py_REFCNT(object.as_ptr()) > 1 {
            return Ok(());
        }
        let fields = [&(*handle).callback, &(*handle).context, &(*handle).owner, &(*handle).source_traceback];
        for field in fields.into_iter().chain(&(*handle).arguments) {
            if !field.is_null() {
                visit.call(&*ptr::from_ref(field).cast::<Py<PyAny>>())?;
            }
        }
    }
    Ok(())
}

/// How many handles exist, for leak checks.
pub(crate) fn alive() -> isize {
    ALIVE.get()
}

/// # Safety
/// Attached; `handle` is alive, and kept so by somebody else.
unsafe fn clear_call(handle: *mut HandleObject) {
    // SAFETY: as the caller promises; fields are emptied before their references are dropped.
    unsafe {
        let callback = std::mem::replace(&mut (*handle).callback, ptr::null_mut());
        let arguments = std::mem::replace(&mut (*handle).arguments, [ptr::null_mut(); INLINE_ARGUMENTS]);
        (*handle).argument_count = 0;
        ffi::Py_XDECREF(callback);
        for argument in arguments {
            ffi::Py_XDECREF(argument);
        }
    }
}

unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    let handle = object.cast::<HandleObject>();
    // SAFETY: CPython calls this with a live object of the type; visiting neither runs code nor frees.
    unsafe {
        let fields = [
            ffi::Py_TYPE(object).cast(),
            (*handle).callback,
            (*handle).arguments[0],
            (*handle).arguments[1],
            (*handle).arguments[2],
            (*handle).context,
            (*handle).owner,
            (*handle).source_traceback,
        ];
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
    let handle = object.cast::<HandleObject>();
    // SAFETY: CPython calls this with a live object of the type, which it keeps alive.
    unsafe {
        (*handle).cancelled = 1;
        clear_call(handle);
        let traceback = std::mem::replace(&mut (*handle).source_traceback, ptr::null_mut());
        ffi::Py_XDECREF(traceback);
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let handle = object.cast::<HandleObject>();
    // SAFETY: CPython calls this once, when the last reference is gone. The object is untracked before its
    // fields are dropped. Its block goes to the free list or back to the allocator, and the type loses the
    // reference that each instance holds.
    unsafe {
        if (*handle).tracked != 0 {
            ffi::PyObject_GC_UnTrack(object.cast());
        }
        if !(*handle).weak_references.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        let class = ffi::Py_TYPE(object);
        clear_call(handle);
        ffi::Py_XDECREF((*handle).context);
        ffi::Py_XDECREF((*handle).owner);
        ffi::Py_XDECREF((*handle).source_traceback);
        ffi::Py_XDECREF((*handle).repr);
        ALIVE.set(ALIVE.get() - 1);
        let mut free = FREE.borrow_mut();
        if free.len() < KEPT {
            free.push(handle);
        } else {
            drop(free);
            ffi::PyObject_GC_Del(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn args_attribute(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let handle = object.cast::<HandleObject>();
    // SAFETY: CPython calls this attached, with a live object of the type.
    unsafe {
        let py = Python::assume_attached();
        if (*handle).cancelled != 0 {
            return py.None().into_ptr();
        }
        if (*handle).argument_count == PACKED {
            ffi::Py_INCREF((*handle).arguments[0]);
            return (*handle).arguments[0];
        }
        let count = usize::from((*handle).argument_count);
        match pack(py, &(&(*handle).arguments)[..count]) {
            Ok(tuple) => tuple.into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    }
}

unsafe extern "C" fn class_attribute(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let types = types();
    // SAFETY: CPython calls this attached, with a live object.
    unsafe {
        let timer = ffi::Py_TYPE(object).cast() == types.timer.as_ptr();
        let face = if timer { types.timer_face.as_ptr() } else { types.handle_face.as_ptr() };
        ffi::Py_INCREF(face);
        face
    }
}

/// Make the two types. `handle_face` and `timer_face` are what their `__class__` answers.
///
/// Returns the types; calling it again returns the same.
pub(crate) fn define<'py>(
    handle_face: &Bound<'py, PyAny>,
    timer_face: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyType>)> {
    let py = handle_face.py();
    if TYPES.get().is_none() {
        let made = Types {
            handle: make_type(py, c"headrace._native.Handle")?,
            timer: make_type(py, c"headrace._native.TimerHandle")?,
            handle_face: handle_face.clone().unbind(),
            timer_face: timer_face.clone().unbind(),
        };
        let _ = TYPES.set(made);
    }
    let types = types();
    Ok((types.handle.bind(py).clone(), types.timer.bind(py).clone()))
}

fn make_type(py: Python<'_>, name: &'static CStr) -> PyResult<Py<PyType>> {
    /// A plain object field that may be NULL (`None` in Python).
    const OBJECT: c_int = 6;
    let member = |name: &'static CStr, kind: c_int, offset: usize, flags: c_int| ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: kind,
        offset: offset as ffi::Py_ssize_t,
        flags,
        doc: ptr::null(),
    };
    let members = Box::leak(Box::new([
        member(
            c"__weaklistoffset__",
            ffi::Py_T_PYSSIZET,
            offset_of!(HandleObject, weak_references),
            ffi::Py_READONLY,
        ),
        member(c"_callback", OBJECT, offset_of!(HandleObject, callback), ffi::Py_READONLY),
        member(c"_context", OBJECT, offset_of!(HandleObject, context), ffi::Py_READONLY),
        member(c"_loop", OBJECT, offset_of!(HandleObject, owner), ffi::Py_READONLY),
        member(c"_source_traceback", OBJECT, offset_of!(HandleObject, source_traceback), 0),
        member(c"_repr", OBJECT, offset_of!(HandleObject, repr), 0),
        member(c"_when", ffi::Py_T_DOUBLE, offset_of!(HandleObject, when), ffi::Py_READONLY),
        member(c"_cancelled", ffi::Py_T_BOOL, offset_of!(HandleObject, cancelled), ffi::Py_READONLY),
        member(c"_scheduled", ffi::Py_T_BOOL, offset_of!(HandleObject, scheduled), ffi::Py_READONLY),
        ffi::PyMemberDef::default(),
    ]));
    let getset = |name: &'static CStr, get: ffi::getter| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        ..ffi::PyGetSetDef::default()
    };
    let getsets = Box::leak(Box::new([
        getset(c"_args", args_attribute),
        getset(c"__class__", class_attribute),
        ffi::PyGetSetDef::default(),
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getsets.as_mut_ptr().cast()),
        ffi::PyType_Slot::default(),
    ];
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: size_of::<HandleObject>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION)
            as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; name, members and getsets live as long as the process, the slots are copied. The
    // functions match their slots and the layout of `HandleObject`.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    Ok(class.cast_into::<PyType>()?.unbind())
}
