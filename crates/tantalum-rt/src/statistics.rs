//! Statistics: what a part counts is declared once, with [`statistics!`](crate::statistics).

/// What was counted between two snapshots of statistics.
pub trait Since {
    /// The counts since `before`. What is no count is as it is now.
    #[must_use]
    fn since(&self, before: &Self) -> Self;

    /// Whether the field at the end of a path of fields' names is a count. What stands in an option or a list has its path.
    fn is_count(path: &[&str]) -> bool;
}

impl Since for u64 {
    fn since(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }

    fn is_count(path: &[&str]) -> bool {
        path.is_empty()
    }
}

impl<T: Since + Clone> Since for Option<T> {
    fn since(&self, before: &Self) -> Self {
        let now = self.as_ref()?;
        Some(before.as_ref().map_or_else(|| now.clone(), |before| now.since(before)))
    }

    fn is_count(path: &[&str]) -> bool {
        T::is_count(path)
    }
}

/// Elements that were not there before are as they are now.
impl<T: Since + Clone> Since for Vec<T> {
    fn since(&self, before: &Self) -> Self {
        let common = self.iter().zip(before).map(|(now, before)| now.since(before));
        common.chain(self.iter().skip(before.len()).cloned()).collect()
    }

    fn is_count(path: &[&str]) -> bool {
        T::is_count(path)
    }
}

/// Declares the statistics of a part: a snapshot, its difference to an earlier one, and the atomics that count.
///
/// `counted by` names the struct of atomics; `peaks` are atomics that are no counts. `total` has counts that are kept elsewhere, and
/// statistics of parts. `now` has what is no count.
///
/// ```
/// use std::sync::atomic::Ordering;
///
/// tantalum_rt::statistics! {
///     /// What a shop did.
///     #[derive(Clone, Debug, Default)]
///     pub struct ShopStats {
///         counted by Counters {
///             /// Apples sold.
///             apples,
///         }
///         now {
///             /// Customers inside.
///             customers: u64,
///         }
///     }
/// }
///
/// let counters = Counters::default();
/// counters.apples.fetch_add(3, Ordering::Relaxed);
/// let before = counters.read();
/// counters.apples.fetch_add(2, Ordering::Relaxed);
/// let now = ShopStats { customers: 7, ..counters.read() };
/// assert_eq!((now.since(&before).apples, now.since(&before).customers), (2, 7));
/// use tantalum_rt::Since;
/// assert!(ShopStats::is_count(&["apples"]) && !ShopStats::is_count(&["customers"]));
/// ```
#[macro_export]
macro_rules! statistics {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(counted by $counters:ident {
                $($(#[$counted_meta:meta])* $counted:ident,)*
            }
            $(peaks {
                $($(#[$peak_meta:meta])* $peak:ident,)*
            })?)?
            $(total {
                $($(#[$total_meta:meta])* $total:ident: $total_type:ty,)*
            })?
            $(now {
                $($(#[$now_meta:meta])* $now:ident: $now_type:ty,)*
            })?
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($($(#[$now_meta])* pub $now: $now_type,)*)?
            $(
                $($(#[$counted_meta])* pub $counted: u64,)*
                $($($(#[$peak_meta])* pub $peak: u64,)*)?
            )?
            $($($(#[$total_meta])* pub $total: $total_type,)*)?
        }

        impl $name {
            /// The counts since `before`. What is no count is as it is now.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self {
                    $($($counted: self.$counted.saturating_sub(before.$counted),)*)?
                    $($($total: $crate::Since::since(&self.$total, &before.$total),)*)?
                    ..self.clone()
                }
            }
        }

        impl $crate::Since for $name {
            fn since(&self, before: &Self) -> Self {
                self.since(before)
            }

            fn is_count(path: &[&str]) -> bool {
                let [field, within @ ..] = path else { return false };
                $($(if *field == stringify!($counted) {
                    return within.is_empty();
                })*)?
                $($(if *field == stringify!($total) {
                    return <$total_type as $crate::Since>::is_count(within);
                })*)?
                false
            }
        }

        $(
            /// The counters, as they are counted.
            #[derive(Debug, Default)]
            pub(crate) struct $counters {
                $(pub(crate) $counted: ::std::sync::atomic::AtomicU64,)*
                $($(pub(crate) $peak: ::std::sync::atomic::AtomicU64,)*)?
            }

            impl $counters {
                /// The counters, and nothing else yet.
                pub(crate) fn read(&self) -> $name {
                    let read = |counter: &::std::sync::atomic::AtomicU64| counter.load(::std::sync::atomic::Ordering::Relaxed);
                    $name {
                        $($counted: read(&self.$counted),)*
                        $($($peak: read(&self.$peak),)*)?
                        ..$name::default()
                    }
                }
            }
        )?
    };
}

#[cfg(test)]
mod tests {
    use super::Since;

    #[test]
    fn what_was_not_there_before_is_as_it_is_now() {
        assert_eq!(vec![5, 7, 9].since(&vec![2, 8]), [3, 0, 9]);
        assert_eq!(
            (Some(5).since(&Some(3)), Some(5).since(&None), None::<u64>.since(&Some(1))),
            (Some(2), Some(5), None)
        );
    }
}
