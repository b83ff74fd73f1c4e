//! Bytes and texts that cross the border.

use std::{
    ffi::{CStr, OsStr, c_char},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

use crate::status::{Stop, guarded, tantalum_code};

/// Bytes that are borrowed: a key, a value, or a part of one. `data` may be null if `len` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tantalum_slice {
    /// The first byte.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

/// Bytes that belong to the caller until it passes them to tantalum_buffer_free().
#[repr(C)]
#[derive(Debug)]
pub struct tantalum_buffer {
    /// The first byte. Behind the last one stands a zero that does not count, so that a text can be used as such.
    pub data: *mut u8,
    /// How many there are.
    pub len: usize,
}

impl tantalum_slice {
    /// The bytes, for as long as C keeps them: until the function returns that was given them.
    pub(crate) fn bytes(&self) -> Result<&[u8], Stop> {
        match (self.data.is_null(), self.len) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(Stop::Misuse("a slice has a length and no data")),
            // SAFETY: the caller has `len` bytes there, as the header asks, and leaves them alone until the function returns.
            (false, len) if isize::try_from(len).is_ok() => Ok(unsafe { slice::from_raw_parts(self.data, len) }),
            (false, _) => Err(Stop::Misuse("a slice is longer than any memory")),
        }
    }

    /// Shows bytes that the library keeps.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }
}

impl tantalum_buffer {
    /// A copy of `bytes` that the caller ends.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let copy: Box<[u8]> = bytes.iter().copied().chain([0]).collect();
        Self { data: Box::into_raw(copy).cast(), len: bytes.len() }
    }
}

/// Sets what a function gives back. C need not have set the variable before.
pub(crate) fn give<T>(to: &mut MaybeUninit<T>, value: T) {
    to.write(value);
}

/// Gives the caller a handle.
pub(crate) fn give_handle<T>(to: &mut MaybeUninit<*mut T>, handle: T) {
    to.write(Box::into_raw(Box::new(handle)));
}

/// A text of C, which must not be null.
fn c_text<'a>(text: *const c_char, name: &'static str) -> Result<&'a CStr, Stop> {
    if text.is_null() {
        return Err(Stop::Misuse(name));
    }
    // SAFETY: the caller has a text there that ends with a zero, as the header asks, and leaves it alone until the function
    // returns, within which it is used.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A name, which must be UTF-8.
pub(crate) fn name<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, Stop> {
    c_text(text, what)?.to_str().map_err(|_| Stop::Misuse("a name is not UTF-8"))
}

/// A path, of any bytes.
pub(crate) fn path<'a>(text: *const c_char) -> Result<&'a Path, Stop> {
    Ok(Path::new(OsStr::from_bytes(c_text(text, "path is null")?.to_bytes())))
}

/// Ends a buffer. One whose `data` is null, or a null pointer, is ignored. The buffer is set to none, so that ending it once
/// more does nothing. Any thread may end it. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_buffer_free(buffer: Option<&mut tantalum_buffer>) {
    let freed = guarded(|| {
        let Some(buffer) = buffer.filter(|buffer| !buffer.data.is_null()) else { return Ok(()) };
        let bytes = ptr::slice_from_raw_parts_mut(buffer.data, buffer.len + 1);
        *buffer = tantalum_buffer { data: ptr::null_mut(), len: 0 };
        // SAFETY: `tantalum_buffer::of` made it of a box of one byte more, and it was not ended before: then it would be null.
        drop(unsafe { Box::from_raw(bytes) });
        Ok(())
    });
    debug_assert_eq!(freed, tantalum_code::TANTALUM_OK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_ends_with_a_zero_and_can_be_freed_twice() {
        for bytes in [&b""[..], b"metropolis"] {
            let mut buffer = tantalum_buffer::of(bytes);
            let with_zero = tantalum_slice { data: buffer.data, len: buffer.len + 1 };
            assert_eq!(with_zero.bytes().ok(), Some(&[bytes, b"\0"].concat()[..]));
            tantalum_buffer_free(Some(&mut buffer));
            tantalum_buffer_free(Some(&mut buffer));
            tantalum_buffer_free(None);
        }
    }

    #[test]
    fn a_slice_without_data_must_be_empty() {
        assert!(tantalum_slice { data: ptr::null(), len: 0 }.bytes().is_ok_and(<[u8]>::is_empty));
        assert!(matches!(tantalum_slice { data: ptr::null(), len: 1 }.bytes(), Err(Stop::Misuse(_))));
        let byte = 7;
        assert!(matches!(tantalum_slice { data: &byte, len: usize::MAX }.bytes(), Err(Stop::Misuse(_))));
    }
}
