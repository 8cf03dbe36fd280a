//! What a node runs, on real servers and on a fake one.

mod cases;
mod histories;
mod test_node;
