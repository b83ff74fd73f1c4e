//! Events for subscribers of the crate `tracing`: what is tried again, given up or repaired. Without the feature `tracing` the same
//! macros take the same arguments, and do nothing.
//!
//! ```
//! let (path, error) = ("log-0", "no space is left");
//! tantalum_rt::tracing::warn!(path, %error, again = 3, "the log could not grow");
//! ```

#[cfg(feature = "tracing")]
pub use ::tracing::{debug, debug_span, error, info, trace, warn};

#[cfg(not(feature = "tracing"))]
pub use crate::{no_event as debug, no_event as error, no_event as info, no_event as trace, no_event as warn};

/// Stands for an event where the feature `tracing` is off. What it is given is compiled, and never evaluated.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! no_event {
    ($($fields:tt)*) => {
        if false {
            $crate::no_event_fields!($($fields)*);
        }
    };
}

/// The fields of an event, one after the other.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! no_event_fields {
    () => {};
    ($text:literal $($rest:tt)*) => {
        let _message = format_args!($text $($rest)*);
    };
    ($name:ident = %$value:expr $(, $($rest:tt)*)?) => {
        let _field = &$value;
        $($crate::no_event_fields!($($rest)*);)?
    };
    ($name:ident = ?$value:expr $(, $($rest:tt)*)?) => {
        let _field = &$value;
        $($crate::no_event_fields!($($rest)*);)?
    };
    ($name:ident = $value:expr $(, $($rest:tt)*)?) => {
        let _field = &$value;
        $($crate::no_event_fields!($($rest)*);)?
    };
    (%$value:expr $(, $($rest:tt)*)?) => {
        let _field = &$value;
        $($crate::no_event_fields!($($rest)*);)?
    };
    ($name:ident $(, $($rest:tt)*)?) => {
        let _field = &$name;
        $($crate::no_event_fields!($($rest)*);)?
    };
}
