//! The pages, one module each.

mod contention;
mod lock;
mod locks;
pub(crate) mod login;
mod overview;
mod timeline;

use crate::layout::Section;

/// The pages of the navigation, in its order.
pub(crate) const SECTIONS: &[Section] =
    &[overview::SECTION, locks::SECTION, timeline::SECTION, contention::SECTION];
