//! Asking the processor for memory before it is needed.

/// Has the processor fetch the cache line at an address while the program goes on, if it can: a help for what is read soon, where the
/// next address is known early, and does not follow from what is read before. The address need not be valid. Costs an instruction;
/// nothing on processors other than x86-64.
///
/// ```
/// let rows = vec![1u64; 1 << 20];
/// let wanted = [999_999, 7, 500_000];
/// wanted.iter().for_each(|row| tantalum_rt::prefetch(&raw const rows[*row]));
/// assert_eq!(wanted.iter().map(|row| rows[*row]).sum::<u64>(), 3);
/// ```
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that the program can see, whatever the address, and never faults.
    #[allow(unsafe_code)]
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
