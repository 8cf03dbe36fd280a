//! The pages, one module each.

mod audit;
mod contention;
mod lock;
mod locks;
pub(crate) mod login;
mod overview;
#[cfg(feature = "redis")]
mod quorum;
mod stores;
mod timeline;

use crate::layout::Section;

/// The path of the page that is of use with a quorum only.
pub(crate) const OF_QUORUM: &str = "/quorum";

/// The pages of the navigation, in its order.
pub(crate) const SECTIONS: &[Section] = &[
    overview::SECTION,
    locks::SECTION,
    timeline::SECTION,
    contention::SECTION,
    #[cfg(feature = "redis")]
    quorum::SECTION,
    stores::SECTION,
    audit::SECTION,
];
