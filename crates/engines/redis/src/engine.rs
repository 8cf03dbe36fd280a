//! The engine: each verb is one script.
