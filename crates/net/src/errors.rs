//! A macro for the errors that the engines of servers make.

/// Defines the functions that make an engine's errors of these kinds. `$engine` is the engine's
/// short name.
#[macro_export]
macro_rules! errors_of {
    ($engine:expr) => {
        /// No answer; `certainty` says whether the request may have been applied.
        pub(crate) fn unavailable(
            message: impl Into<String>,
            certainty: ::holdline_core::Certainty,
        ) -> ::holdline_core::LockError {
            let kind = ::holdline_core::ErrorKind::Unavailable { message: message.into() };
            ::holdline_core::LockError::new($engine, kind, certainty)
        }

        /// An unexpected answer. Whether the request was applied is unknown.
        pub(crate) fn protocol(message: impl Into<String>) -> ::holdline_core::LockError {
            let kind = ::holdline_core::ErrorKind::Protocol { message: message.into() };
            ::holdline_core::LockError::new($engine, kind, ::holdline_core::Certainty::Unknown)
        }

        /// Data of another program, which was left as it is.
        pub(crate) fn foreign(found: impl Into<String>) -> ::holdline_core::LockError {
            not_applied(::holdline_core::ErrorKind::Foreign { found: found.into() })
        }

        /// The server refused the request.
        pub(crate) fn refused(message: impl Into<String>) -> ::holdline_core::LockError {
            not_applied(::holdline_core::ErrorKind::Refused { message: message.into() })
        }

        /// The request was not applied, and never will be.
        pub(crate) fn not_applied(kind: ::holdline_core::ErrorKind) -> ::holdline_core::LockError {
            ::holdline_core::LockError::new($engine, kind, ::holdline_core::Certainty::NotApplied)
        }
    };
}
