//! Tables of commands and replies.
