//! What is stored under which key.
