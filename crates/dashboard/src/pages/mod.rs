//! The pages, one module each.

pub(crate) mod login;
mod overview;

use crate::layout::Section;

/// The pages of the navigation, in its order.
pub(crate) const SECTIONS: &[Section] = &[overview::SECTION];
