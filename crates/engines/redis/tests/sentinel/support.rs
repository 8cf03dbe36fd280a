//! URLs of a group.

use holdline_services::SentinelGroup;

/// The URL of the group with these parameters, `&` and all.
pub(crate) fn url(group: &SentinelGroup, parameters: &str) -> String {
    format!("{}?command_timeout_ms=10000{parameters}", group.url())
}
