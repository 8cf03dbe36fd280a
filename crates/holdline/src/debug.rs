//! What the types of this crate show of themselves: a few values, and that there are more.

/// Implements `Debug` for a type: each label, and the value that is shown behind it.
macro_rules! debug_of {
    ($type:ident, |$it:ident| $($label:ident: $value:expr),+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($label), &$value);)+
                shown.finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use debug_of;
