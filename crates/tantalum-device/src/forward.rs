//! Methods of a device that stands before another and adds nothing to them.

/// Within an `impl Device`: passes these methods on to the device in a field.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, Durability, MemoryDevice, Result};
///
/// /// Blocking writes are durable, whether that was asked for or not.
/// #[derive(Debug)]
/// struct WriteThrough(Arc<MemoryDevice>);
///
/// impl Device for WriteThrough {
///     tantalum_device::forward!(0: name, capacity_bytes, capabilities, hardware, read, submit, flush, discard, grow);
///
///     fn write(&self, offset: u64, buffers: &[&[u8]], _: Durability) -> Result<()> {
///         self.0.write(offset, buffers, Durability::Durable)
///     }
/// }
/// assert_eq!(WriteThrough(MemoryDevice::new("memory", 4096)).capacity_bytes(), 4096);
/// ```
#[macro_export]
macro_rules! forward {
    ($device:tt: $($method:ident),+) => { $($crate::forward!(@$method $device);)+ };
    (@name $device:tt) => {
        fn name(&self) -> &str {
            self.$device.name()
        }
    };
    (@capacity_bytes $device:tt) => {
        fn capacity_bytes(&self) -> u64 {
            self.$device.capacity_bytes()
        }
    };
    (@capabilities $device:tt) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$device.capabilities()
        }
    };
    (@hardware $device:tt) => {
        fn hardware(&self) -> $crate::Hardware {
            self.$device.hardware()
        }
    };
    (@read $device:tt) => {
        fn read(&self, offset: u64, buffer: &mut [u8]) -> $crate::Result<()> {
            self.$device.read(offset, buffer)
        }
    };
    (@submit $device:tt) => {
        fn submit(
            &self,
            offset: u64,
            buffer: ::std::sync::Arc<$crate::AlignedBuffer>,
            range: ::std::ops::Range<usize>,
            durability: $crate::Durability,
        ) -> $crate::Result<Box<dyn $crate::PendingWrite>> {
            self.$device.submit(offset, buffer, range, durability)
        }
    };
    (@flush $device:tt) => {
        fn flush(&self) -> $crate::Result<()> {
            self.$device.flush()
        }
    };
    (@discard $device:tt) => {
        fn discard(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.$device.discard(offset, len)
        }
    };
    (@grow $device:tt) => {
        fn grow(&self, new_capacity_bytes: u64) -> $crate::Result<()> {
            self.$device.grow(new_capacity_bytes)
        }
    };
}
